"""Prefix index: which block holds the content that a hash stands for.

Owns: the pairing of hashes and blocks, one to one.
Does not know: requests, reference counts, whether a block is free.
Used by: kvcache.block_pool and kvcache.manager.
"""

from __future__ import annotations

from collections.abc import Iterator

from octavo.contracts.block_hash import BlockHash


class PrefixIndex:
    """hash <-> block id. A block that is in here is *findable*."""

    def __init__(self) -> None:
        self._block_of: dict[BlockHash, int] = {}
        self._hash_of: dict[int, BlockHash] = {}

    def __len__(self) -> int:
        return len(self._block_of)

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._hash_of

    def __iter__(self) -> Iterator[tuple[int, BlockHash]]:
        """All (block id, hash) pairs."""
        return iter(self._hash_of.items())

    def find(self, block_hash: BlockHash) -> int | None:
        """The block with this content, if there is one."""
        return self._block_of.get(block_hash)

    def add(self, block_hash: BlockHash, block_id: int) -> bool:
        """Make a block findable. False if another block with this content is: that one stays."""
        assert block_id not in self._hash_of, f"block {block_id} has a hash already"
        if block_hash in self._block_of:
            return False
        self._block_of[block_hash] = block_id
        self._hash_of[block_id] = block_hash
        return True

    def drop(self, block_id: int) -> None:
        """Make a block unfindable, if it was findable."""
        block_hash = self._hash_of.pop(block_id, None)
        if block_hash is not None:
            del self._block_of[block_hash]

    def clear(self) -> None:
        """Make all blocks unfindable."""
        self._block_of.clear()
        self._hash_of.clear()
