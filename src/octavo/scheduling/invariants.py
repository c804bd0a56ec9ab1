"""What always holds between two calls of a scheduler. Runs after every test of this column."""

from __future__ import annotations

from octavo.kvcache.invariants import check_pool
from octavo.scheduling.request import Request, Status
from octavo.scheduling.scheduler import Scheduler


def check(scheduler: Scheduler) -> None:
    """Raise AssertionError unless queues, rows, requests and blocks agree. Slow: for tests."""
    holders = _holders(scheduler)
    _check_queues(scheduler)
    _check_rows(scheduler, holders)
    for request in holders:
        _check_progress(scheduler, request)
    waiting = [request.table for request in scheduler.waiting]
    assert not any(table.block_ids for table in waiting), "a waiting request holds blocks"
    check_pool(scheduler.kv, [*waiting, *(request.table for request in holders)])


def _holders(scheduler: Scheduler) -> list[Request]:
    """Who holds a row and blocks: running requests, and aborted ones whose step is in flight."""
    aborted = [request for request in scheduler.in_flight if request.status is Status.FINISHED]
    return [*scheduler.running, *aborted]


def _check_queues(scheduler: Scheduler) -> None:
    """Each live request is in the queue that its status says; queues are in policy order."""
    live = {request.id: request for request in (*scheduler.waiting, *scheduler.running)}
    assert live == scheduler.requests, f"live {live}, known {scheduler.requests}"
    assert len(live) == len(scheduler.waiting) + len(scheduler.running), "a request is queued twice"
    for request in scheduler.running:
        assert request.status is Status.RUNNING, f"{request} is in the running queue"
    for request in scheduler.waiting:
        assert request.status in {Status.WAITING, Status.PREEMPTED}, f"{request} is waiting"
        assert request.num_computed_tokens == 0, f"{request} waits with computed tokens"
    for queue in (scheduler.waiting, scheduler.running):
        orders = [request.order for request in queue]
        assert orders == sorted(orders), f"out of order: {orders}"


def _check_rows(scheduler: Scheduler, holders: list[Request]) -> None:
    """Every row is free or has exactly one holder."""
    taken = [request.row for request in holders]
    assert len(taken) == len(set(taken)), f"a row is taken twice: {taken}"
    everything = set(range(scheduler.rows.num_rows))
    assert set(taken) | scheduler.rows.free_rows == everything, "a row is lost"
    assert not set(taken) & scheduler.rows.free_rows, "a row is both free and taken"
    assert all(not hasattr(request, "row") for request in scheduler.waiting), "a row while waiting"


def _check_progress(scheduler: Scheduler, request: Request) -> None:
    """Something is always missing, and there are blocks for all that is computed."""
    assert request.num_missing_tokens >= 1, f"{request} has nothing to compute"
    assert request.num_tokens < request.max_num_tokens or request.num_tokens <= (
        request.num_prompt_tokens
    ), f"{request} should have ended"
    capacity = len(request.table.block_ids) * scheduler.kv.block_size
    assert request.num_computed_tokens <= capacity, f"{request} has only {capacity} slots"
    announced = request.table.num_announced * scheduler.kv.block_size
    in_flight = request in scheduler.in_flight
    assert in_flight or announced <= request.num_computed_tokens, f"{request} announced {announced}"
