"""BetweenSteps: Ctrl-C takes effect between two steps, never inside one.

An interrupt in the middle of a step would leave scheduler and runner with different ideas of what
was computed. Does not know what a step is; the loop asks with `check`.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class BetweenSteps:
    """A context in which SIGINT only leaves a note. A second one interrupts at once.

    Does nothing outside the main thread, or where the program handles SIGINT itself.
    """

    def __init__(self) -> None:
        self._is_noted = False
        self._is_installed = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was one."""
        if self._is_noted:
            self._is_noted = False
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)
            self._is_installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if error is None:
            self.check()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._is_noted:
            raise KeyboardInterrupt
        self._is_noted = True
