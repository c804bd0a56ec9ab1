"""Loading: the part of a match that only the tier has gets into host slots.

Owns: the slots filled for the admission that is going on.
Does not know: what the blocks are for.
Used by: kvcache.manager.
"""

from __future__ import annotations

from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.host_slots import HostSlots
from octavo.kvcache.matching import IN_TIER, PrefixMatch
from octavo.kvcache.tier_link import TierLink


class TierLoads:
    """Loads of one admission; it begins and ends without any."""

    def __init__(self, slots: HostSlots, link: TierLink | None) -> None:
        self._slots = slots
        self._link = link
        self._slot_of: dict[tuple[int, int], int] = {}  # (group, place) -> slot

    @property
    def num_held(self) -> int:
        """Slots that are filled."""
        return len(self._slot_of)

    def load(self, table: BlockTable, match: PrefixMatch) -> int | None:
        """Fill slots with the tier entries of a match; the place of one that failed, or None."""
        self._give_back_useless(match)
        if not match.num_from_tier:
            return None
        assert self._link is not None, "a match from no tier"
        for place in range(max(map(len, match.block_ids))):
            for group, ids in enumerate(match.block_ids):
                if place >= len(ids) or ids[place] != IN_TIER or (group, place) in self._slot_of:
                    continue
                slot = self._link.load(group, table.hash_of(place))
                if slot is None:
                    return place
                self._slot_of[group, place] = slot
        return None

    def take(self, group: int, place: int) -> int:
        """The slot that was filled for a place; the caller holds it now."""
        return self._slot_of.pop((group, place))

    def give_back(self) -> None:
        """The admission does not take place."""
        for slot in self._slot_of.values():
            self._slots.release(slot)
        self._slot_of.clear()

    def _give_back_useless(self, match: PrefixMatch) -> None:
        """Slots that were filled for a longer match and are of no use for this one."""
        for group, place in list(self._slot_of):
            ids = match.block_ids[group]
            if place >= len(ids) or ids[place] != IN_TIER:
                self._slots.release(self.take(group, place))
