"""Queues: waiting and running requests, each in policy order.

Owns: the sorted list. Adding at the end and taking from either end is fast, anything else costs a
binary search and a move of pointers.
Does not know: what the order means.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Protocol

from octavo.scheduling.policy import SortKey
from octavo.scheduling.request import Request


def order_of(request: Request) -> SortKey:
    """Its place in a queue, as a sort key."""
    return request.order


class WaitingQueue(Protocol):
    """What the scheduler asks of the waiting requests, whatever orders them."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]: ...

    @property
    def first(self) -> Request: ...

    def upcoming(self, count: int) -> list[Request]: ...

    def add(self, request: Request) -> None: ...

    def remove(self, request: Request) -> None: ...


class RequestQueue:
    """Requests sorted by `order`, smallest first."""

    __slots__ = ("_requests",)

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def __reversed__(self) -> Iterator[Request]:
        return reversed(self._requests)

    @property
    def first(self) -> Request:
        """Served next."""
        return self._requests[0]

    @property
    def last(self) -> Request:
        """Served last, preempted first."""
        return self._requests[-1]

    def upcoming(self, count: int) -> list[Request]:
        """The next requests in order of service, at most `count`."""
        return self._requests[:count]

    def add(self, request: Request) -> None:
        """Put a request where its order says."""
        requests = self._requests
        if not requests or requests[-1].order < request.order:
            requests.append(request)
            return
        requests.insert(self._place_of(request), request)

    def remove(self, request: Request) -> None:
        """Take a request out; it must be in."""
        place = self._place_of(request)
        assert self._requests[place] is request, f"{request} is not in the queue"
        del self._requests[place]

    def _place_of(self, request: Request) -> int:
        return bisect_left(self._requests, request.order, key=order_of)
