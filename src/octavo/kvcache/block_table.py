"""Block table: the blocks of one request, in order.

Owns: the block ids and the hashes of the full blocks, each computed once in the request's life.
Does not know: the pool. Only the KV manager changes a table; scheduling reads `block_ids`.
"""

from __future__ import annotations

from array import array

from octavo.contracts.block_hash import BlockHash, block_hash


class BlockTable:
    """Made by `KVManager.open_table`, one per request, empty while the request waits.

    Span of one request's tokens by the state of their KV entries, between two steps:
        [0, computed)                    computed; full blocks are findable
        [computed, capacity)             reserved, content undefined
    """

    __slots__ = (
        "block_ids",
        "block_size",
        "hashes",
        "num_announced",
        "reads_cache",
        "root",
        "token_ids",
    )

    def __init__(
        self, token_ids: array[int], block_size: int, root: BlockHash, *, reads_cache: bool
    ) -> None:
        self.token_ids = token_ids  # the request's own array, which grows
        self.block_size = block_size
        self.root = root  # parent of the first block's hash
        self.reads_cache = reads_cache
        self.block_ids: list[int] = []
        self.hashes: list[BlockHash] = []  # of the first full blocks, as far as anyone asked
        self.num_announced = 0  # first blocks whose content is computed, or will be in this step

    def hash_of(self, block_idx: int) -> BlockHash:
        """The chained hash of the block at `block_idx`; all its tokens must be known."""
        hashes, block_size = self.hashes, self.block_size
        for idx in range(len(hashes), block_idx + 1):
            parent = hashes[-1] if hashes else self.root
            tokens = self.token_ids[idx * block_size : (idx + 1) * block_size]
            assert len(tokens) == block_size, f"block {idx} is not full"
            hashes.append(block_hash(parent, tokens))
        return hashes[block_idx]
