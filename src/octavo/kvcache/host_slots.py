"""Host slots: room for blocks outside the pool, in the machine's ordinary memory.

Owns: which slots are free, and how many hold on to each of the others.
Does not know: who holds a slot, what is in it.
Used by: kvcache.moves, kvcache.swapping, kvcache.tier_link.

A slot is held by a swapped-out table (several, if they shared the block), by a swap-in until its
step has run, or by the tier while it reads or writes the slot.
"""

from __future__ import annotations


class HostSlots:
    """Slots 0 to `num_slots - 1`, each as large as a block."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._ref_counts = [0] * num_slots
        self._free = list(range(num_slots - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Slots that nobody holds."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Slots that somebody holds."""
        return self.num_slots - len(self._free)

    def ref_count(self, slot: int) -> int:
        """How many hold this slot."""
        return self._ref_counts[slot]

    def take(self) -> int:
        """A free slot for one holder. There must be one."""
        assert self._free, f"all {self.num_slots} host slots are held"
        slot = self._free.pop()
        self._ref_counts[slot] = 1
        return slot

    def share(self, slot: int) -> None:
        """Add a holder to a slot that has one."""
        assert self._ref_counts[slot], f"slot {slot} is shared but nobody holds it"
        self._ref_counts[slot] += 1

    def release(self, slot: int) -> None:
        """Remove a holder."""
        assert self._ref_counts[slot], f"slot {slot} is released but nobody holds it"
        self._ref_counts[slot] -= 1
        if not self._ref_counts[slot]:
            self._free.append(slot)
