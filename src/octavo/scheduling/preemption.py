"""Preemption: who must yield when there is not room for all.

Owns: the choice of victims. The way is always *recompute*: the victim gives its row and blocks back
and waits again; its full blocks stay findable, so most of it comes back as a prefix hit.
Does not know: how a victim is moved.

Running requests stand in policy order and are served in that order, so the last one is the victim:
the youngest under `fcfs`, the worst priority under `priority`. Nothing has been granted to it in
the plan that is being made, which is why a victim never has to be taken out of a plan. The first
one is never a victim unless it is alone: it always progresses, so all of them finish.

A victim of a shortage cannot come back in the same plan: no block was free when it yielded, and of
those that it gave back one is taken.
"""

from __future__ import annotations

from octavo.kvcache.manager import KVManager
from octavo.scheduling.admission import num_spare_blocks
from octavo.scheduling.queues import RequestQueue
from octavo.scheduling.request import Request


def victim_of_shortage(running: RequestQueue) -> Request:
    """Who yields when a running request finds no free block. It may be that request itself."""
    return running.last


def victims_of_arrival(
    arrival: Request, running: RequestQueue, kv: KVManager, max_num_running: int
) -> list[Request]:
    """Whom to displace so that `arrival`, first of the waiting, can run; empty if nobody.

    Only requests of strictly worse priority yield, the last ones first and no more than needed.
    Nobody yields if even all of them together would not make enough room.
    """
    matched = kv.match(arrival.table)
    num_lacking = kv.shortfall(arrival.table, arrival.num_tokens, matched)
    worse = [request for request in reversed(running) if request.priority > arrival.priority]
    freed = kv.num_blocks_freed_by([request.table for request in worse], matched)
    for num_victims, num_freed in enumerate([0, *freed]):
        num_left = len(running) - num_victims
        if num_left < max_num_running and (
            num_lacking + num_spare_blocks(kv, num_left) <= num_freed
        ):
            return worse[:num_victims]
    return []
