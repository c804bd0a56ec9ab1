"""Prefix index: which block holds the content that a hash stands for, and what follows what.

Owns: the pairing of contents and blocks, one to one for full blocks; the children of each block.
Does not know: requests, reference counts, whether a block is free.
Used by: kvcache.block_pool, kvcache.matching, kvcache.manager.

A full block is found by its hash and its KV group. It is found as a *child* as well: by the hash of
the block before it, so that a prompt that diverges inside it can copy the common part. The last
block of a request that has ended, full only in part, is found as a child only.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from octavo.contracts.block_hash import BlockHash

MAX_CHILDREN = 8
"""Children of one parent that a search looks at, the newest first. Bounds the time of a search."""


class Content(NamedTuple):
    """What a findable block holds."""

    group: int  # KV group
    parent: BlockHash  # of the block before it, or the root
    block_hash: BlockHash | None  # None: only the first `len(token_ids)` slots are filled
    token_ids: array[int]


class PrefixIndex:
    """content <-> block id. A block that is in here is *findable*."""

    def __init__(self, num_groups: int = 1) -> None:
        self._block_of: list[dict[BlockHash, int]] = [{} for _ in range(num_groups)]
        self._children: list[dict[BlockHash, dict[int, None]]] = [{} for _ in range(num_groups)]
        self._content_of: dict[int, Content] = {}

    def __len__(self) -> int:
        return len(self._content_of)

    @property
    def num_hashes(self) -> int:
        """Contents that `find` finds."""
        return sum(map(len, self._block_of))

    @property
    def num_children(self) -> int:
        """Blocks that are listed as the child of some parent."""
        return sum([len(siblings) for group in self._children for siblings in group.values()])

    def __contains__(self, block_id: int) -> bool:
        return block_id in self._content_of

    def __iter__(self) -> Iterator[tuple[int, Content]]:
        """All findable blocks, oldest first."""
        return iter(self._content_of.items())

    def find(self, group: int, block_hash: BlockHash) -> int | None:
        """The block with this content, if there is one."""
        return self._block_of[group].get(block_hash)

    def content_of(self, block_id: int) -> Content | None:
        """What a block holds, None if it is not findable."""
        return self._content_of.get(block_id)

    def children(self, group: int, parent: BlockHash) -> Iterator[tuple[int, array[int]]]:
        """Blocks that follow `parent` and their tokens: the newest `MAX_CHILDREN`, newest first."""
        return islice(self.all_children(group, parent), MAX_CHILDREN)

    def all_children(self, group: int, parent: BlockHash) -> Iterator[tuple[int, array[int]]]:
        """The same without a limit."""
        for block_id in reversed(self._children[group].get(parent, {})):
            yield block_id, self._content_of[block_id].token_ids

    def add(self, content: Content, block_id: int) -> bool:
        """Make a block findable. False if another full block with this content is: that one stays.

        A block that is findable in part may become findable as a full one.
        """
        group, parent, block_hash, _token_ids = content
        if block_hash is not None and block_hash in self._block_of[group]:
            return False
        old = self._content_of.get(block_id)
        if old is not None:
            assert old.block_hash is None, f"block {block_id} has a hash already"
            self.drop(block_id)
        if block_hash is not None:
            self._block_of[group][block_hash] = block_id
        self._content_of[block_id] = content
        siblings = self._children[group].get(parent)
        if siblings is None:
            self._children[group][parent] = {block_id: None}
        else:
            siblings[block_id] = None
        return True

    def drop(self, block_id: int) -> Content | None:
        """Make a block unfindable; returns what it held, None if it was not findable."""
        content = self._content_of.pop(block_id, None)
        if content is None:
            return None
        group, parent, block_hash, _token_ids = content
        if block_hash is not None:
            del self._block_of[group][block_hash]
        siblings = self._children[group][parent]
        del siblings[block_id]
        if not siblings:
            del self._children[group][parent]
        return content

    def clear(self) -> None:
        """Make all blocks unfindable."""
        for group_blocks, group_children in zip(self._block_of, self._children, strict=True):
            group_blocks.clear()
            group_children.clear()
        self._content_of.clear()
