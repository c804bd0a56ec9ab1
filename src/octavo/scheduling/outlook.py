"""Outlook: which waiting requests seem to start with the next plan.

Owns: a look at rows and blocks by the rules of admission, look-ahead included.
Does not know: tokens of a step. It reserves nothing, so a plan may decide otherwise.
Used by: scheduling.chunks, scheduling.scheduler.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from octavo.contracts.request import EngineRequest
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.manager import KVManager
from octavo.scheduling.admission import (
    MAX_LOOK_AHEAD,
    MAX_TIMES_PASSED,
    num_owed_blocks,
    num_owed_rows,
    num_spare_blocks,
)
from octavo.scheduling.queues import WaitingQueue
from octavo.scheduling.request import Request, Status, root_keys
from octavo.scheduling.roster import Roster

NUM_LOOKED_AT = MAX_LOOK_AHEAD + 1
"""Waiting requests among which the first one that can start is, if there is any."""


class Outlook:
    """Rows and blocks that are free, as one waiting request after the other takes some of them."""

    def __init__(self, roster: Roster, num_kept_blocks: int = 0) -> None:
        """`num_kept_blocks` of the free blocks are for others."""
        searches = [one for one in roster.running if one.search is not None]
        self._kv = roster.kv
        self._num_rows = roster.rows.num_free - num_owed_rows(searches)
        self._num_blocks = roster.kv.num_free_blocks - num_kept_blocks
        self._num_running = len(roster.running)
        self.num_skipped = 0  # did not fit and were passed, or may be
        self._num_passes_left = MAX_TIMES_PASSED

    @property
    def num_rows(self) -> int:
        """Rows that are left; at times fewer than none, for searches are owed some."""
        return self._num_rows

    @property
    def is_over(self) -> bool:
        """Whether nobody else starts."""
        return (
            self._num_rows <= 0 or self.num_skipped > MAX_LOOK_AHEAD or self._num_passes_left <= 0
        )

    def takes(self, num_rows: int, num_blocks: int, num_times_passed: int = 0) -> bool:
        """Whether the next one in order starts, which then has taken so much. Else it is passed."""
        if self.is_over:
            return False
        num_spare = num_spare_blocks(self._kv, self._num_running)
        if num_rows <= self._num_rows and num_blocks + num_spare <= self._num_blocks:
            self._num_rows -= num_rows
            self._num_blocks -= num_blocks
            self._num_running += 1
            self._num_passes_left -= bool(self.num_skipped)
            return True
        self.num_skipped += 1
        self._num_passes_left = min(self._num_passes_left, MAX_TIMES_PASSED - num_times_passed)
        return False


def startable(roster: Roster, num_kept_blocks: int = 0) -> Iterator[Request]:
    """Those of the next few waiting requests that seem to start, in order. A rough and quick look:

    what a prompt finds in the cache does not count.
    """
    outlook = Outlook(roster, num_kept_blocks)
    if outlook.is_over:
        return
    for request in roster.waiting.upcoming(NUM_LOOKED_AT):
        num_blocks = roster.kv.num_blocks_for(request.num_tokens)
        if outlook.takes(request.num_rows, num_blocks, request.num_times_passed):
            yield request


@dataclass(frozen=True, slots=True)
class Standing:
    """How things would stand if some requests came."""

    num_before: int  # choices that wait for rows or blocks without them
    num_after: int  # and with them
    starting: frozenset[str]  # ids of those that wait for the next steps alone


def standing_with(roster: Roster, arrivals: Sequence[EngineRequest]) -> Standing:
    """How many choices wait for rows or blocks now, and how many would if `arrivals` came too.

    Those that only wait for the next steps do not count. Found beginnings of prompts make them
    smaller, but what prompts of the queue will leave in the cache is not known yet.
    """
    kv = roster.kv
    begun = [holder for one in roster.running for holder in one.holders]
    outlook = Outlook(roster, num_owed_blocks(begun, kv))
    num_waiting = roster.num_waiting
    leaders = {one.id for one in roster.running}  # whose other choices come in with them
    starting: set[str] = set()
    for request in _in_order(roster.waiting, outlook):
        if outlook.takes(request.num_rows, _num_blocks(request, kv), request.num_times_passed):
            num_waiting -= 1
            leaders.add(request.id)
            starting.add(request.id)
    num_written = kv.kv_plan.num_written_blocks  # more than what a choice shares with its first
    for family in roster.families:
        if family.leader is not None and family.leader.id in leaders:
            twins = [one.id for one in family.held if outlook.takes(1, num_written)]
            num_waiting -= len(twins)
            starting.update(twins)
    num_before = num_waiting
    for source in arrivals:
        num_waiting += 1
        if outlook.is_over:
            continue
        if source.fork_of is not None:
            num_waiting -= source.fork_of in leaders and outlook.takes(1, num_written)
        elif outlook.takes(_num_rows_of_arrival(source), _num_blocks_of_arrival(source, kv)):
            num_waiting -= 1
            leaders.add(source.request_id)
    return Standing(num_before, num_waiting, frozenset(starting))


def _in_order(waiting: WaitingQueue, outlook: Outlook) -> Iterator[Request]:
    """Waiting requests as plans try them, as long as anybody may start."""
    if outlook.is_over:
        return
    count = outlook.num_rows + NUM_LOOKED_AT
    found = waiting.upcoming(count)
    yield from found
    if len(found) < min(count, len(waiting)) and not outlook.num_skipped:
        # Tenants that are ahead pass nobody, but they come after those before them have started.
        names = {request.id for request in found}
        others = (request for request in waiting if request.id not in names)
        yield from islice(others, count - len(found))


def _num_blocks(request: Request, kv: KVManager) -> int:
    """Free blocks that the admission of a waiting request takes."""
    family = request.family
    if family is not None and family.snapshot is not None and request.status is Status.WAITING:
        return kv.kv_plan.num_written_blocks
    return _num_taken(request.lead.table, kv)


def _num_blocks_of_arrival(source: EngineRequest, kv: KVManager) -> int:
    """The same for a request that is not live yet."""
    return _num_taken(
        kv.open_table(
            array("i", source.prompt_token_ids),
            root_keys=root_keys(source),
            reads_cache=not source.skip_prefix_cache,
        ),
        kv,
    )


def _num_taken(table: BlockTable, kv: KVManager) -> int:
    """Free blocks that an empty table, or one in host slots, takes for its known tokens."""
    num_tokens = len(table.token_ids)
    match = None if table.is_swapped else kv.match(table)
    num_blocks = kv.shortfall(table, num_tokens, match) + kv.num_free_blocks
    return min(num_blocks, kv.num_blocks_for(num_tokens))  # groups with a window take less at once


def _num_rows_of_arrival(source: EngineRequest) -> int:
    return 1 if source.beam is None else source.beam.beam_width
