"""The line of `--stats`: how long an answer took, as the client saw it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from octavo.foundation.clock import Clock

USAGE: dict[str, Any] = {"stream_options": {"include_usage": True}}
"""What a request must ask for, so that its last chunk counts the tokens."""


def timed(chunks: Iterator[dict[str, Any]], clock: Clock) -> Iterator[dict[str, Any]]:
    """Pass the chunks on as they come; at their end write one line to standard error."""
    start_s = clock.now_s()
    first_s: float | None = None
    usage: dict[str, Any] = {}
    for chunk in chunks:
        if first_s is None and any(_has_text(choice) for choice in chunk["choices"]):
            first_s = clock.now_s()
        usage = chunk.get("usage") or usage
        yield chunk
    print(line_of(start_s, first_s, clock.now_s(), usage), file=sys.stderr)


def line_of(start_s: float, first_s: float | None, end_s: float, usage: dict[str, Any]) -> str:
    """`--stats` in one line; the rate is that of the tokens after the first."""
    num_tokens = usage.get("completion_tokens")
    parts = [] if first_s is None else [f"first token after {(first_s - start_s) * 1000:.0f} ms"]
    if num_tokens is not None:
        parts.append(f"{num_tokens} tokens in {end_s - start_s:.2f} s")
        if first_s is not None and num_tokens > 1 and end_s > first_s:
            parts.append(f"{(num_tokens - 1) / (end_s - first_s):.1f} tokens/s")
    return "\n" + (", ".join(parts) or "no tokens")


def _has_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta", choice)
    return any(delta.get(field) for field in ("content", "reasoning", "tool_calls", "text"))
