"""What always holds for the blocks of one engine. Runs after every test of this column."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from octavo.contracts.block_hash import block_hash
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.manager import KVManager


def check_pool(manager: KVManager, tables: Collection[BlockTable]) -> None:
    """Raise AssertionError unless the pool agrees with `tables`, all the open tables of the engine.

    Costs time in proportion to all blocks and all tokens: for tests and for a debug switch.
    """
    _check_homes(manager)
    _check_holders(manager, tables)
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
    for block_id, its_hash in index:
        assert 0 <= block_id < pool.num_blocks, f"no block {block_id}"
        assert index.find(its_hash) == block_id, f"block {block_id} is not found by its hash"
    assert len(index) == len(list(index)), "two blocks under one hash"


def _check_holders(manager: KVManager, tables: Collection[BlockTable]) -> None:
    """Reference counts are the numbers of tables that hold the block."""
    holders = Counter(block_id for table in tables for block_id in table.block_ids)
    counted = {
        block_id: manager.pool.ref_count(block_id)
        for block_id in range(manager.num_blocks)
        if manager.pool.ref_count(block_id)
    }
    assert counted == dict(holders), f"counted {counted}, held {dict(holders)}"


def _check_table(manager: KVManager, table: BlockTable) -> None:
    """No block twice; hashes are those of the tokens; a findable block is found by them."""
    block_ids = table.block_ids
    assert len(block_ids) == len(set(block_ids)), f"a block twice in one table: {block_ids}"
    assert table.num_announced <= len(block_ids), "announced more blocks than there are"
    parent, hash_by_block = table.root, dict(manager.index)
    for block_idx, its_hash in enumerate(table.hashes):
        tokens = table.token_ids[block_idx * table.block_size : (block_idx + 1) * table.block_size]
        assert its_hash == block_hash(parent, tokens), f"stale hash of block {block_idx}"
        parent = its_hash
    for block_idx, block_id in enumerate(block_ids):
        if block_id not in hash_by_block:
            continue
        assert block_idx < table.num_announced, f"block {block_id} is findable too early"
        assert hash_by_block[block_id] == table.hashes[block_idx], f"block {block_id}: wrong hash"
