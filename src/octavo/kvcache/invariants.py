"""What always holds for the blocks of one engine. Runs after every test of this column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from octavo.contracts.block_hash import BlockHash, block_hash
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.manager import KVManager


def check_pool(manager: KVManager, tables: Collection[BlockTable]) -> None:
    """Raise AssertionError unless the pool agrees with `tables`, all the open tables of the engine.

    Tables that only keep blocks for later forks are open tables too. Costs time in proportion to
    all blocks and all tokens: for tests and for a debug switch.
    """
    _check_homes(manager)
    _check_index(manager)
    _check_holders(manager, tables)
    _check_slots(manager, tables)
    _check_step(manager, tables)
    for table in tables:
        _check_table(manager, table)


def _check_homes(manager: KVManager) -> None:
    """Every block is in use or free, not both; only free blocks that are findable are kept."""
    pool, index = manager.pool, manager.index
    free = list(pool.free_blocks())
    is_free = set(free)
    assert len(free) == len(is_free), f"a block is free twice: {free}"
    assert len(free) == pool.num_free, f"{len(free)} free blocks, counted {pool.num_free}"
    for block_id in range(pool.num_blocks):
        is_used = pool.ref_count(block_id) > 0
        assert is_used != (block_id in is_free), f"block {block_id} has no home or two"
    is_findable = [block_id in index for block_id in free]
    expected = [False] * (len(free) - pool.num_cached) + [True] * pool.num_cached
    assert expected == is_findable, f"blank blocks come first, then findable ones: {free}"


def _check_index(manager: KVManager) -> None:
    """Every findable block is found, by its hash and as a child, under its own content only."""
    index, seen = manager.index, set[tuple[int, BlockHash]]()
    for block_id, content in index:
        group, parent, its_hash, token_ids = content
        assert 0 <= block_id < manager.num_blocks, f"no block {block_id}"
        assert 0 <= group < len(manager.groups), f"block {block_id}: no group {group}"
        children = [child for child, _ in index.all_children(group, parent)]
        assert block_id in children, f"block {block_id} is not among its siblings"
        if its_hash is None:
            assert 0 < len(token_ids) < manager.block_size, f"block {block_id} has no hash"
            continue
        assert its_hash == block_hash(parent, token_ids), f"block {block_id}: wrong hash"
        assert index.find(group, its_hash) == block_id, f"block {block_id} is not found by its hash"
        assert (group, its_hash) not in seen, f"block {block_id} is findable twice"
        seen.add((group, its_hash))
    assert index.num_hashes == len(seen), "a hash leads nowhere"
    assert index.num_children == len(index), "a child is not findable"


def _check_holders(manager: KVManager, tables: Collection[BlockTable]) -> None:
    """Reference counts are the tables that hold the block, and the copies that read it."""
    holders = Counter(block_id for table in tables for block_id in table.held_blocks())
    holders.update(manager.moves.num_pins)
    counted = {
        block_id: manager.pool.ref_count(block_id)
        for block_id in range(manager.num_blocks)
        if manager.pool.ref_count(block_id)
    }
    assert counted == dict(holders), f"counted {counted}, held {dict(holders)}"


def _check_slots(manager: KVManager, tables: Collection[BlockTable]) -> None:
    """A host slot is free or held: by swapped-out tables, by a swap-in, by the tier."""
    holders = Counter(slot for table in tables for slot in table.held_slots())
    holders.update(manager.moves.slots_read)
    if manager.link is not None:
        holders.update(manager.link.busy_slots)
    slots = manager.slots
    counted = {
        slot: slots.ref_count(slot) for slot in range(slots.num_slots) if slots.ref_count(slot)
    }
    assert counted == dict(holders), f"counted {counted}, held {dict(holders)}"
    assert slots.num_used == len(counted), f"{slots.num_used} slots used, counted {len(counted)}"


def _check_step(manager: KVManager, tables: Collection[BlockTable]) -> None:
    """What waits for the coming step: promises have an owner, tables that leave have slots."""
    for block_id, owner in manager.promises.owners():
        assert block_id in manager.index, f"block {block_id} was promised and is not findable"
        assert any(owner is table for table in tables), f"block {block_id}: its owner is gone"
    for table in manager.swapping.leaving:
        assert table.is_swapped, "a table leaves without slots"
    for block_id in manager.moves.targets:
        assert manager.pool.ref_count(block_id), f"block {block_id} is a target and nobody holds it"


def _check_table(manager: KVManager, table: BlockTable) -> None:
    """No block twice; hashes are those of the tokens; a findable block is found by them."""
    assert not (table.is_swapped and any(table.block_ids)), "blocks and slots at once"
    held = table.held_blocks()
    assert len(held) == len(set(held)), f"a block twice in one table: {table.block_ids}"
    parent = table.root
    for place, its_hash in enumerate(table.hashes):
        assert its_hash == block_hash(parent, table.tokens_of(place)), f"stale hash of {place}"
        parent = its_hash
    for group, (kind, ids) in enumerate(zip(manager.groups, table.block_ids, strict=True)):
        gone = [block_id < 0 for block_id in ids]
        assert gone == sorted(gone, reverse=True), f"a hole in group {group}: {ids}"
        assert kind.window or not any(gone), f"group {group} has no window: {ids}"
        is_whole = len(ids) in (0, kind.num_state_blocks)
        assert is_whole or not kind.num_state_blocks, f"group {group} has part of a state: {ids}"
        assert table.num_announced <= len(ids), "announced more blocks than there are"
        for place, block_id in enumerate(ids):
            _check_content(manager, table, group, place, block_id)


def _check_content(
    manager: KVManager, table: BlockTable, group: int, place: int, block_id: int
) -> None:
    """If a block can be found, then by what this table has in it."""
    content = manager.index.content_of(block_id)
    if content is None:
        return
    if table.is_forked and place >= table.num_announced:
        return  # the next `reserve` sees to it
    assert content.group == group, f"block {block_id} is found in group {content.group}"
    tokens = table.tokens_of(place)[: len(content.token_ids)]
    assert tokens == content.token_ids, f"block {block_id}: other tokens"
    if content.block_hash is None:
        return
    assert place < table.num_announced, f"block {block_id} is findable too early"
    assert place < len(table.hashes), f"block {block_id} is findable without a hash in its table"
    assert content.block_hash == table.hashes[place], f"block {block_id}: wrong hash"
