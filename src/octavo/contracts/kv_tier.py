"""What the deciding column asks of a slower tier of KV blocks, such as a disk.

Blocks go there by way of *host slots*: a step copies an evicted block into a slot (`swap_out`),
then `store` takes the slot's content away in the background; `load` fills a slot, and a step copies
it into a block (`swap_in`). A key is the block's chained hash and the number of its KV group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from octavo.contracts.block_hash import BlockHash

TierKey = bytes
"""A block hash followed by the number of the KV group, 4 bytes, little-endian."""


def tier_key(block_hash: BlockHash, group: int) -> TierKey:
    """The key of a block's content."""
    return block_hash + group.to_bytes(4, "little")


class KVTier(Protocol):
    """Blocks by key. A damaged or vanished entry is a miss, never an error."""

    def __contains__(self, key: TierKey) -> bool:
        """Whether `load` will probably succeed. Answers from memory, at once."""

    def load(self, key: TierKey, slot: int) -> bool:
        """Fill a host slot. False, and the entry is forgotten, if it is not there or not whole."""

    def store(self, key: TierKey, slot: int) -> None:
        """Write a host slot away in the background; it is busy until `take_stored` names it."""

    def take_stored(self) -> Sequence[int]:
        """Slots whose writing has ended, well or not, since the last call."""

    def clear(self) -> None:
        """Forget all entries, on disk too."""

    def close(self) -> None:
        """Finish writing what `store` was given. May be called twice."""
