"""Events let a router mirror the cache. Blocks of four tokens."""

from __future__ import annotations

from collections.abc import Callable

from octavo.contracts.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from tests.kvcache.conftest import Tables


def test_blocks_of_a_chain_are_stored_in_one_event(make_tables: Callable[..., Tables]):
    tables = make_tables(collects_events=True)
    table = tables.compute(range(10))
    assert tables.kv.take_events() == [
        BlockStored(table.hashes, None, list(range(8)), block_size=4)
    ]
    assert tables.kv.take_events() == []


def test_a_later_block_names_its_parent(make_tables: Callable[..., Tables]):
    tables = make_tables(collects_events=True)
    table = tables.compute(range(4))
    table.token_ids.extend(range(4, 9))
    tables.kv.take_events()
    tables.grow(table, 4, 9)
    tables.run()
    first, second = table.hashes
    assert tables.kv.take_events() == [BlockStored([second], first, [4, 5, 6, 7], block_size=4)]


def test_nothing_is_reported_before_the_step_has_run(make_tables: Callable[..., Tables]):
    tables = make_tables(collects_events=True)
    table = tables.open(range(4))
    tables.admit(table)
    assert tables.kv.take_events() == []
    tables.kv.retract(table)
    tables.run()
    assert tables.kv.take_events() == []


def test_an_evicted_block_is_removed(make_tables: Callable[..., Tables]):
    tables = make_tables(2, collects_events=True)
    table = tables.compute(range(8))
    tables.free(table)
    tables.kv.take_events()
    tables.compute(range(100, 103))
    assert tables.kv.take_events() == [BlockRemoved([table.hashes[1]])]


def test_a_forgotten_block_is_removed(make_tables: Callable[..., Tables]):
    tables = make_tables(collects_events=True)
    table = tables.compute(range(8))
    tables.kv.take_events()
    tables.kv.forget(table)
    (event,) = tables.kv.take_events()
    assert isinstance(event, BlockRemoved)
    assert set(event.block_hashes) == set(table.hashes)


def test_a_reset_is_one_event(make_tables: Callable[..., Tables]):
    tables = make_tables(collects_events=True)
    tables.free(tables.compute(range(8)))
    tables.kv.take_events()
    assert tables.kv.reset()
    assert tables.kv.take_events() == [AllBlocksCleared()]


def test_groups_are_told_apart(make_tables: Callable[..., Tables]):
    tables = make_tables(windows=(0, 4), collects_events=True)
    tables.compute(range(8))
    events = tables.kv.take_events()
    assert [event.group_idx for event in events if isinstance(event, BlockStored)] == [0, 1]


def test_partial_blocks_are_no_news(make_tables: Callable[..., Tables]):
    """A router matches whole blocks only."""
    tables = make_tables(1, collects_events=True)
    tables.kv.free(tables.compute(range(3)), 3)
    tables.compute(range(50, 53))
    assert tables.kv.take_events() == []


def test_without_a_listener_nothing_is_collected(tables: Tables):
    tables.compute(range(8))
    assert tables.kv.take_events() == []
