"""Moves: the copies and swaps that the next step makes before it computes.

Owns: the moves since the last plan; the blocks and slots that they keep from being reused.
Does not know: why something moves.
Used by: kvcache.manager, kvcache.swapping, kvcache.tier_link.

A step swaps out, swaps in, copies, computes, in this order. Therefore:

    the source of a swap-out may be reused at once: whatever is written to it comes later
    the source of a copy is *pinned* until the step has run: a swap-in could overwrite it before.
        Who owns it alone otherwise may write to it in this step: computing comes after copying
    the slot of a swap-in is held until the step has run: a swap-out could overwrite it before
    the target of a swap-in or copy has no content yet: it cannot be swapped out before the step
"""

from __future__ import annotations

from typing import NamedTuple

from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.host_slots import HostSlots


class BlockMoves(NamedTuple):
    """Moves in the order in which they were decided; pairs of lists run in parallel."""

    swap_out_from: list[int]  # blocks
    swap_out_to: list[int]  # host slots
    swap_in_from: list[int]  # host slots
    swap_in_to: list[int]  # blocks
    copy_from: list[int]  # blocks
    copy_to: list[int]  # blocks

    @classmethod
    def none(cls) -> BlockMoves:
        """No moves."""
        return cls([], [], [], [], [], [])


class StepMoves:
    """The moves of the step that is being planned or run."""

    def __init__(self, pool: BlockPool, slots: HostSlots) -> None:
        self._pool = pool
        self._slots = slots
        self._pending = BlockMoves.none()
        self.num_pins: dict[int, int] = {}  # block id -> copies of this step that read it
        self.slots_read: list[int] = []  # held by swap-ins until the step has run
        self.targets: set[int] = set()  # blocks without content before the step
        self.slot_of: dict[int, int] = {}  # block -> slot, of this step's swap-outs
        self.block_of: dict[int, int] = {}  # slot -> block, of this step's swap-ins

    def num_holders(self, block_id: int) -> int:
        """Block tables that hold a block: its references without the pins."""
        return self._pool.ref_count(block_id) - self.num_pins.get(block_id, 0)

    def copy(self, source: int, target: int) -> None:
        """Copy a block that the caller holds; the reference becomes the pin."""
        self._pending.copy_from.append(source)
        self._pending.copy_to.append(target)
        self.num_pins[source] = self.num_pins.get(source, 0) + 1
        self.targets.add(target)

    def swap_out(self, block_id: int, slot: int) -> None:
        """Copy a block with content to a slot that the caller holds."""
        assert block_id not in self.targets, f"block {block_id} has no content yet"
        self._pending.swap_out_from.append(block_id)
        self._pending.swap_out_to.append(slot)
        self.slot_of[block_id] = slot

    def swap_in(self, slot: int, block_id: int) -> None:
        """Copy a slot to a block; the caller's hold on the slot passes to the step."""
        self._pending.swap_in_from.append(slot)
        self._pending.swap_in_to.append(block_id)
        self.slots_read.append(slot)
        self.targets.add(block_id)
        self.block_of[slot] = block_id

    def release_slot(self, slot: int) -> None:
        """Give a slot back. If it is free now, no swap-out may fill it: a load could come first."""
        self._slots.release(slot)
        if self._slots.ref_count(slot):
            return
        for block_id in [block_id for block_id, to in self.slot_of.items() if to == slot]:
            del self.slot_of[block_id]
        sources, ends = self._pending.swap_out_from, self._pending.swap_out_to
        while slot in ends:
            idx = ends.index(slot)
            del sources[idx], ends[idx]

    def cancel(self, block_ids: list[int]) -> set[int]:
        """Strike moves to blocks whose only holder gives them back before a plan carries them.

        Returns the blocks that get no content. The pins and slots that served them stay held until
        the next step has run.
        """
        pending = self._pending
        if not (pending.swap_in_to or pending.copy_to):
            return set()
        targets = {*pending.swap_in_to, *pending.copy_to}.intersection(block_ids)
        lost = {block_id for block_id in targets if self._pool.ref_count(block_id) == 1}
        self.targets -= lost
        self.block_of = {slot: to for slot, to in self.block_of.items() if to not in lost}
        for sources, ends in (
            (pending.swap_in_from, pending.swap_in_to),
            (pending.copy_from, pending.copy_to),
        ):
            kept = [pair for pair in zip(sources, ends, strict=True) if pair[1] not in lost]
            sources[:] = [source for source, _ in kept]
            ends[:] = [end for _, end in kept]
        return lost

    def take(self) -> BlockMoves:
        """What the plan must carry: the moves since the last call."""
        moves, self._pending = self._pending, BlockMoves.none()
        return moves

    def settle(self) -> None:
        """The step has run, or failed: nothing waits for a move any more."""
        self._pending = BlockMoves.none()
        if not (self.num_pins or self.slots_read or self.targets or self.slot_of):
            return
        for block_id, count in self.num_pins.items():
            self._pool.release([block_id] * count)
        for slot in self.slots_read:
            self._slots.release(slot)
        self.num_pins = {}
        self.slots_read = []
        self.targets.clear()
        self.slot_of.clear()
        self.block_of.clear()

    @property
    def num_pending(self) -> int:
        """Moves that no plan carries yet."""
        pending = self._pending
        return len(pending.swap_out_to) + len(pending.swap_in_to) + len(pending.copy_to)
