"""PromptProgress: one line on stderr while `LLM.generate` works.

Rewritten in place on a terminal; elsewhere only the last state is written.
"""

from __future__ import annotations

import sys
from typing import TextIO

from octavo.foundation.clock import Clock

MIN_INTERVAL_S = 0.1


class PromptProgress:
    """How many of `total` prompts are done, and how fast tokens come."""

    def __init__(self, total: int, clock: Clock, stream: TextIO | None = None) -> None:
        self._total = total
        self._clock = clock
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._began_s = clock.now_s()
        self._next_s = self._began_s
        self._num_done = 0
        self._num_tokens = 0

    def advance(self, num_tokens: int) -> None:
        """One more prompt is done; its answers have `num_tokens` tokens."""
        self._num_done += 1
        self._num_tokens += num_tokens
        now_s = self._clock.now_s()
        if self._is_terminal and now_s >= self._next_s:
            self._next_s = now_s + MIN_INTERVAL_S
            self._write("\r" + self._line(now_s))

    def close(self) -> None:
        """Write the final state."""
        self._write(("\r" if self._is_terminal else "") + self._line(self._clock.now_s()) + "\n")

    def _line(self, now_s: float) -> str:
        elapsed_s = now_s - self._began_s
        rate = self._num_tokens / elapsed_s if elapsed_s > 0 else 0.0
        return (
            f"Prompts {self._num_done}/{self._total}, {self._num_tokens} tokens, "
            f"{rate:.1f} tokens/s, {elapsed_s:.1f} s"
        )

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
