"""Groups with a window give back what it left, and hits need only what is seen.

Blocks of four tokens; the first group of a pair sees all, the second one a window.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from octavo.contracts.kv_plan import KVGroup
from octavo.kvcache.block_table import GONE
from tests.kvcache.conftest import Tables


@pytest.mark.parametrize(
    ("window", "position", "place"), [(0, 99, 0), (4, 3, 0), (4, 6, 0), (4, 7, 1), (1, 8, 2)]
)
def test_the_first_block_that_a_token_sees(window: int, position: int, place: int):
    assert KVGroup(window=window).first_place(position, 4) == place


def test_blocks_behind_the_window_go_back_and_no_others(make_tables: Callable[..., Tables]):
    tables = make_tables(16, windows=(0, 6))
    table = tables.compute(range(12))
    table.token_ids.extend(range(12, 14))
    assert len(tables.grow(table, 12, 13)) == 2
    tables.run()
    full, windowed = table.block_ids
    assert GONE not in full
    assert [one == GONE for one in windowed] == [True, False, False, False]


def test_all_groups_share_one_pool(make_tables: Callable[..., Tables]):
    tables = make_tables(6, windows=(0, 8))
    table = tables.compute(range(12))
    assert tables.kv.num_used_blocks == 6
    table.token_ids.append(12)
    assert tables.grow(table, 12, 13) == [] if tables.kv.num_free_blocks else True
    assert tables.kv.reserve(table, 12, 13) is None
    assert tables.kv.num_free_blocks == 1  # what left the window is free even so


def test_a_request_much_longer_than_the_pool_runs_in_windows_alone(
    make_tables: Callable[..., Tables],
):
    tables = make_tables(3, windows=(5,))
    table = tables.open(range(4))
    tables.admit(table)
    tables.run()
    for position in range(4, 60):
        table.token_ids.append(position)
        tables.grow(table, position, position + 1)
        tables.run()
    assert tables.kv.num_used_blocks <= 2


def test_a_long_prompt_is_admitted_chunk_by_chunk(make_tables: Callable[..., Tables]):
    """The group with a window takes blocks for the first chunk only."""
    tables = make_tables(9, windows=(0, 4))
    table = tables.open(range(24))
    assert tables.kv.shortfall(table, 24) == 3
    assert tables.kv.shortfall(table, 24, chunk_end=8) == -1
    assert tables.kv.admit(table, 24, chunk_end=8) == 0
    tables.grant(table, 0, 8)
    tables.run()
    for start in (8, 16):
        tables.grow(table, start, start + 8)
        tables.run()
    assert tables.kv.num_used_blocks == 9


def test_fitting_says_how_far_a_chunk_can_go(make_tables: Callable[..., Tables]):
    tables = make_tables(8, windows=(0, 4))
    table = tables.open(range(20))
    assert tables.kv.admit(table, 20, chunk_end=4) == 0
    tables.grant(table, 0, 4)
    tables.run()
    assert tables.kv.fitting(table, 4, 20) == 12
    assert tables.kv.reserve(table, 4, 16) is None
    assert tables.kv.reserve(table, 4, 12) is not None


def test_a_hit_needs_only_the_blocks_that_the_next_token_sees(make_tables: Callable[..., Tables]):
    tables = make_tables(20, windows=(0, 4))
    first = tables.compute(range(16))
    first.token_ids.append(16)
    tables.grow(first, 16, 17)
    tables.run()
    second = tables.open([*range(16), 99])
    match = tables.kv.match(second)
    assert match.num_tokens == 16
    assert match.block_ids[1][:3] == [GONE] * 3
    assert tables.admit(second) == 16
    tables.run()


def test_a_block_missing_in_the_window_shortens_the_hit(make_tables: Callable[..., Tables]):
    """Behind the missing block the window never closes again; before it there may be a hit."""
    tables = make_tables(20, windows=(0, 4))
    table = tables.compute(range(16))
    tables.kv.pool.forget([table.block_ids[1][3]])
    assert tables.num_matched([*range(16), 99]) == 12
    tables.kv.pool.forget([table.block_ids[1][1]])
    assert tables.num_matched([*range(16), 99]) == 12
    tables.kv.pool.forget([table.block_ids[1][2]])
    assert tables.num_matched([*range(16), 99]) == 4
    tables.kv.pool.forget([table.block_ids[1][0]])
    assert tables.num_matched([*range(16), 99]) == 0


def test_a_partial_hit_needs_a_source_in_every_group(make_tables: Callable[..., Tables]):
    tables = make_tables(20, windows=(0, 4))
    table = tables.compute(range(12))
    other = tables.open([*range(10), 99, 99])
    assert tables.admit(other) == 10
    moves = tables.run()
    assert moves.copy_from == [ids[2] for ids in table.block_ids]
    tables.kv.pool.forget([table.block_ids[1][2], other.block_ids[1][2]])
    assert tables.num_matched([*range(10), 98, 98]) == 8


def test_forks_copy_in_every_group(make_tables: Callable[..., Tables]):
    tables = make_tables(20, windows=(0, 4, 8))
    parent = tables.compute(range(10))
    child = tables.fork(parent, 50)
    tables.grow(child, 10, 11)
    assert len(tables.run().copy_from) == 3


def test_blocks_that_left_the_window_stay_findable_until_they_are_reused(
    make_tables: Callable[..., Tables],
):
    tables = make_tables(20, windows=(0, 4))
    table = tables.compute(range(16))
    table.token_ids.append(16)
    tables.grow(table, 16, 17)
    tables.run()
    assert tables.num_matched([*range(8), 99]) == 8
