"""Screen: frames on a terminal, one over the other, and the terminal as it was at the end.

Owns the escape sequences and the size. Does not know what is shown.
"""

from __future__ import annotations

import shutil
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Any, Self, TextIO

_ENTER = "\x1b[?1049h\x1b[?25l"  # the other screen, no cursor
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


class Screen:
    """Use it in `with`. SIGTERM becomes SystemExit, so that the terminal is put back."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._is_resized = threading.Event()
        self._handlers: dict[int, Any] = {}

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines now."""
        columns, lines = shutil.get_terminal_size()
        return columns, lines

    def show(self, lines: Sequence[str]) -> None:
        """Draw a frame over the last one. Lines beyond the last of the terminal are left out."""
        _, height = self.size
        text = (_END_OF_LINE + "\r\n").join(lines[:height])
        self._stream.write(_HOME + text + _END_OF_LINE + _END_OF_SCREEN)
        self._stream.flush()

    def wait(self, seconds: float) -> None:
        """Return after `seconds`, or as soon as the terminal has another size."""
        self._is_resized.wait(seconds)
        self._is_resized.clear()

    def __enter__(self) -> Self:
        for name, handler in (("SIGWINCH", self._note_size), ("SIGTERM", _end)):
            number = getattr(signal, name, None)  # not on every platform
            if number is not None:
                self._handlers[number] = signal.signal(number, handler)
        self._stream.write(_ENTER)
        self._stream.flush()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stream.write(_LEAVE)
        self._stream.flush()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _note_size(self, number: int, frame: FrameType | None) -> None:
        self._is_resized.set()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
