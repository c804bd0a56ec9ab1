"""BetweenSteps: SIGINT leaves a note, and everything is put back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from octavo.engine.interrupt import BetweenSteps


@pytest.fixture(autouse=True)
def _handler_of_python() -> Iterator[None]:
    """A process in the background begins with another one."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_next_check() -> None:
    """The code in between is not torn apart."""
    with BetweenSteps() as interrupts:
        signal.raise_signal(signal.SIGINT)
        reached = True
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.check()

    assert reached


def test_an_interrupt_without_a_check_is_raised_at_the_end() -> None:
    """It is never lost."""
    with pytest.raises(KeyboardInterrupt), BetweenSteps():
        signal.raise_signal(signal.SIGINT)


def test_a_second_interrupt_does_not_wait() -> None:
    """Whoever presses twice means it."""
    with BetweenSteps() as interrupts:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_the_handler_is_put_back() -> None:
    """Afterwards SIGINT interrupts as always."""
    with BetweenSteps():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_programs_own_handler_is_left_alone() -> None:
    """It knows better."""
    seen = []

    def own(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    signal.signal(signal.SIGINT, own)
    try:
        with BetweenSteps():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    assert seen == [signal.SIGINT]


def test_other_threads_are_left_alone() -> None:
    """Python allows handlers in the main thread only."""
    handlers = []

    def use() -> None:
        with BetweenSteps():
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()

    assert handlers == [signal.default_int_handler]
