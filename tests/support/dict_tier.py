"""A KV tier in memory, for engines without a model: blocks of the scripted executor by key."""

from __future__ import annotations

from collections.abc import Sequence

from octavo.contracts.kv_tier import TierKey
from octavo.executor.scripted import Block


class DictTier:
    """Stores and loads at once. `lost` keys fail at the next `load`, as a damaged file does."""

    def __init__(self, slots: list[Block], kept: dict[TierKey, Block] | None = None) -> None:
        """`slots` are the executor's; `kept` survives the engine, as a folder does."""
        self.kept = {} if kept is None else kept
        self.lost: set[TierKey] = set()
        self.is_closed = False
        self._slots = slots
        self._stored: list[int] = []

    def __contains__(self, key: TierKey) -> bool:
        return key in self.kept

    def load(self, key: TierKey, slot: int) -> bool:
        """Fill a slot from the dictionary."""
        if key in self.lost:
            self.lost.discard(key)
            self.kept.pop(key, None)
        if key not in self.kept:
            return False
        self._slots[slot] = list(self.kept[key])
        return True

    def store(self, key: TierKey, slot: int) -> None:
        """Keep what the slot holds."""
        self.kept[key] = list(self._slots[slot])
        self._stored.append(slot)

    def take_stored(self) -> Sequence[int]:
        """All slots given to `store` since the last call."""
        stored, self._stored = self._stored, []
        return stored

    def clear(self) -> None:
        """Forget everything."""
        self.kept.clear()

    def close(self) -> None:
        """Nothing is in the background."""
        self.is_closed = True
