"""Promises: blocks that are findable before the step that gives them their content has run.

Owns: which blocks were promised since the last commit, and by which table.
Does not know: why a step fails.
Used by: kvcache.manager.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from octavo.contracts.block_hash import BlockHash
from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.prefix_index import Content, PrefixIndex


class Promises:
    """Promised blocks can be shared, but not copied: copies come before computing."""

    def __init__(self, pool: BlockPool, index: PrefixIndex) -> None:
        self._pool = pool
        self._index = index
        self._owner_of: dict[int, BlockTable] = {}  # in the order of promising

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._owner_of

    @property
    def block_ids(self) -> Set[int]:
        """All promised blocks."""
        return self._owner_of.keys()

    def owners(self) -> Iterable[tuple[int, BlockTable]]:
        """(block id, table) of all promises."""
        return self._owner_of.items()

    def add(self, table: BlockTable, place: int, only_group: int | None = None) -> None:
        """The blocks of a table at a place are findable from now on, in all groups or in one.

        Not where another block with the same content is findable, and not behind a window.
        """
        block_hash, parent = table.hash_of(place), table.parent_of(place)
        tokens = table.tokens_of(place)
        for group, ids in enumerate(table.block_ids):
            if only_group not in {None, group} or ids[place] < 0:
                continue
            if self._index.add(Content(group, parent, block_hash, tokens), ids[place]):
                self._owner_of[ids[place]] = table

    def break_all(self, block_ids: Iterable[int]) -> None:
        """These get no content after all. Others than promised ones stay as they are."""
        broken = self._owner_of.keys() & set(block_ids)
        self._pool.forget(broken)
        for block_id in broken:
            del self._owner_of[block_id]

    def break_of(self, table: BlockTable) -> set[int]:
        """Break what one table promised; returns these blocks."""
        broken = {block_id for block_id, owner in self._owner_of.items() if owner is table}
        self.break_all(broken)
        return broken

    def keep(self) -> tuple[list[Content], list[BlockHash]]:
        """The step has run: all promises are true. Returns the contents and their roots."""
        contents, roots = [], []
        for block_id, table in self._owner_of.items():
            content = self._index.content_of(block_id)
            assert content is not None, f"block {block_id} was promised and is not findable"
            contents.append(content)
            roots.append(table.root)
        self._owner_of.clear()
        return contents, roots
