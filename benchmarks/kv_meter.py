"""KV meter: what every slot of the KV pool is used for, read from the plans alone.

Owns: a copy of the block tables that the runner keeps, and the time average of each use.
Does not know: who made the plans. It is the same for every policy, so no policy counts itself.

A slot is room for the KV entries of one token. Each slot of the pool is, in any step,

    live          holds a computed token of a request that still runs
    reserved      taken for a token that its request will compute later
    never used    taken, but the request ends before it gets there, or has ended already
    lost          free, but not to be had: holes that are too small, rounding of the allocator
    free          free

"Reserved", "never used" (internal fragmentation) and "lost" (external fragmentation) are the parts
of Figure 2 of the PagedAttention paper.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from octavo.contracts.kv_plan import KVPlan
from octavo.contracts.step import NewRow, StepPlan

FinalLength = Callable[[str], int | None]
"""request id -> tokens, prompt and answer, with which it will end; None if nobody can know."""

_NO_BLOCK = -1  # in a table: a window has passed


class _Row:
    """One row of the runner."""

    __slots__ = ("final_len", "is_dead", "num_computed", "num_unneeded", "tables")

    def __init__(self, new: NewRow, final_len: int | None) -> None:
        self.tables = [list(table) for table in new.block_ids]
        self.num_computed = new.num_computed_tokens
        self.final_len = final_len
        self.num_unneeded = 0  # slots of the tables that the request will never use
        self.is_dead = False  # it ended, its blocks did not come back


@dataclass(frozen=True, slots=True)
class KVUse:
    """Averages over time. All but the last three are shares of the pool, between 0 and 1."""

    live: float
    reserved: float
    never_used: float
    lost: float
    free: float
    waste: float  # (reserved + never used) / (live + reserved + never used)
    sharing: float  # share of block table entries that needed no block of their own
    num_rows: float  # requests that compute in a step


class KVMeter:
    """Sees every plan before it runs, then is told how long the step took."""

    def __init__(self, kv_plan: KVPlan, final_len: FinalLength) -> None:
        self.num_lost_blocks = 0  # set by a policy that loses blocks without listing them
        # Computed tokens of all rows that have not ended, this step's included. A row that waits
        # for its next chunk is in it; there is at most a handful of them.
        self.num_context_tokens = 0
        self.num_live_slots = 0
        self._block_size = kv_plan.block_size
        self._num_blocks = kv_plan.num_blocks
        self._final_len = final_len
        self._rows: dict[int, _Row] = {}
        self._holders = [0] * kv_plan.num_blocks
        self._num_held = 0  # blocks with a holder
        self._num_entries = 0  # entries of all block tables
        self._num_unneeded = 0
        self._num_dead = 0  # entries of requests that ended but keep their blocks
        self._ended: list[int] = []  # rows that computed their last token in the step seen last
        self._num_step_rows = 0
        self._is_open = True
        self._seconds = 0.0
        self._sums = [0.0] * 7

    @property
    def live_rows(self) -> list[int]:
        """Rows that the runner holds now."""
        return list(self._rows)

    @property
    def num_held_blocks(self) -> int:
        """Blocks that some row holds now."""
        return self._num_held

    def see(self, plan: StepPlan) -> None:
        """Take in a plan that is about to run."""
        for row in plan.freed_rows:
            self._drop(row)
        self._bury_ended()
        for new in plan.new_rows:
            self._enter(new)
        for row, group, place, block_id in zip(
            plan.table_rows,
            plan.table_groups,
            plan.table_places,
            plan.table_block_ids,
            strict=True,
        ):
            self._edit(row, group, place, block_id)
        rows, num_total = self._rows, 0
        for number, num_tokens in zip(plan.rows, plan.num_tokens, strict=True):
            known = rows[number]
            known.num_computed += num_tokens
            num_total += num_tokens * len(known.tables)
            if known.num_computed + 1 == known.final_len:
                self._ended.append(number)
        self.num_live_slots += num_total
        self.num_context_tokens += plan.total_tokens
        self._num_step_rows = len(plan.rows)

    def spend(self, seconds: float) -> None:
        """The step of the plan seen last took so long."""
        if not self._is_open or seconds <= 0:
            return
        held = self._num_held * self._block_size
        live = self.num_live_slots - self._num_dead
        never = min(self._num_unneeded + self._num_dead, held - live)
        values = (
            live,
            held - live - never,
            never,
            self.num_lost_blocks * self._block_size,
            self._num_entries,
            self._num_entries - self._num_held,
            self._num_step_rows,
        )
        self._seconds += seconds
        self._sums = [
            total + value * seconds for total, value in zip(self._sums, values, strict=True)
        ]

    def close(self) -> None:
        """Stop counting: arrivals have ended, and a pool that drains says nothing."""
        self._is_open = False

    def averages(self) -> KVUse:
        """What was counted, over time."""
        seconds = self._seconds or 1.0
        pool = self._num_blocks * self._block_size * seconds
        live, reserved, never, lost, entries, shared, rows = self._sums
        return KVUse(
            live=live / pool,
            reserved=reserved / pool,
            never_used=never / pool,
            lost=lost / pool,
            free=1 - (live + reserved + never + lost) / pool,
            waste=(reserved + never) / ((live + reserved + never) or 1.0),
            sharing=shared / (entries or 1.0),
            num_rows=rows / seconds,
        )

    def _enter(self, new: NewRow) -> None:
        final_len = self._final_len(new.request_id)
        row = self._rows[new.row] = _Row(new, final_len)
        for table in row.tables:
            for place, block_id in enumerate(table):
                self._hold(row, place, block_id)
        self.num_context_tokens += row.num_computed
        self._count_unneeded(row)

    def _edit(self, number: int, group: int, place: int, block_id: int) -> None:
        row = self._rows[number]
        table = row.tables[group]
        if place < len(table):
            self._release(row, place, table[place])
            table[place] = block_id
        else:
            table.append(block_id)
        self._hold(row, place, block_id)
        self._count_unneeded(row)

    def _drop(self, number: int) -> None:
        row = self._rows.pop(number, None)
        if row is None:
            return
        for table in row.tables:
            for place, block_id in enumerate(table):
                self._release(row, place, block_id)
        self._num_unneeded -= row.num_unneeded
        if row.is_dead:
            self._num_dead -= row.num_computed
        else:
            self.num_context_tokens -= row.num_computed

    def _bury_ended(self) -> None:
        """Requests that ended and were not freed keep slots whose entries nobody needs."""
        for number in self._ended:
            row = self._rows.get(number)
            if row is not None:
                self._num_dead += row.num_computed
                self.num_context_tokens -= row.num_computed
                row.is_dead = True
        self._ended.clear()

    def _hold(self, row: _Row, place: int, block_id: int) -> None:
        if block_id == _NO_BLOCK:
            return
        self._num_entries += 1
        self._holders[block_id] += 1
        if self._holders[block_id] == 1:
            self._num_held += 1
            self.num_live_slots += self._filled(row, place)

    def _release(self, row: _Row, place: int, block_id: int) -> None:
        if block_id == _NO_BLOCK:
            return
        self._num_entries -= 1
        self._holders[block_id] -= 1
        if self._holders[block_id] == 0:
            self._num_held -= 1
            self.num_live_slots -= self._filled(row, place)

    def _filled(self, row: _Row, place: int) -> int:
        return min(max(row.num_computed - place * self._block_size, 0), self._block_size)

    def _count_unneeded(self, row: _Row) -> None:
        """The last token of an answer is never computed, so it needs no slot."""
        self._num_unneeded -= row.num_unneeded
        row.num_unneeded = 0
        if row.final_len is not None:
            for table in row.tables:
                surplus = len(table) * self._block_size - (row.final_len - 1)
                row.num_unneeded += max(0, surplus)
        self._num_unneeded += row.num_unneeded
