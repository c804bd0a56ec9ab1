"""PhaseProgress: how far a download or a start is, on standard error.

One live line on a terminal, plain lines otherwise.
"""

from __future__ import annotations

import sys
import time
from typing import TextIO

from octavo.foundation.quantities import format_bytes

PLAIN_LINE_EVERY_S = 5.0
LIVE_LINE_EVERY_S = 0.1


class PhaseProgress:
    """Shows `done` of `total` of a named phase, with rate and remaining time.

    A phase counts bytes when `in_bytes`, else a share between 0 and 1.
    """

    def __init__(self, stream: TextIO | None = None, *, in_bytes: bool = True) -> None:
        self._stream = stream or sys.stderr
        self._is_live = self._stream.isatty()
        self._in_bytes = in_bytes
        self._phase = ""
        self._started_s = self._shown_s = 0.0
        self._first_done = 0.0
        self._is_done = False

    def show(self, phase: str, done: float, total: float) -> None:
        """Note how far it is; prints only as often as a reader can follow."""
        now_s = time.monotonic()
        if phase != self._phase:
            self.close()
            self._phase, self._started_s, self._first_done = phase, now_s, done
            self._shown_s, self._is_done = 0.0, False
        was_done, self._is_done = self._is_done, total > 0 and done >= total
        if was_done and self._is_done:
            return  # said already; a caller that polls repeats itself
        every_s = LIVE_LINE_EVERY_S if self._is_live else PLAIN_LINE_EVERY_S
        if not self._is_done and now_s - self._shown_s < every_s:
            return
        self._shown_s = now_s
        self._print(self._line(done, total, now_s))

    def close(self) -> None:
        """End the live line, so that what follows starts on a line of its own."""
        if self._is_live and self._phase:
            self._stream.write("\n")
            self._stream.flush()
        self._phase = ""

    def _line(self, done: float, total: float, now_s: float) -> str:
        elapsed_s = max(now_s - self._started_s, 1e-6)
        rate = (done - self._first_done) / elapsed_s
        share = f" {done / total:4.0%}" if total > 0 else ""
        if not self._in_bytes:
            return f"{self._phase}{share}"
        text = f"{self._phase}{share} {format_bytes(done)}"
        if total > 0:
            text += f" of {format_bytes(total)}"
        if rate > 0:
            text += f", {rate / 1e6:.1f} MB/s"
            if total > done:
                text += f", {(total - done) / rate:.0f} s left"
        return text

    def _print(self, line: str) -> None:
        if self._is_live:
            self._stream.write(f"\r\x1b[2K{line}")
        else:
            self._stream.write(line + "\n")
        self._stream.flush()
