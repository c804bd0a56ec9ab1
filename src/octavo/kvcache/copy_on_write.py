"""Copy-on-write: a table that will be written to stops sharing the blocks that are written.

Owns: which blocks are replaced, which lose their content instead.
Does not know: windows, where new blocks come from.
Used by: kvcache.manager.

A block is written in place if no other table holds it, even while a copy reads it in the same step:
copies come before computing. If it is findable with tokens that are computed again now, it is found
no more until it is announced anew.
"""

from __future__ import annotations

from collections.abc import Callable

from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.moves import StepMoves
from octavo.kvcache.prefix_index import PrefixIndex


class CopyOnWrite:
    """Works on one table at a time; the caller makes sure that there are enough free blocks."""

    def __init__(self, pool: BlockPool, index: PrefixIndex, moves: StepMoves) -> None:
        self._pool = pool
        self._index = index
        self._moves = moves

    def shared_places(self, table: BlockTable, first: int, end: int) -> list[tuple[int, int]]:
        """(group, place) of blocks at places [first, end) that other tables hold as well."""
        return [
            (group, place)
            for group, ids in enumerate(table.block_ids)
            for place in range(first, min(end, len(ids)))
            if ids[place] >= 0 and self._moves.num_holders(ids[place]) > 1
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
            if num_computed > place * table.block_size:
                self._moves.copy(old, new)
            else:
                self._pool.release([old])

    def own(self, table: BlockTable, num_computed: int, end: int) -> None:
        """After `replace`: nobody finds what is written from now on, up to the place `end`."""
        first = num_computed // table.block_size
        for ids in table.block_ids:
            for place in range(first, min(end, len(ids))):
                content = self._index.content_of(ids[place])
                if content is None:
                    continue
                num_kept = num_computed - place * table.block_size
                if content.block_hash is not None or len(content.token_ids) > num_kept:
                    self._pool.forget([ids[place]])
        table.num_announced = min(table.num_announced, first)
        table.is_forked = any(
            self._moves.num_holders(block_id) > 1 or block_id in self._index
            for ids in table.block_ids
            for block_id in ids[end:]
        )
