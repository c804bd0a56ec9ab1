"""Swapping: the blocks of a table move to host slots, and come back.

Owns: which blocks move, who shares what on the way out and on the way back.
Does not know: who must yield, what moving costs.
Used by: kvcache.manager.

Tables that share a block and leave in one step share its slot, and if they come back in one step
they share the block again. A block that a prefix match would still find does not move back: it is
shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from octavo.contracts.kv_plan import KVGroup
from octavo.kvcache.block_table import GONE, BlockTable
from octavo.kvcache.host_slots import HostSlots
from octavo.kvcache.moves import StepMoves
from octavo.kvcache.prefix_index import PrefixIndex


class Swapping:
    """Moves tables between one pool and its host slots. The caller changes the pool."""

    def __init__(
        self,
        index: PrefixIndex,
        slots: HostSlots,
        moves: StepMoves,
        groups: Sequence[KVGroup],
        block_size: int,
    ) -> None:
        self._index = index
        self._slots = slots
        self._moves = moves
        self._groups = groups
        self._block_size = block_size
        self.leaving: list[BlockTable] = []  # swapped out by the step in flight

    def out(self, table: BlockTable, num_computed: int, without_content: Set[int]) -> bool:
        """Give each block that matters a slot; the caller releases the blocks then.

        False, and nothing changes, if there are not enough slots or if a block gets its content
        only in the coming step.
        """
        places = self._places_that_matter(table, num_computed)
        block_ids = {block_id for ids in places for block_id in ids if block_id >= 0}
        moves = self._moves
        if not (moves.targets.isdisjoint(block_ids) and block_ids.isdisjoint(without_content)):
            return False
        num_new = sum([block_id not in moves.slot_of for block_id in block_ids])
        if not num_computed or not block_ids or num_new > self._slots.num_free:
            return False
        table.slots = [[self._slot_for(block_id) for block_id in ids] for ids in places]
        table.num_swapped_tokens = num_computed
        self.leaving.append(table)
        return True

    def num_blocks_to_return(self, table: BlockTable) -> tuple[int, list[int]]:
        """New blocks that `back` takes, and blocks that it shares instead."""
        shared, num_new = [], 0
        for group, slots in enumerate(table.slots):
            for place, slot in enumerate(slots):
                if slot < 0:
                    continue
                found = self._shared_block(table, group, place, slot)
                if found is None:
                    num_new += 1
                else:
                    shared.append(found)
        return num_new, shared

    def num_copies_after(self, table: BlockTable) -> int:
        """Blocks that the first `reserve` after `back` takes, since another table shares them."""
        num_computed = table.num_swapped_tokens
        return sum(
            [
                slots[place] in self._moves.block_of
                for kind, slots in zip(self._groups, table.slots, strict=True)
                for place in kind.written_places(num_computed, num_computed + 1, self._block_size)
                if place < len(slots)
            ]
        )

    def back(
        self,
        table: BlockTable,
        take_one: Callable[[], int],
        share: Callable[[Sequence[int]], None],
    ) -> None:
        """Turn the slots of a table into blocks. There are enough of them."""
        _, shared = self.num_blocks_to_return(table)
        share(shared)  # first, so that taking cannot evict them
        shared.reverse()
        for group, slots in enumerate(table.slots):
            ids = table.block_ids[group]
            for place, slot in enumerate(slots):
                if slot < 0:
                    ids.append(GONE)
                    continue
                if shared and self._shared_block(table, group, place, slot) == shared[-1]:
                    ids.append(shared.pop())
                    self._moves.release_slot(slot)
                    continue
                block_id = take_one()
                self._moves.swap_in(slot, block_id)
                ids.append(block_id)
        assert not shared, f"blocks {shared} were shared for nothing"
        self._forget_slots(table)

    def drop(self, table: BlockTable) -> None:
        """The content is not wanted any more."""
        for slot in table.held_slots():
            self._moves.release_slot(slot)
        self._forget_slots(table)

    def drop_leaving(self) -> None:
        """The step that should have filled the slots failed: those tables have nothing."""
        for table in list(self.leaving):
            self.drop(table)

    def _forget_slots(self, table: BlockTable) -> None:
        table.slots = []
        table.num_swapped_tokens = 0
        self.leaving = [other for other in self.leaving if other is not table]

    def _places_that_matter(self, table: BlockTable, num_computed: int) -> list[list[int]]:
        """For each group the blocks with computed tokens that a later token sees, else GONE."""
        places, size = [], self._block_size
        for kind, ids in zip(self._groups, table.block_ids, strict=True):
            first = kind.first_place(num_computed, size)
            end = min(kind.written_places(0, num_computed, size).stop, len(ids))
            places.append([GONE if idx < first else ids[idx] for idx in range(end)])
        return places

    def _slot_for(self, block_id: int) -> int:
        """The slot that this step's swap-out of a block goes to."""
        if block_id < 0:
            return GONE
        slot = self._moves.slot_of.get(block_id)
        if slot is not None:
            self._slots.share(slot)
            return slot
        slot = self._slots.take()
        self._moves.swap_out(block_id, slot)
        return slot

    def _shared_block(self, table: BlockTable, group: int, place: int, slot: int) -> int | None:
        """A block that has the content of a slot already, or gets it in this step."""
        if place < min(len(table.hashes), table.num_swapped_tokens // self._block_size):
            found = self._index.find(group, table.hashes[place])
            if found is not None:
                return found
        return self._moves.block_of.get(slot)
