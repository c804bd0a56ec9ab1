"""Queues keep policy order, whatever comes and goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.scheduling.queues import RequestQueue
from octavo.scheduling.request import Request
from tests.support.builders import make_kv, make_request

KV = make_kv()


def ranked(*order: float) -> Request:
    return Request(make_request(str(order)), order, 1000, KV)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 99)), unique=True), st.data())
def test_a_queue_is_always_sorted(orders: list[tuple[int, int]], data: st.DataObject):
    """Against the obvious twin: a list that is sorted after each change."""
    queue, twin = RequestQueue(), list[Request]()
    for order in orders:
        request = ranked(*order)
        queue.add(request)
        twin.append(request)
        twin.sort(key=lambda one: one.order)
        if data.draw(st.booleans()):
            gone = data.draw(st.sampled_from(twin))
            queue.remove(gone)
            twin.remove(gone)
        assert twin == list(queue)
        assert twin[::-1] == list(reversed(queue))
        assert len(twin) == len(queue)


def test_first_and_last_are_the_ends_of_the_order():
    queue = RequestQueue()
    for order in (2, 0, 1):
        queue.add(ranked(order))
    assert queue.first.order == (0,)
    assert queue.last.order == (2,)


def test_removing_a_request_that_is_not_queued_is_caught():
    queue = RequestQueue()
    queue.add(ranked(1))
    with pytest.raises(AssertionError, match="not in the queue"):
        queue.remove(ranked(1))
