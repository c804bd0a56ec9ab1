"""Block table: the blocks of one request, in order, for each KV group.

Owns: the block ids, the host slots of a swapped-out request, and the hashes of the full blocks,
each computed once in the request's life.
Does not know: the pool. Only the KV manager changes a table; scheduling reads it.
"""

from __future__ import annotations

from array import array

from octavo.contracts.block_hash import BlockHash, block_hash

GONE = -1
"""In a table, instead of a block id: the block left the window and was given back."""


class BlockTable:
    """Made by `KVManager.open_table` or `fork`, one per request, empty while the request waits.

    Span of one request's tokens by the state of their KV entries, between two steps:
        [0, computed)                    computed; full blocks are findable
        [computed, capacity)             reserved, content undefined
    """

    __slots__ = (
        "block_ids",
        "block_size",
        "hashes",
        "is_forked",
        "num_announced",
        "num_swapped_tokens",
        "reads_cache",
        "root",
        "slots",
        "token_ids",
    )

    def __init__(
        self,
        token_ids: array[int],
        block_size: int,
        root: BlockHash,
        *,
        num_groups: int,
        reads_cache: bool,
    ) -> None:
        self.token_ids = token_ids  # the request's own array, which grows
        self.block_size = block_size
        self.root = root  # parent of the first block's hash
        self.reads_cache = reads_cache
        self.block_ids: list[list[int]] = [[] for _ in range(num_groups)]  # GONE behind a window
        self.slots: list[list[int]] = []  # while swapped out: like `block_ids`, of host slots
        self.num_swapped_tokens = 0  # computed tokens when it was swapped out
        self.hashes: list[BlockHash] = []  # of the first full blocks, as far as anyone asked
        self.num_announced = 0  # first blocks whose content is computed, or will be in this step
        # The block that is written next may be shared: `reserve` is due before the next token,
        # not only at the border of a block.
        self.is_forked = False

    @property
    def is_swapped(self) -> bool:
        """Whether the content waits in host slots; then there are no blocks."""
        return bool(self.slots)

    @property
    def is_empty(self) -> bool:
        """Whether the table holds nothing: no blocks, no slots."""
        return not (self.slots or any(self.block_ids))

    @property
    def num_places(self) -> int:
        """Blocks that the tokens with blocks fill in one group: the longest of the groups."""
        return max(map(len, self.block_ids))

    def held_blocks(self) -> list[int]:
        """Ids of all blocks of all groups, the last place first."""
        if len(self.block_ids) == 1:
            return [block_id for block_id in reversed(self.block_ids[0]) if block_id >= 0]
        return [
            ids[place]
            for place in range(self.num_places - 1, -1, -1)
            for ids in self.block_ids
            if place < len(ids) and ids[place] >= 0
        ]

    def held_slots(self) -> list[int]:
        """All host slots of all groups."""
        return [slot for slots in self.slots for slot in slots if slot >= 0]

    def parent_of(self, place: int) -> BlockHash:
        """The hash of the block before `place`, or the root."""
        return self.hash_of(place - 1) if place else self.root

    def tokens_of(self, place: int) -> array[int]:
        """The known tokens of the block at `place`."""
        return self.token_ids[place * self.block_size : (place + 1) * self.block_size]

    def hash_of(self, place: int) -> BlockHash:
        """The chained hash of the block at `place`; all its tokens must be known."""
        hashes = self.hashes
        for idx in range(len(hashes), place + 1):
            parent = hashes[-1] if hashes else self.root
            tokens = self.tokens_of(idx)
            assert len(tokens) == self.block_size, f"block {idx} is not full"
            hashes.append(block_hash(parent, tokens))
        return hashes[place]
