"""What always holds between two calls of a scheduler. Runs after every test of this column."""

from __future__ import annotations

from octavo.kvcache.invariants import check_pool
from octavo.scheduling.request import Request, Status
from octavo.scheduling.scheduler import Scheduler


def check(scheduler: Scheduler) -> None:
    """Raise AssertionError unless queues, rows, requests and blocks agree. Slow: for tests."""
    running = [holder for request in scheduler.running for holder in request.holders]
    # Aborted ones hold row and blocks while their step is in flight.
    aborted = scheduler.roster.aborted_in_flight
    holders = [*running, *(holder for request in aborted for holder in request.holders)]
    waiting = [holder for request in _waiting(scheduler) for holder in request.holders]
    _check_queues(scheduler)
    _check_rows(scheduler, holders)
    _check_families(scheduler)
    for request in scheduler.running:
        _check_search(request)
    for holder in running:
        _check_progress(scheduler, holder)
    for holder in waiting:
        assert not any(holder.table.block_ids), f"{holder} waits and holds blocks"
        is_swapped = holder.table.is_swapped
        assert is_swapped == (holder.num_computed_tokens > 0), f"{holder}: swapped {is_swapped}"
    snapshots = [family.snapshot for family in scheduler.roster.families if family.snapshot]
    check_pool(scheduler.kv, [*(holder.table for holder in [*waiting, *holders]), *snapshots])


def _waiting(scheduler: Scheduler) -> list[Request]:
    held = [request for family in scheduler.roster.families for request in family.held]
    assert len(held) == scheduler.roster.families.num_held, "held requests are not counted right"
    return [*scheduler.waiting, *held]


def _check_queues(scheduler: Scheduler) -> None:
    """Each live request is in the queue that its status says; queues are in policy order."""
    everybody = [*_waiting(scheduler), *scheduler.running]
    live = {request.id: request for request in everybody}
    assert live == scheduler.requests, f"live {live}, known {scheduler.requests}"
    assert len(live) == len(everybody), "a request is queued twice"
    for request in scheduler.running:
        assert request.status is Status.RUNNING, f"{request} is in the running queue"
    for request in _waiting(scheduler):
        assert request.status in {Status.WAITING, Status.PREEMPTED}, f"{request} is waiting"
    orders = [request.order for request in scheduler.running]
    assert orders == sorted(orders), f"out of order: {orders}"


def _check_rows(scheduler: Scheduler, holders: list[Request]) -> None:
    """Every row is free or has exactly one holder."""
    taken = [holder.row for holder in holders if hasattr(holder, "row")]
    assert len(taken) == len(set(taken)), f"a row is taken twice: {taken}"
    everything = set(range(scheduler.rows.num_rows))
    assert set(taken) | scheduler.rows.free_rows == everything, "a row is lost"
    assert not set(taken) & scheduler.rows.free_rows, "a row is both free and taken"
    for request in _waiting(scheduler):
        assert all(not hasattr(one, "row") for one in request.holders), "a row while waiting"


def _check_families(scheduler: Scheduler) -> None:
    """Who is held has a leader; a snapshot has somebody to use it; members know their family."""
    for family in scheduler.roster.families:
        assert family.members, f"the family of {family.first_id} is empty"
        assert not family.held or family.leader in family.members, f"{family.held}: no leader"
        for member in family.members:
            assert member.family is family, f"{member} does not know its family"
            assert scheduler.requests.get(member.id) is member, f"{member} is not live"
        may_fork = any(one.status is Status.WAITING for one in family.members)
        assert may_fork or not family.snapshot, f"nobody wants the snapshot of {family.first_id}"


def _check_search(request: Request) -> None:
    """Beams are as many as the ranking has, each with its tokens."""
    search = request.search
    if search is None:
        return
    beams = search.ranking.beams
    assert len(search.members) == len(search.entries) == len(beams), f"{request}: lost a beam"
    for member, beam in zip(search.members, beams, strict=True):
        assert member.member_of is search, f"{member} is a beam of another search"
        answer = member.token_ids[request.num_prompt_tokens :].tolist()
        assert answer == list(beam.token_ids), f"{member} has other tokens than its beam"


def _check_progress(scheduler: Scheduler, holder: Request) -> None:
    """Something is missing, or comes from the step in flight, and there are blocks for the rest."""
    in_flight = holder in scheduler.in_flight
    if holder.member_of is None:
        assert in_flight or holder.num_missing_tokens >= 1, f"{holder} has nothing to compute"
    assert holder.num_tokens < holder.max_num_tokens or holder.num_tokens <= (
        holder.num_prompt_tokens
    ), f"{holder} should have ended"
    table, block_size = holder.table, scheduler.kv.block_size
    if not table.is_swapped:  # a beam may be, while the others of its search run
        num_computed = holder.num_computed_tokens
        for kind, ids in zip(scheduler.kv.groups, table.block_ids, strict=True):
            written = kind.written_places(0, num_computed, block_size)
            is_enough = not num_computed or written.stop <= len(ids)
            assert is_enough, f"{holder} has only {len(ids)} blocks, not {written.stop}"
    announced = table.num_announced * block_size
    assert in_flight or announced <= holder.num_computed_tokens, f"{holder} announced {announced}"
