"""What the pool shows of itself. Blocks of four tokens."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from octavo.kvcache.snapshot import Occupancy
from tests.kvcache.conftest import Tables


def test_only_the_end_of_a_request_is_wasted(tables: Tables):
    table = tables.compute(range(9))
    assert tables.kv.occupancy([(table, 9)]) == Occupancy(num_allocated=12, num_live=9)


def test_blocks_for_tokens_that_are_not_computed_are_wasted(tables: Tables):
    table = tables.open(range(9))
    tables.admit(table, end=2)
    tables.run()
    assert tables.kv.occupancy([(table, 2)]) == Occupancy(num_allocated=12, num_live=2)


def test_a_shared_block_counts_once(tables: Tables):
    parent = tables.compute(range(10))
    child = tables.fork(parent, 50)
    assert tables.kv.occupancy([(parent, 10), (child, 10)]) == Occupancy(12, 10)


def test_blocks_behind_a_window_count_for_nothing(make_tables: Callable[..., Tables]):
    tables = make_tables(windows=(0, 4))
    table = tables.compute(range(12))
    table.token_ids.append(12)
    tables.grow(table, 12, 13)
    tables.run()
    assert tables.kv.occupancy([(table, 13)]) == Occupancy(24, 18)


def test_a_snapshot_tells_who_holds_what(make_tables: Callable[..., Tables]):
    tables = make_tables(8, num_host_slots=2)
    parent = tables.compute(range(6))
    child = tables.fork(parent, 50)
    done, out = tables.compute(range(100, 104)), tables.compute(range(200, 203))
    tables.free(done)
    assert tables.kv.swap_out(out, 3)
    tables.run()
    view = tables.kv.snapshot({"parent": (parent, 6), "child": (child, 6), "out": (out, 3)})
    assert (view.num_used_blocks, view.num_cached_blocks, view.num_blank_blocks) == (2, 1, 5)
    assert (view.num_host_slots, view.num_used_host_slots) == (2, 1)
    assert (view.num_allocated_slots, view.num_live_slots) == (8, 6)
    assert view.tables["child"].block_ids == parent.block_ids
    assert view.tables["out"].host_slots == out.slots
    assert view.shared_blocks == dict.fromkeys(parent.block_ids[0], 2)
    assert set(view.findable_blocks.values()) == {
        table.hashes[0].hex()[:12] for table in (parent, done)
    }
    assert msgspec.json.encode(view)
