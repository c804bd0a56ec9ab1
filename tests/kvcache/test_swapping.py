"""Tables move to host slots and come back with the same entries. Blocks of four tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from octavo.kvcache.block_table import GONE
from tests.kvcache.conftest import Tables


@pytest.fixture
def tables(make_tables: Callable[..., Tables]) -> Tables:
    return make_tables(8, num_host_slots=4)


def come_back(tables: Tables, table: object, num_computed: int) -> None:
    """Swap in and compute what is missing."""
    assert tables.kv.swap_in(table)  # type: ignore[arg-type]
    tables.grow(table, num_computed, num_computed + 1)  # type: ignore[arg-type]


def test_a_table_goes_and_comes_back(make_tables: Callable[..., Tables]):
    tables = make_tables(8, num_host_slots=4, enable_prefix_caching=False)
    table = tables.compute(range(10))
    table.token_ids.append(10)
    assert tables.kv.swap_out(table, 10)
    assert table.is_swapped
    assert tables.kv.num_used_blocks == 0
    tables.compute(range(100, 132))
    tables.free(*tables.opened[1:])
    come_back(tables, table, 10)
    moves = tables.run()
    assert moves.swap_in_to == table.block_ids[0]
    assert tables.kv.slots.num_used == 0


def test_too_few_slots_change_nothing(tables: Tables):
    table = tables.compute(range(17))
    assert not tables.kv.swap_out(table, 17)
    assert tables.kv.num_used_blocks == 5
    assert tables.kv.slots.num_used == 0


def test_too_few_blocks_change_nothing(tables: Tables):
    table = tables.compute(range(10))
    assert tables.kv.swap_out(table, 10)
    tables.compute(range(100, 132))
    assert not tables.kv.swap_in(table)
    assert tables.kv.shortfall(table, 11) == 3
    assert table.is_swapped
    tables.run()


def test_what_is_still_findable_is_shared_and_not_moved(tables: Tables):
    table = tables.compute(range(10))
    held = list(table.block_ids[0])
    table.token_ids.append(10)
    assert tables.kv.swap_out(table, 10)
    tables.run()
    come_back(tables, table, 10)
    moves = tables.run()
    assert table.block_ids[0][:2] == held[:2]
    assert moves.swap_in_to == table.block_ids[0][2:]


def test_a_slot_that_is_read_in_a_step_is_not_filled_in_it(make_tables: Callable[..., Tables]):
    """Swap-outs come first: they would overwrite what is to come back."""
    tables = make_tables(4, num_host_slots=1, enable_prefix_caching=False)
    first, second = tables.compute(range(3)), tables.compute(range(50, 53))
    assert tables.kv.swap_out(first, 3)
    tables.run()
    first.token_ids.append(3)
    come_back(tables, first, 3)
    assert not tables.kv.swap_out(second, 3)
    tables.run()
    assert tables.kv.swap_out(second, 3)
    tables.run()


def test_forks_that_leave_together_share_their_slots(tables: Tables):
    parent = tables.compute(range(10))
    child = tables.fork(parent, 50)
    assert tables.kv.swap_out(parent, 10)
    assert tables.kv.swap_out(child, 10)
    assert tables.kv.slots.num_used == 3
    assert len(tables.run().swap_out_from) == 3


def test_forks_that_come_back_together_share_their_blocks(make_tables: Callable[..., Tables]):
    tables = make_tables(8, num_host_slots=4, enable_prefix_caching=False)
    parent = tables.compute(range(10))
    child = tables.fork(parent, 50)
    parent.token_ids.append(40)
    for table in (parent, child):
        assert tables.kv.swap_out(table, 10)
    tables.run()
    for table in (parent, child):
        assert tables.kv.shortfall(table, 11) <= 0
        come_back(tables, table, 10)
    moves = tables.run()
    assert len(moves.swap_in_to) == 3
    assert len(moves.copy_to) == 1
    assert tables.kv.num_used_blocks == 4


def test_what_gets_its_content_in_this_step_cannot_leave_in_it(tables: Tables):
    table = tables.open(range(8))
    tables.admit(table)
    assert not tables.kv.swap_out(table, 8)
    tables.run()
    assert tables.kv.swap_out(table, 8)
    tables.run()


def test_a_failed_step_loses_what_it_swapped_out(tables: Tables):
    """Nobody knows whether the slots were filled: the request is computed again."""
    gone, safe = tables.compute(range(6)), tables.compute(range(50, 56))
    assert tables.kv.swap_out(safe, 6)
    tables.run()
    assert tables.kv.swap_out(gone, 6)
    tables.kv.take_moves()
    tables.kv.fail_step()
    assert gone.is_empty
    assert safe.is_swapped
    assert tables.kv.slots.num_used == 2


def test_a_dropped_table_gives_its_slots_back(tables: Tables):
    table = tables.compute(range(10))
    assert tables.kv.swap_out(table, 10)
    tables.kv.drop_swapped(table)
    assert table.is_empty
    assert tables.kv.slots.num_free == 4
    assert tables.run().swap_out_to == []


def test_freeing_a_swapped_table_gives_its_slots_back(tables: Tables):
    table = tables.compute(range(10))
    assert tables.kv.swap_out(table, 10)
    tables.run()
    tables.free(table)
    assert tables.kv.slots.num_free == 4


def test_only_what_is_seen_moves(make_tables: Callable[..., Tables]):
    """Blocks behind the window are not worth a slot."""
    tables = make_tables(16, windows=(0, 4), num_host_slots=8)
    table = tables.compute(range(16))
    table.token_ids.append(16)
    assert tables.kv.swap_out(table, 16)
    assert [slot == GONE for slot in table.slots[1]] == [True, True, True, False]
    assert tables.kv.slots.num_used == 5
    tables.run()
    come_back(tables, table, 16)
    tables.run()


def test_a_swapped_table_that_is_back_is_findable_again(make_tables: Callable[..., Tables]):
    tables = make_tables(3, num_host_slots=4)
    table = tables.compute(range(8))
    table.token_ids.append(8)
    assert tables.kv.swap_out(table, 8)
    tables.free(tables.compute(range(100, 112)))
    come_back(tables, table, 8)
    tables.run()
    assert tables.num_matched(range(9)) == 8


def test_a_slot_that_is_free_again_is_not_filled_by_a_late_swap_out(tables: Tables):
    """Its next holder may fill it before the step runs: loads from a tier do."""
    table = tables.compute(range(8))
    table.token_ids.append(8)
    assert tables.kv.swap_out(table, 8)
    come_back(tables, table, 8)
    assert tables.kv.slots.num_used == 0
    assert tables.run().swap_out_to == []
