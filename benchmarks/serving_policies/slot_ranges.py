"""Contiguous ranges of KV blocks: first fit and buddy.

Owns: which ranges are free. Does not know: requests.

Both have external fragmentation: enough blocks may be free, and no hole large enough.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Protocol


class SlotRanges(Protocol):
    """Gives out runs of consecutive block ids."""

    @property
    def num_free(self) -> int:
        """Free blocks, in holes of any size."""

    def take(self, count: int) -> range | None:
        """`count` or more consecutive blocks; None if there is no such hole."""

    def give_back(self, blocks: range) -> None:
        """What `take` gave is free again."""


class FirstFit:
    """The lowest hole that is large enough, cut to size."""

    def __init__(self, num_blocks: int) -> None:
        self.num_free = num_blocks
        self._holes = [(0, num_blocks)]  # (begin, end), in order, never adjacent

    def take(self, count: int) -> range | None:
        """See `SlotRanges`. Exactly `count` blocks."""
        for place, (begin, end) in enumerate(self._holes):
            if end - begin >= count:
                self._holes[place : place + 1] = [(begin + count, end)] * (end - begin > count)
                self.num_free -= count
                return range(begin, begin + count)
        return None

    def give_back(self, blocks: range) -> None:
        """See `SlotRanges`. Joins neighbouring holes."""
        begin, end = blocks.start, blocks.stop
        self.num_free += end - begin
        place = bisect_left(self._holes, (begin, end))
        first, last = place, place
        if place and self._holes[place - 1][1] == begin:
            first, begin = place - 1, self._holes[place - 1][0]
        if place < len(self._holes) and self._holes[place][0] == end:
            last, end = place + 1, self._holes[place][1]
        self._holes[first:last] = [(begin, end)]


class Buddy:
    """Ranges of a power of two, as the PagedAttention paper assumes for Orca.

    A pool that is no power of two is cut into powers of two once, the largest first.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_free = num_blocks
        self._free: dict[int, list[int]] = {}  # size -> begins, in order
        self._roots: dict[int, int] = {}  # begin -> size, of the pieces of the pool
        begin = 0
        for power in range(num_blocks.bit_length() - 1, -1, -1):
            if num_blocks & (1 << power):
                self._roots[begin] = 1 << power
                self._free.setdefault(1 << power, []).append(begin)
                begin += 1 << power

    def take(self, count: int) -> range | None:
        """See `SlotRanges`. The next power of two."""
        wanted = 1 << max(count - 1, 0).bit_length()
        sizes = [size for size, begins in self._free.items() if size >= wanted and begins]
        if not sizes:
            return None
        size = min(sizes)
        begin = self._free[size].pop(0)
        while size > wanted:
            size //= 2
            insort(self._free.setdefault(size, []), begin + size)
        self.num_free -= wanted
        return range(begin, begin + wanted)

    def give_back(self, blocks: range) -> None:
        """See `SlotRanges`. Joins buddies that are both free."""
        begin, size = blocks.start, len(blocks)
        self.num_free += size
        root = max(start for start in self._roots if start <= begin)
        while size < self._roots[root]:
            buddy = root + ((begin - root) ^ size)
            free = self._free.setdefault(size, [])
            if buddy not in free:
                break
            free.remove(buddy)
            begin, size = min(begin, buddy), size * 2
        insort(self._free.setdefault(size, []), begin)
