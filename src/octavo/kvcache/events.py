"""Event log: what became findable and what no longer is, for routers that mirror the cache.

Owns: the events since the last `take`, in order, and which contents were reported as stored.
Does not know: who listens, time.
Used by: kvcache.manager, which makes one only if somebody listens.

A content is reported when the step that computes it has run, never before, so that what a failed
step promised is never seen outside.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from octavo.contracts.block_hash import BlockHash
from octavo.contracts.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from octavo.kvcache.prefix_index import Content

AnyKVEvent = BlockStored | BlockRemoved | AllBlocksCleared


class EventLog:
    """Events of one cache; blocks that follow one another in a chain share an event."""

    def __init__(self, block_size: int, num_groups: int) -> None:
        self._block_size = block_size
        self._num_groups = num_groups
        self._events: list[AnyKVEvent] = []
        self._reported: set[tuple[int, BlockHash]] = set()

    def stored(self, contents: Iterable[Content], roots: Iterable[BlockHash]) -> None:
        """These became findable. `roots[i]` is the root of the chain of content i."""
        last: BlockStored | None = None
        for content, root in sorted(
            zip(contents, roots, strict=True), key=lambda pair: pair[0].group
        ):
            group, parent, block_hash, token_ids = content
            if block_hash is None or (group, block_hash) in self._reported:
                continue
            self._reported.add((group, block_hash))
            if last and last.group_idx == self._group(group) and last.block_hashes[-1] == parent:
                last.block_hashes.append(block_hash)
                last.token_ids.extend(token_ids)
                continue
            last = self._event(content, block_hash, token_ids, is_first=parent == root)
            self._events.append(last)

    def removed(self, content: Content) -> None:
        """This cannot be found any more; nothing happens if it was never reported."""
        group, _parent, block_hash, _token_ids = content
        if block_hash is None or (group, block_hash) not in self._reported:
            return
        self._reported.remove((group, block_hash))
        last = self._events[-1] if self._events else None
        if isinstance(last, BlockRemoved) and last.group_idx == self._group(group):
            last.block_hashes.append(block_hash)
            return
        self._events.append(BlockRemoved([block_hash], group_idx=self._group(group)))

    def cleared(self) -> None:
        """Nothing can be found any more."""
        self._reported.clear()
        self._events.append(AllBlocksCleared())

    def take(self) -> list[AnyKVEvent]:
        """The events since the last call."""
        events, self._events = self._events, []
        return events

    def _event(
        self, content: Content, block_hash: BlockHash, token_ids: array[int], *, is_first: bool
    ) -> BlockStored:
        return BlockStored(
            block_hashes=[block_hash],
            parent_block_hash=None if is_first else content.parent,
            token_ids=token_ids.tolist(),
            block_size=self._block_size,
            group_idx=self._group(content.group),
        )

    def _group(self, group: int) -> int | None:
        """Models with one kind of layers have no groups to speak of."""
        return group if self._num_groups > 1 else None
