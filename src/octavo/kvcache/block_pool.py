"""Block pool: which KV blocks are in use, free, or free but worth keeping.

Owns: reference counts, the free blocks in the order in which they are reused.
Does not know: requests, tokens, hashes. Callers speak in block ids.
Used by: kvcache.manager only.

Every block has exactly one home:

    in use    somebody holds it (reference count above 0)
    blank     nobody holds it and it is not findable: reused first
    cached    nobody holds it but a prefix match can find it: reused last, least recently used first

All operations cost O(1) per block.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator

from octavo.kvcache.prefix_index import Content, PrefixIndex


class BlockPool:
    """The blocks of one engine, ids 0 to `num_blocks - 1`."""

    def __init__(self, num_blocks: int, index: PrefixIndex) -> None:
        self.num_blocks = num_blocks
        self._index = index
        self._ref_counts = [0] * num_blocks
        self._blank = list(range(num_blocks - 1, -1, -1))  # a stack: the warmest block is on top
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        # Called for each block that loses its content: by reuse, or because somebody forgot it.
        self.on_evict: Callable[[int, Content], None] | None = None
        self.on_forget: Callable[[Content], None] | None = None

    @property
    def num_free(self) -> int:
        """Blocks that `take` can give: nobody holds them."""
        return len(self._blank) + len(self._cached)

    @property
    def num_cached(self) -> int:
        """Free blocks that a prefix match can find."""
        return len(self._cached)

    @property
    def num_used(self) -> int:
        """Blocks that somebody holds."""
        return self.num_blocks - self.num_free

    def ref_count(self, block_id: int) -> int:
        """How many block tables hold this block."""
        return self._ref_counts[block_id]

    def free_blocks(self) -> Iterator[int]:
        """Free blocks in the order in which they would be reused."""
        yield from reversed(self._blank)
        yield from self._cached

    def take(self, count: int) -> list[int]:
        """Give `count` free blocks to one holder. A cached block loses its content now."""
        assert count <= self.num_free, f"{count} blocks wanted, {self.num_free} free"
        taken = []
        for _ in range(count):
            if self._blank:
                block_id = self._blank.pop()
            else:
                block_id, _none = self._cached.popitem(last=False)
                content = self._index.drop(block_id)
                if self.on_evict is not None and content is not None:
                    self.on_evict(block_id, content)
            self._ref_counts[block_id] = 1
            taken.append(block_id)
        return taken

    def share(self, block_ids: Iterable[int]) -> None:
        """Add a holder to blocks that are in use or cached."""
        for block_id in block_ids:
            if self._ref_counts[block_id] == 0:
                del self._cached[block_id]  # a blank block cannot be shared: KeyError is our fault
            self._ref_counts[block_id] += 1

    def release(self, block_ids: Iterable[int]) -> None:
        """Remove a holder, in order: of the blocks that become cached the first is reused first."""
        for block_id in block_ids:
            count = self._ref_counts[block_id] - 1
            assert count >= 0, f"block {block_id} is released but nobody holds it"
            self._ref_counts[block_id] = count
            if count:
                continue
            if block_id in self._index:
                self._cached[block_id] = None
            else:
                self._blank.append(block_id)

    def num_freed_by(
        self, holders: Iterable[Iterable[int]], kept: Collection[int] = ()
    ) -> list[int]:
        """Entry i: blocks, other than `kept` ones, that are free once holders 0 to i release."""
        num_released: Counter[int] = Counter()
        num_freed, totals = 0, []
        for block_ids in holders:
            for block_id in block_ids:
                num_released[block_id] += 1
                is_free = num_released[block_id] == self._ref_counts[block_id]
                num_freed += is_free and block_id not in kept
            totals.append(num_freed)
        return totals

    def forget(self, block_ids: Iterable[int]) -> None:
        """Make blocks unfindable; their holders keep them."""
        for block_id in block_ids:
            content = self._index.drop(block_id)
            if self.on_forget is not None and content is not None:
                self.on_forget(content)
            if block_id in self._cached:
                del self._cached[block_id]
                self._blank.append(block_id)

    def forget_all(self) -> None:
        """Make every block unfindable."""
        self._index.clear()
        self._blank.extend(self._cached)
        self._cached.clear()
