"""Preemption: who must yield when there is not room for all.

Owns: the choice of victims. The way is always *recompute*: the victim gives its row and blocks back
and waits again; its full blocks stay findable, so most of it comes back as a prefix hit.
Does not know: how a victim is moved.

Running requests stand in policy order and are served in that order, so the last one is the victim:
the youngest under `fcfs`, the worst priority under `priority`. Nothing has been granted to it in
the plan that is being made, which is why a victim never has to be taken out of a plan. The first
one is never a victim unless it is alone: it always progresses, so all of them finish.
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
    num_rows_lacking = len(running) + 1 - max_num_running
    num_known, matched = arrival.num_tokens, kv.match(arrival.table)
    num_blocks_lacking = kv.shortfall(arrival.table, num_known, matched)
    num_blocks_lacking += num_spare_blocks(kv, len(running))
    victims: list[Request] = []
    for request in reversed(running):
        if num_rows_lacking <= 0 and num_blocks_lacking <= 0:
            return victims
        if request.priority <= arrival.priority:
            return []
        victims.append(request)
        num_rows_lacking -= 1
        num_blocks_lacking -= kv.num_exclusive_blocks(request.table)
    return victims if num_rows_lacking <= 0 and num_blocks_lacking <= 0 else []
