"""PromptProgress: one line, rewritten on a terminal."""

from __future__ import annotations

import io

from octavo.engine.progress import PromptProgress
from octavo.foundation.clock import ManualClock


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_the_line_grow() -> None:
    """Each state begins at the start of the line; the last one ends it."""
    stream, clock = Terminal(), ManualClock()
    line = PromptProgress(2, clock, stream)

    clock.advance(1.0)
    line.advance(30)
    clock.advance(1.0)
    line.advance(10)
    line.close()

    assert stream.getvalue().split("\r") == [
        "",
        "Prompts 1/2, 30 tokens, 30.0 tokens/s, 1.0 s",
        "Prompts 2/2, 40 tokens, 20.0 tokens/s, 2.0 s",
        "Prompts 2/2, 40 tokens, 20.0 tokens/s, 2.0 s\n",
    ]


def test_fast_prompts_do_not_flood_the_terminal() -> None:
    """At most ten states a second."""
    stream, clock = Terminal(), ManualClock()
    line = PromptProgress(1000, clock, stream)

    for _ in range(1000):
        clock.advance(0.001)
        line.advance(1)

    assert stream.getvalue().count("\r") <= 11


def test_a_file_gets_the_last_state_only() -> None:
    """A log is not filled with carriage returns."""
    stream, clock = io.StringIO(), ManualClock()
    line = PromptProgress(1, clock, stream)
    clock.advance(2.0)
    line.advance(8)
    line.close()

    assert stream.getvalue() == "Prompts 1/1, 8 tokens, 4.0 tokens/s, 2.0 s\n"
