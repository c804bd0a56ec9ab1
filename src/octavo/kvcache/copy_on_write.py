"""Copy-on-write: a table that will be written to stops sharing the blocks that are written.

Owns: which blocks are replaced, which lose their content instead.
Does not know: windows, where new blocks come from.
Used by: kvcache.manager.

A block is written in place if no other table holds it, even while a copy reads it in the same step:
copies come before computing. If it is findable with tokens that are computed again now, it is found
no more until it is announced anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from octavo.contracts.kv_plan import KVGroup
from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.moves import StepMoves
from octavo.kvcache.prefix_index import PrefixIndex


class CopyOnWrite:
    """Works on one table at a time; the caller makes sure that there are enough free blocks."""

    def __init__(
        self,
        groups: Sequence[KVGroup],
        pool: BlockPool,
        index: PrefixIndex,
        moves: StepMoves,
    ) -> None:
        self._groups = groups
        self._pool = pool
        self._index = index
        self._moves = moves

    def shared_places(
        self, table: BlockTable, num_computed: int, num_tokens: int
    ) -> list[tuple[int, int]]:
        """(group, place) of blocks that computing tokens [num_computed, num_tokens) writes and
        that other tables hold as well."""
        size = table.block_size
        return [
            (group, place)
            for group, (kind, ids) in enumerate(zip(self._groups, table.block_ids, strict=True))
            for place in kind.written_places(num_computed, num_tokens, size)
            if place < len(ids) and ids[place] >= 0 and self._moves.num_holders(ids[place]) > 1
        ]

    def replace(
        self,
        table: BlockTable,
        shared: list[tuple[int, int]],
        num_computed: int,
        take_one: Callable[[], int],
    ) -> None:
        """Blocks of its own at the `shared` places, with the entries that are computed."""
        for group, place in shared:
            ids = table.block_ids[group]
            old, new = ids[place], take_one()
            ids[place] = new
            is_state = self._groups[group].num_state_blocks
            if num_computed > (0 if is_state else place * table.block_size):
                self._moves.copy(old, new)
            else:
                self._pool.release([old])

    def own(self, table: BlockTable, num_computed: int, num_tokens: int) -> None:
        """After `replace`: nobody finds what is written from now on, up to `num_tokens`."""
        size, unwritten = table.block_size, list[int]()
        for kind, ids in zip(self._groups, table.block_ids, strict=True):
            written = kind.written_places(num_computed, num_tokens, size)
            unwritten += ids[written.stop :]
            for place in range(written.start, min(written.stop, len(ids))):
                content = self._index.content_of(ids[place])
                if content is None:
                    continue
                num_kept = num_computed - place * size
                if content.block_hash is not None or len(content.token_ids) > num_kept:
                    self._pool.forget([ids[place]])
        table.num_announced = min(table.num_announced, num_computed // size)
        table.is_forked = any(
            self._moves.num_holders(block_id) > 1 or block_id in self._index
            for block_id in unwritten
        )
