"""A request holds the blocks of its state from its first token to its end, and writes all of them
in every step. Blocks of four tokens; -n in `windows` is a state of n blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from octavo.contracts.kv_plan import KVGroup, KVPlan
from octavo.kvcache.manager import TableEdit
from tests.kvcache.conftest import Tables
from tests.support.builders import make_kv_plan

MakeTables = Callable[..., Tables]


def test_a_state_takes_the_same_blocks_however_long_a_request_is(make_tables: MakeTables):
    tables = make_tables(12, windows=(0, -3))
    table = tables.compute(range(2))
    assert list(map(len, table.block_ids)) == [1, 3]
    table.token_ids.extend(range(2, 14))
    assert [edit.group for edit in tables.grow(table, 2, 9)] == [0, 0]
    tables.run()
    tables.grow(table, 9, 14)
    tables.run()
    assert list(map(len, table.block_ids)) == [4, 3]
    tables.free(table)
    assert tables.kv.num_used_blocks == 0


def test_nothing_of_a_finished_request_is_found(make_tables: MakeTables):
    """Its blocks hold the state after its last token and after no other."""
    tables = make_tables(12, windows=(0, -1), enable_prefix_caching=True)
    table = tables.compute(range(9))
    tables.free(table)
    assert tables.num_matched(range(9)) == 0
    assert tables.kv.pool.num_cached == 0


def test_a_request_without_room_for_its_state_is_not_admitted(make_tables: MakeTables):
    tables = make_tables(5, windows=(0, -3))
    tables.compute(range(4))
    late = tables.open(range(4))
    assert tables.kv.shortfall(late, 4) == 3
    assert tables.kv.admit(late, 4) is None


def test_who_writes_first_takes_a_copy_of_the_whole_state(make_tables: MakeTables):
    """And who writes last writes in place."""
    tables = make_tables(16, windows=(0, -2))
    parent = tables.compute(range(8))
    child = tables.fork(parent, 50)
    parent.token_ids.append(40)
    keys, state = [list(ids) for ids in parent.block_ids]
    edits = tables.grow(parent, 8, 9)
    assert edits[:2] == [TableEdit(1, place, parent.block_ids[1][place]) for place in (0, 1)]
    assert len(tables.grow(child, 8, 9)) == 1  # a block of keys and values
    moves = tables.run()
    assert moves.copy_from == state
    assert child.block_ids[1] == state
    assert child.block_ids[0][:2] == parent.block_ids[0][:2] == keys
    assert not parent.is_forked
    assert not child.is_forked


def test_all_of_the_state_of_a_short_request_is_copied(make_tables: MakeTables):
    """More blocks than its tokens fill."""
    tables = make_tables(16, windows=(0, -3))
    parent = tables.compute(range(2))
    child = tables.fork(parent, 50)
    state = list(parent.block_ids[1])
    tables.grow(child, 2, 3)
    assert tables.run().copy_from[1:] == state


def test_a_state_that_is_still_empty_is_not_copied(make_tables: MakeTables):
    tables = make_tables(16, windows=(-2,))
    parent = tables.open(range(4))
    tables.kv.admit(parent, 4)
    child = tables.fork(parent)
    tables.grow(parent, 0, 4)
    tables.grow(child, 0, 4)
    assert tables.run().copy_from == []
    assert set(parent.block_ids[0]).isdisjoint(child.block_ids[0])


def test_a_state_goes_to_host_slots_and_comes_back(make_tables: MakeTables):
    """With a fork that shares it: once there, once back, and then a copy for who writes first."""
    tables = make_tables(16, windows=(0, -2), num_host_slots=6)
    parent = tables.compute(range(6))
    child = tables.fork(parent, 50)
    parent.token_ids.append(40)
    assert tables.kv.swap_out(parent, 6)
    assert tables.kv.swap_out(child, 6)
    assert tables.kv.slots.num_used == 4
    tables.compute(range(100, 116))
    tables.run()
    assert tables.kv.swap_in(parent)
    # The last block of keys and values and both of the state are to be copied.
    assert tables.kv.shortfall(child, 7) == 3 - tables.kv.num_free_blocks
    assert tables.kv.swap_in(child)
    tables.grow(parent, 6, 7)
    tables.grow(child, 6, 7)
    moves = tables.run()
    assert len(moves.swap_in_to) == 4
    assert len(moves.copy_to) == 3


@pytest.mark.parametrize(
    ("windows", "num_tokens", "num_blocks"),
    [((0, -3), 0, 3), ((0, -3), 9, 6), ((-3,), 1000, 3), ((0, 5, -2), 100, 25 + 2 + 2)],
)
def test_the_blocks_of_a_request_are_counted_with_its_state(
    windows: tuple[int, ...], num_tokens: int, num_blocks: int
):
    assert make_kv_plan(windows=windows).num_blocks_for(num_tokens) == num_blocks


@pytest.mark.parametrize(
    ("windows", "num_tokens"),
    [((0, -3), 13 * 4), ((0, 0, -4), 6 * 4), ((0, -17), 0), ((-17,), 0), ((0, 5, -2), 12 * 4)],
)
def test_the_longest_request_leaves_room_for_its_state(windows: tuple[int, ...], num_tokens: int):
    """Of sixteen blocks."""
    assert make_kv_plan(windows=windows).num_tokens == num_tokens


def test_a_model_of_states_alone_takes_any_length():
    plan = make_kv_plan(windows=(-16,))
    assert plan.num_tokens > 1 << 30
    assert plan.num_blocks_for(plan.num_tokens) == 16


def test_one_token_writes_a_block_of_each_group_and_the_whole_state():
    groups = (KVGroup(), KVGroup(window=5), KVGroup(num_state_blocks=3))
    plan = KVPlan(num_blocks=1, block_size=4, bytes_per_block=1, groups=groups)
    assert plan.num_written_blocks == 5
    assert plan.state_group == 2
    assert [group.is_unbounded for group in groups] == [True, False, False]


def test_a_state_is_live_from_the_first_token_on(make_tables: MakeTables):
    """The end of the last block of keys and values is what is not used yet."""
    tables = make_tables(16, windows=(0, -2))
    table = tables.compute(range(6))
    assert tables.kv.occupancy([(table, 6)]) == (16, 14)
    snapshot = tables.kv.snapshot({"a": (table, 6)})
    assert snapshot.state_blocks == [0, 2]
    late = tables.open(range(3))
    tables.kv.admit(late, 3)
    assert tables.kv.occupancy([(table, 6), (late, 0)]) == (28, 14)
