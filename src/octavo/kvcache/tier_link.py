"""Tier link: evicted blocks go down to a slower tier, matched ones come up, by way of host slots.

Owns: which slots the tier writes away, which contents are on their way down.
Does not know: files, checksums, limits of the tier.
Used by: kvcache.manager, kvcache.matching.

Down: a findable block that is reused is copied to a free slot by the coming step; when that has run
the tier writes the slot away in the background and names it when it is done. Without a free slot
the content is dropped. Up: the tier fills a slot, and a step copies it into a block.
"""

from __future__ import annotations

from octavo.contracts.block_hash import BlockHash
from octavo.contracts.kv_tier import KVTier, TierKey, tier_key
from octavo.kvcache.host_slots import HostSlots
from octavo.kvcache.moves import StepMoves
from octavo.kvcache.prefix_index import Content


class TierLink:
    """Between the pool and a tier. Counters only grow."""

    def __init__(self, tier: KVTier, slots: HostSlots, moves: StepMoves) -> None:
        self._tier = tier
        self._slots = slots
        self._moves = moves
        self._staged: dict[TierKey, int] = {}  # key -> slot that the coming step fills
        self._storing: dict[int, TierKey] = {}  # slot -> key that the tier writes away
        self._keys_storing: set[TierKey] = set()
        self._flushed: set[TierKey] = set()  # offered at the end, kept or not
        self.num_stored = 0  # blocks handed to the tier
        self.num_dropped = 0  # evicted without a free slot
        self.num_loaded = 0  # blocks that came back
        self.num_failed_loads = 0  # damaged or vanished entries

    @property
    def busy_slots(self) -> list[int]:
        """Slots held for the tier."""
        return [*self._staged.values(), *self._storing]

    def has(self, group: int, block_hash: BlockHash) -> bool:
        """Whether the tier will probably give this content."""
        return tier_key(block_hash, group) in self._tier

    def lacks(self, content: Content) -> bool:
        """Whether this is a full block that the tier neither has nor is given at the moment."""
        if content.block_hash is None:
            return False
        key = tier_key(content.block_hash, content.group)
        return not (key in self._staged or key in self._keys_storing or key in self._tier)

    def offer(self, block_id: int, content: Content) -> bool:
        """Send a block down with the coming step, if the tier lacks it. False: no slot is free."""
        if block_id in self._moves.targets or not self.lacks(content):
            return True
        self.poll()
        if not self._slots.num_free:
            self.num_dropped += 1
            return False
        assert content.block_hash is not None, "lacks() has seen to it"
        slot = self._slots.take()
        self._staged[tier_key(content.block_hash, content.group)] = slot
        self._moves.swap_out(block_id, slot)
        return True

    def flush(self, block_id: int, content: Content) -> bool:
        """`offer` what the tier lacks, at the end of an engine; whether it is sent.

        Once for each content: a tier that is full or cannot write would be offered it for ever.
        """
        if not self.lacks(content):
            return False
        assert content.block_hash is not None, "lacks() has seen to it"
        key = tier_key(content.block_hash, content.group)
        if key in self._flushed or not self.offer(block_id, content):
            return False
        self._flushed.add(key)
        return True

    def load(self, group: int, block_hash: BlockHash) -> int | None:
        """A slot with this content, held by the caller. None: it is not there after all."""
        slot = self._slots.take()
        if self._tier.load(tier_key(block_hash, group), slot):
            self.num_loaded += 1
            return slot
        self._slots.release(slot)
        self.num_failed_loads += 1
        return None

    def settle(self) -> None:
        """The step ran: the staged slots have their content."""
        for key, slot in self._staged.items():
            self._storing[slot] = key
            self._keys_storing.add(key)
            self._tier.store(key, slot)
            self.num_stored += 1
        self._staged.clear()
        self.poll()

    def drop_staged(self) -> None:
        """What is on its way down is not worth keeping, or never got into its slot."""
        for slot in self._staged.values():
            self._moves.release_slot(slot)
        self._staged.clear()

    def poll(self) -> None:
        """Take back the slots that the tier has written away."""
        if not self._storing:
            return
        for slot in self._tier.take_stored():
            self._keys_storing.discard(self._storing.pop(slot))
            self._slots.release(slot)

    def clear(self) -> None:
        """Forget everything below."""
        self.drop_staged()
        self._tier.clear()
