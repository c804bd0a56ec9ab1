"""A slow, obvious machine under a KV manager: it remembers what every slot of every block holds.

The entry of a token is stood for by all that it depends on: its group, the root of its chain, and
the tokens up to it. A request that reads another entry than its own would compute nonsense; here
it is an assertion.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.contracts.kv_tier import TierKey
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.manager import KVManager
from octavo.kvcache.moves import BlockMoves

Entry = tuple[int, bytes, tuple[int, ...]] | None
Row = tuple[BlockTable, int, int]  # computes tokens [start, end)


class SlowTier:
    """A tier in a dictionary. Writing ends when a test says so; what it reads is read then."""

    def __init__(self) -> None:
        self.contents: dict[TierKey, list[Entry]] = {}
        self.writing: list[tuple[TierKey, int]] = []
        self.damaged: set[TierKey] = set()
        self.is_slow = False  # nothing gets written for the time being
        self.slots: list[list[Entry]] = []

    def __contains__(self, key: TierKey) -> bool:
        return key in self.contents

    def load(self, key: TierKey, slot: int) -> bool:
        content = self.contents.get(key)
        if content is None or key in self.damaged:
            self.contents.pop(key, None)
            self.damaged.discard(key)
            return False
        self.slots[slot] = list(content)
        return True

    def store(self, key: TierKey, slot: int) -> None:
        self.writing.append((key, slot))

    def take_stored(self) -> list[int]:
        stored: list[int] = []
        if self.is_slow:
            return stored
        for key, slot in self.writing:
            self.contents[key] = list(self.slots[slot])
            stored.append(slot)
        self.writing.clear()
        return stored

    def clear(self) -> None:
        self.contents.clear()

    def close(self) -> None:
        self.take_stored()


class SlowMachine:
    """Blocks and host slots as lists of entries."""

    def __init__(self, kv: KVManager, tier: SlowTier | None = None) -> None:
        self.kv = kv
        size = kv.block_size
        self.blocks: list[list[Entry]] = [[None] * size for _ in range(kv.num_blocks)]
        self.slots: list[list[Entry]] = [[None] * size for _ in range(kv.slots.num_slots)]
        if tier is not None:
            tier.slots = self.slots

    def move(self, moves: BlockMoves) -> None:
        """In the order that the contract names."""
        for source, target in zip(moves.swap_out_from, moves.swap_out_to, strict=True):
            self.slots[target] = list(self.blocks[source])
        for source, target in zip(moves.swap_in_from, moves.swap_in_to, strict=True):
            self.blocks[target] = list(self.slots[source])
        for source, target in zip(moves.copy_from, moves.copy_to, strict=True):
            self.blocks[target] = list(self.blocks[source])

    def compute(self, rows: Iterable[Row], broken: Iterable[BlockTable] = ()) -> None:
        """All rows write, then all rows read. `broken` ones write nonsense and read nothing."""
        rows, broken_ids = list(rows), {id(table) for table in broken}
        for table, start, end in rows:
            for group, ids in enumerate(table.block_ids):
                if self.kv.groups[group].num_state_blocks:
                    self.carry(table, group, start, end)
                    continue
                for position in range(start, end):
                    place, offset = divmod(position, self.kv.block_size)
                    entry = None if id(table) in broken_ids else entry_of(table, group, position)
                    self.blocks[ids[place]][offset] = entry
        for table, start, end in rows:
            if id(table) not in broken_ids:
                self.check_visible(table, start, end)

    def carry(self, table: BlockTable, group: int, start: int, end: int) -> None:
        """The pieces of a state are those of the first `start` tokens; then of the first `end`."""
        for place, block_id in enumerate(table.block_ids[group]):
            if start:
                assert self.blocks[block_id][0] == piece_of(table, group, place, start), place
            self.blocks[block_id] = [piece_of(table, group, place, end)] * self.kv.block_size

    def check_visible(self, table: BlockTable, start: int, end: int) -> None:
        """The tokens from `start` on see their own entries, as far as those before `end` go."""
        for group, kind in enumerate(self.kv.groups):
            if kind.num_state_blocks:
                for place, block_id in enumerate(table.block_ids[group]):
                    assert self.blocks[block_id][0] == piece_of(table, group, place, end), place
                continue
            first = max(0, start - kind.window + 1) if kind.window else 0
            for position in range(first, end):
                place, offset = divmod(position, self.kv.block_size)
                block_id = table.block_ids[group][place]
                assert block_id >= 0, f"position {position} of group {group} is gone: {table}"
                found = self.blocks[block_id][offset]
                assert found == entry_of(table, group, position), f"position {position}: {found}"

    def check_findable(self) -> None:
        """Between two steps: whatever can be found is what it is said to be."""
        for block_id, content in self.kv.index:
            entries = self.blocks[block_id][: len(content.token_ids)]
            assert None not in entries, f"block {block_id} is findable with nothing in it"
            tokens = [entry[2][-1] for entry in entries if entry]
            assert tokens == list(content.token_ids), f"block {block_id}: {tokens}"
            assert {content.group} == {entry[0] for entry in entries if entry}


def entry_of(table: BlockTable, group: int, position: int) -> Entry:
    """What the slot of a token must hold."""
    return group, table.root, tuple(table.token_ids[: position + 1])


def piece_of(table: BlockTable, group: int, place: int, num_tokens: int) -> Entry:
    """What a block of a state must hold after so many tokens."""
    return group, place.to_bytes(1), tuple(table.token_ids[:num_tokens])


def longest_match(
    kv: KVManager, machine: SlowMachine, table: BlockTable, tier: SlowTier | None
) -> int:
    """The longest hit by trying all lengths from the top, each block by looking at all others.

    Blocks of the step in flight have nothing in the machine yet: their chain is in the index.
    """
    size = kv.block_size
    if not table.reads_cache:
        return 0
    for length in range(len(table.token_ids) - 1, 0, -1):
        if 0 < length % size < max(1, size // 8):
            continue
        groups = range(len(kv.groups))
        is_there = all(_group_has(kv, table, group, length, tier) for group in groups)
        if is_there and _num_from_tier(kv, table, length) <= kv.slots.num_free:
            return length
    return 0


def _needed(kv: KVManager, group: int, length: int) -> range:
    window = kv.groups[group].window
    first = max(0, length - window + 1) // kv.block_size if window else 0
    return range(first, length // kv.block_size)


def _has_block(kv: KVManager, table: BlockTable, group: int, place: int) -> bool:
    wanted = table.hash_of(place)
    return any(one.block_hash == wanted and one.group == group for _, one in kv.index)


def _group_has(
    kv: KVManager, table: BlockTable, group: int, length: int, tier: SlowTier | None
) -> bool:
    for place in _needed(kv, group, length):
        if _has_block(kv, table, group, place):
            continue
        if tier is None or table.hash_of(place) + group.to_bytes(4, "little") not in tier:
            return False
    place, num_more = divmod(length, kv.block_size)
    if not num_more:
        return True
    wanted = table.token_ids[place * kv.block_size : length]
    return any(
        one.group == group
        and one.parent == table.parent_of(place)
        and one.token_ids[:num_more] == wanted
        and block_id not in kv.promises
        for block_id, one in kv.index
    )


def _num_from_tier(kv: KVManager, table: BlockTable, length: int) -> int:
    return sum(
        not _has_block(kv, table, group, place)
        for group in range(len(kv.groups))
        for place in _needed(kv, group, length)
    )
