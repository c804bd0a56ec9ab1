"""KV manager: the only door to the blocks.

Owns: the pool, the prefix index, which blocks were promised for the step in flight.
Does not know: queues, budgets, rows, what is in a block.
Used by: scheduling.

The life of a block in the hands of one request:

    match      full blocks of the request's beginning that are findable
    reserve    take them and as many free ones as its tokens need
    announce   the next step leaves the first n tokens computed: blocks that are full then are
               findable from now on, *before* the step runs, so that equal prompts of a step share
    commit     the step ran: what was announced is true
    retract    the step ran but not for this request: what it announced was never computed
    free       give all blocks back; the findable ones stay findable until they are reused

Why sharing within a step is right: for each layer, a step writes the KV entries of all its rows
before the attention of any row reads them. The sharer computes in the step of the owner or later.

Only full blocks are shared, and the last known token of a request is always computed, so nobody
writes into a block that another request reads. At most the known tokens less one, rounded down to
whole blocks, come from the cache.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from octavo.contracts.block_hash import root_hash, salt_keys
from octavo.contracts.kv_plan import KVPlan
from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.prefix_index import PrefixIndex


class KVManager:
    """Blocks of one engine. `invariants.check_pool` holds between any two calls."""

    def __init__(self, kv_plan: KVPlan, *, enable_prefix_caching: bool = True) -> None:
        self.block_size = kv_plan.block_size
        self.index = PrefixIndex()
        self.pool = BlockPool(kv_plan.num_blocks, self.index)
        self._enable_prefix_caching = enable_prefix_caching
        self._promised: list[tuple[BlockTable, int]] = []  # announced since the last commit
        self._unsalted_root = root_hash(kv_plan.block_size)

    @property
    def num_blocks(self) -> int:
        """Blocks in the pool."""
        return self.pool.num_blocks

    @property
    def num_free_blocks(self) -> int:
        """Blocks that nobody holds, the findable ones included."""
        return self.pool.num_free

    @property
    def num_used_blocks(self) -> int:
        """Blocks that some request holds."""
        return self.pool.num_used

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that the KV entries of `num_tokens` tokens fill, the last one maybe in part."""
        return -(-num_tokens // self.block_size)

    def open_table(
        self, token_ids: array[int], *, cache_salt: str | None = None, reads_cache: bool = True
    ) -> BlockTable:
        """An empty table for a request. `token_ids` is shared: it grows as the request does."""
        root = self._unsalted_root
        if cache_salt is not None:
            root = root_hash(self.block_size, salt_keys(cache_salt))
        reads_cache = reads_cache and self._enable_prefix_caching
        return BlockTable(token_ids, self.block_size, root, reads_cache=reads_cache)

    def match(self, table: BlockTable) -> list[int]:
        """The longest findable beginning of an empty table, without taking it."""
        matched: list[int] = []
        if not table.reads_cache:
            return matched
        find = self.index.find
        for block_idx in range((len(table.token_ids) - 1) // self.block_size):
            block_id = find(table.hash_of(block_idx))
            if block_id is None:
                break
            matched.append(block_id)
        return matched

    def shortfall(self, table: BlockTable, num_tokens: int, matched: Sequence[int] = ()) -> int:
        """Blocks that are missing for `reserve` with these arguments; 0 or less if it succeeds."""
        wanted = self.num_blocks_for(num_tokens) - len(table.block_ids) - len(matched)
        idle = sum([self.pool.ref_count(block_id) == 0 for block_id in matched])  # free until taken
        return wanted - (self.pool.num_free - idle)

    def reserve(
        self, table: BlockTable, num_tokens: int, matched: Sequence[int] = ()
    ) -> list[int] | None:
        """Make the table long enough for `num_tokens` tokens; returns the blocks it gained.

        `matched` comes from `match` just before, for an empty table. Takes all or nothing: None if
        there are not enough free blocks.
        """
        assert not (matched and table.block_ids), "only an empty table starts with matched blocks"
        if self.shortfall(table, num_tokens, matched) > 0:
            return None
        self.pool.share(matched)  # first, so that `take` cannot evict them
        num_new = self.num_blocks_for(num_tokens) - len(table.block_ids) - len(matched)
        gained = [*matched, *self.pool.take(max(num_new, 0))]
        table.block_ids += gained
        table.num_announced += len(matched)
        return gained

    def announce(self, table: BlockTable, num_tokens: int) -> None:
        """The next step leaves the first `num_tokens` tokens computed: full blocks are findable."""
        if not self._enable_prefix_caching:
            return
        for block_idx in range(table.num_announced, num_tokens // self.block_size):
            block_id = table.block_ids[block_idx]
            if self.index.add(table.hash_of(block_idx), block_id):
                self._promised.append((table, block_id))
            table.num_announced = block_idx + 1

    def commit(self) -> None:
        """The step ran: all that was announced, and not retracted, is computed."""
        self._promised.clear()

    def retract(self, table: BlockTable) -> set[int]:
        """The step did not compute what `table` announced. Call before `commit`.

        Those blocks stop being findable. Returns their ids: whoever else holds one of them shares
        content that does not exist.
        """
        lost = {block_id for owner, block_id in self._promised if owner is table}
        self.pool.forget(lost)
        self._promised = [promise for promise in self._promised if promise[0] is not table]
        return lost

    def free(self, table: BlockTable) -> None:
        """Give all blocks back, tail first: the end of a chain is reused before its beginning."""
        self.pool.release(reversed(table.block_ids))
        table.block_ids = []
        table.num_announced = 0

    def forget(self, table: BlockTable) -> None:
        """Make all blocks of this table unfindable, because their content is not to be trusted."""
        self.pool.forget(table.block_ids)

    def num_blocks_freed_by(
        self, tables: Iterable[BlockTable], kept: Collection[int] = ()
    ) -> list[int]:
        """Entry i: blocks, other than the `kept` ones, that freeing tables 0 to i makes free.

        A block that several tables share is free when the last of its holders is.
        """
        num_holders_freed: Counter[int] = Counter()
        num_freed, totals = 0, []
        for table in tables:
            for block_id in table.block_ids:
                num_holders_freed[block_id] += 1
                is_free = num_holders_freed[block_id] == self.pool.ref_count(block_id)
                num_freed += is_free and block_id not in kept
            totals.append(num_freed)
        return totals

    def reset(self) -> bool:
        """Make every block unfindable. False, and nothing happens, while any block is in use."""
        if self.pool.num_used:
            return False
        self.pool.forget_all()
        return True
