"""Preemption: who must yield when there is not room for all, and in which way.

Owns: the choice of victims, the choice between two ways to yield, counted in measured seconds.
Does not know: how a victim is moved (roster.py).

Running requests stand in policy order and are served in that order, so the last one is the victim:
the youngest under `fcfs`, the worst priority under `priority`. Nothing has been granted to it in
the plan that is being made, which is why a victim never has to be taken out of a plan. The first
one is never a victim unless it is alone: it always progresses, so all of them finish.

    recompute   the victim gives its row and blocks back and computes again when its turn comes; its
                full blocks stay findable, so most of it may come back as a prefix hit
    swap        its blocks move to host slots and come back as they were
    auto        swap if moving the blocks there and back takes fewer seconds than computing

A victim of a shortage cannot come back in the same plan: no block was free when it yielded, and of
those that it gave back one is taken. If host slots are short, or if the victim was alone, which
means that the pool is too small for it, it computes again whatever the mode says.
"""

from __future__ import annotations

from octavo.kvcache.manager import KVManager
from octavo.scheduling.admission import num_spare_blocks
from octavo.scheduling.pacing import MeasuredSpeed
from octavo.scheduling.queues import RequestQueue
from octavo.scheduling.request import Request
from octavo.scheduling.roster import Roster


class Preemption:
    """Makes room. `mode` is `SchedulerConfig.preemption_mode`."""

    def __init__(self, mode: str, roster: Roster, speed: MeasuredSpeed) -> None:
        self._mode = mode
        self._roster = roster
        self._speed = speed

    def make_room_for(self, request: Request) -> bool:
        """Blocks are short: a snapshot goes, or the last running request yields.

        False if that was `request` itself.
        """
        if self._roster.families.drop_a_snapshot():
            return True
        victim = victim_of_shortage(self._roster.running)
        # Who is alone and finds no block would come back to the same wall.
        self.send_away(victim, may_swap=len(self._roster.running) > 1)
        return victim is not request

    def send_away(self, victim: Request, *, may_swap: bool = True) -> None:
        """running -> waiting, by the cheaper way that is allowed."""
        if may_swap and self._prefers_swap(victim) and self._roster.swap_out(victim):
            return
        self._roster.preempt(victim)

    def _prefers_swap(self, victim: Request) -> bool:
        if self._mode != "auto":
            return self._mode == "swap"
        block_s, token_s = self._speed.block_s, self._speed.token_s
        if token_s is None:
            return False
        if block_s is None:
            return True  # somebody must be the first to be measured
        num_blocks = len({one for holder in victim.holders for one in holder.table.held_blocks()})
        num_tokens = sum(holder.num_computed_tokens for holder in victim.holders)
        return 2 * num_blocks * block_s < num_tokens * token_s


def victim_of_shortage(running: RequestQueue) -> Request:
    """Who yields when a running request finds no free block. It may be that request itself."""
    return running.last


def victims_of_arrival(
    arrival: Request,
    candidates: list[Request],
    running: RequestQueue,
    kv: KVManager,
    max_num_running: int,
) -> list[Request]:
    """Whom to displace so that `arrival`, first of the waiting, can run; empty if nobody.

    `candidates` are running requests that may yield, in that order: no more of them than needed,
    and none if even all of them together would not make enough room.
    """
    table = arrival.lead.table
    match = None if table.is_swapped else kv.match(table)
    num_lacking = kv.shortfall(table, arrival.lead.num_tokens, match)
    kept = match.held() if match is not None else ()
    tables = [holder.table for request in candidates for holder in request.holders]
    freed = iter(kv.num_blocks_freed_by(tables, kept))
    num_freed, num_rows = 0, sum([request.num_rows for request in running])
    for num_victims in range(len(candidates) + 1):
        if num_victims:
            victim = candidates[num_victims - 1]
            num_rows -= victim.num_rows
            for _ in victim.holders:
                num_freed = next(freed)
        has_row = num_rows + arrival.num_rows <= max_num_running
        num_spare = num_spare_blocks(kv, len(running) - num_victims)
        if has_row and num_lacking + num_spare <= num_freed:
            return candidates[:num_victims]
    return []
