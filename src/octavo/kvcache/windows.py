"""Windows: blocks that no later token of a request sees go back to the pool.

Owns: when a block has left the window of its group.
Does not know: what is taken instead.
Used by: kvcache.manager.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.contracts.kv_plan import KVGroup
from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.block_table import GONE, BlockTable


class Windows:
    """The groups of a model that have a window; often there are none."""

    def __init__(self, groups: Sequence[KVGroup], block_size: int, pool: BlockPool) -> None:
        self.groups = [(idx, group) for idx, group in enumerate(groups) if group.window]
        self._block_size = block_size
        self._pool = pool

    def release_passed(self, table: BlockTable, num_computed: int) -> None:
        """Give back what no token from `num_computed` on sees; nothing is written there either."""
        for group, kind in self.groups:
            ids = table.block_ids[group]
            place = min(kind.first_place(num_computed, self._block_size), len(ids)) - 1
            passed = []
            while place >= 0 and ids[place] >= 0:
                passed.append(ids[place])
                ids[place] = GONE
                place -= 1
            passed.reverse()  # the oldest is reused first: the next hit needs those after it
            self._pool.release(passed)

    def num_passed(self, table: BlockTable, num_computed: int) -> int:
        """Blocks that `release_passed` would make free."""
        num_free = 0
        for group, kind in self.groups:
            ids = table.block_ids[group]
            place = min(kind.first_place(num_computed, self._block_size), len(ids)) - 1
            while place >= 0 and ids[place] >= 0:
                num_free += self._pool.ref_count(ids[place]) == 1
                place -= 1
        return num_free
