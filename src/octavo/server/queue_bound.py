"""How many choices may wait in the engine when the request that is being answered has come in.

A variable of the task, like the trace context: routes and shapes of answers need not know it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_waits_outside: ContextVar[bool] = ContextVar("waits_outside", default=False)


@contextmanager
def waits_outside() -> Iterator[None]:
    """Requests of this task wait with their caller: where none may start at once, they are refused.

    So lines of a batch take no place in the queue from live requests.
    """
    token = _waits_outside.set(True)
    try:
        yield
    finally:
        _waits_outside.reset(token)


def max_waiting(max_queued_requests: int | None) -> int | None:
    """What the engine's `require_room` is asked for; None: no bound."""
    return 0 if _waits_outside.get() else max_queued_requests
