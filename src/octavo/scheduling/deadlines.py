"""Deadlines: ends requests that cannot make it any more, with the reason.

Owns: a heap of (time to look, request id), when to look, and what a missed deadline is told.
Does not know: budgets, plans, a clock: the time comes with each call.

A request without a deadline costs nothing, one with a deadline costs a look at the moment from
which its prompt could not be computed in time, by the estimate of then, and one at the deadline.
Such a request ends as aborted with stop_reason "timeout". If it has got tokens its client keeps
them; if it has none the delta states the numbers in `error`.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from octavo.foundation.quantities import format_seconds
from octavo.scheduling.pacing import MeasuredSpeed
from octavo.scheduling.request import Request, Status
from octavo.scheduling.roster import Roster, last_delta

_SLACK = 64  # entries of ended requests that are not worth a clean-up


class DeadlineHeap:
    """When to look at which live request. Entries of ended ones are dropped later: there are never
    more than twice as many as live requests, and a few."""

    __slots__ = ("_heap", "_live")

    def __init__(self, live: Mapping[str, Request]) -> None:
        self._live = live
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def look_at(self, request_id: str, at_s: float) -> None:
        """Look at a live request at this time, or soon after."""
        if len(self._heap) > 2 * len(self._live) + _SLACK:
            self._drop_ended()
        heappush(self._heap, (at_s, request_id))

    def take_due(self, now_s: float) -> list[Request]:
        """The live requests with a deadline to look at now, each once."""
        due: dict[str, Request] = {}
        while self._heap and self._heap[0][0] <= now_s:
            request_id = heappop(self._heap)[1]
            request = self._live.get(request_id)
            if request is not None and request.deadline_s is not None:
                due[request_id] = request
        return list(due.values())

    def _drop_ended(self) -> None:
        """One entry for each live request: its earliest. An id may have come back meanwhile."""
        earliest: dict[str, float] = {}
        for at_s, request_id in self._heap:
            if request_id in self._live:
                earliest[request_id] = min(at_s, earliest.get(request_id, at_s))
        self._heap = [(at_s, request_id) for request_id, at_s in earliest.items()]
        heapify(self._heap)


class Deadlines:
    """The deadlines of one scheduler."""

    def __init__(self, roster: Roster, speed: MeasuredSpeed) -> None:
        self._roster = roster
        self._speed = speed
        self._heap = DeadlineHeap(roster.requests)

    def watch(self, request: Request) -> None:
        """A request became live."""
        if request.deadline_s is not None:
            at_s = request.deadline_s - self._speed.prefill_s(request.num_tokens)
            self._heap.look_at(request.id, at_s)

    def end_overdue(self, now_s: float) -> None:
        """End who has no time left. Between steps only: nothing is in flight."""
        for request in self._heap.take_due(now_s):
            deadline_s = request.deadline_s
            assert deadline_s is not None, f"{request} has no deadline"
            num_missing = self._num_missing(request)
            needed_s = self._speed.prefill_s(num_missing)
            if now_s < deadline_s and now_s + needed_s <= deadline_s:
                self._heap.look_at(request.id, deadline_s - needed_s)
            else:
                self._end(request, now_s, needed_s, num_missing)

    def _num_missing(self, request: Request) -> int:
        """Tokens that must be computed before a waiting request runs on; 0 for a running one."""
        if request.status is Status.RUNNING or self._roster.families.is_held(request):
            return 0
        lead = request.lead
        if lead.table.is_swapped:
            return lead.num_missing_tokens
        return lead.num_tokens - self._roster.kv.match(lead.table).num_tokens

    def _end(self, request: Request, now_s: float, needed_s: float, num_missing: int) -> None:
        # The beams of a search are told at its end only: its client has none.
        has_tokens = request.search is None and request.num_tokens > request.num_prompt_tokens
        self._roster.end(request, "abort")
        self._roster.counters.num_missed_deadlines += 1
        delta = last_delta(request, "abort")
        delta.stop_reason = "timeout"
        if not has_tokens:
            delta.error = _describe_miss(request, now_s, needed_s, num_missing)
        self._roster.notify(delta)


def _describe_miss(request: Request, now_s: float, needed_s: float, num_missing: int) -> str:
    asked_s = (request.deadline_s or 0.0) - request.arrival_s
    message = (
        f"the request was to be done within {format_seconds(asked_s)} and has no token after "
        f"{format_seconds(now_s - request.arrival_s)}"
    )
    if num_missing:
        message += (
            f"; its {num_missing} missing prompt tokens need about {format_seconds(needed_s)} more"
        )
    return f"{message}; allow a longer timeout, or send it when fewer requests wait"
