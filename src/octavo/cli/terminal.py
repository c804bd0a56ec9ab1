"""What a person types: lines at a prompt, or the whole of a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


def questions() -> Iterator[str]:
    """Each question in turn: typed lines on a terminal, else all of standard input as one."""
    if not sys.stdin.isatty():
        text = sys.stdin.read().strip()
        if text:
            yield text
        return
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401, PLC0415 - line editing where the platform has it
    while True:
        try:
            line = input("> ")
        except EOFError:
            print()
            return
        if line.strip():
            yield line
