"""Forks share every block until somebody writes. Blocks of four tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from octavo.kvcache.manager import TableEdit
from tests.kvcache.conftest import Tables


def test_a_fork_shares_every_block(tables: Tables):
    parent = tables.compute(range(10))
    child = tables.fork(parent, 50)
    assert child.block_ids == parent.block_ids
    assert tables.kv.num_used_blocks == 3
    assert child.is_forked
    assert parent.is_forked


def test_the_first_to_write_copies_and_the_last_writes_in_place(tables: Tables):
    parent = tables.compute(range(10))
    children = [tables.fork(parent, 50), tables.fork(parent, 60)]
    parent.token_ids.append(40)
    shared = parent.block_ids[0][2]
    for table in (children[0], parent, children[1]):
        edits = tables.grow(table, 10, 11)
        assert len(edits) == (table is not children[1])
    moves = tables.run()
    assert moves.copy_from == [shared, shared]
    assert children[1].block_ids[0][2] == shared
    assert tables.kv.num_used_blocks == 5
    assert not any(table.is_forked for table in (parent, *children))


def test_the_edit_names_the_new_block(tables: Tables):
    parent = tables.compute(range(10))
    child = tables.fork(parent, 50)
    assert tables.grow(child, 10, 11) == [TableEdit(0, 2, child.block_ids[0][2])]
    tables.run()


def test_a_fork_at_the_border_of_a_block_copies_nothing(tables: Tables):
    parent = tables.compute(range(8))
    child = tables.fork(parent, 50)
    tables.grow(child, 8, 9)
    assert tables.run().copy_from == []
    assert child.block_ids[0][:2] == parent.block_ids[0]


def test_a_fork_in_the_step_that_computes_its_blocks(tables: Tables):
    """The other choices of a prompt enter with the first one; they copy one step later."""
    parent = tables.open(range(10))
    tables.admit(parent)
    child = tables.fork(parent)
    assert tables.run().copy_from == []
    parent.token_ids.append(40)
    child.token_ids.append(50)
    tables.grow(parent, 10, 11)
    tables.grow(child, 10, 11)
    assert len(tables.run().copy_from) == 1


def test_a_fork_needs_a_free_block_to_write(make_tables: Callable[..., Tables]):
    tables = make_tables(3)
    parent = tables.compute(range(10))
    child = tables.fork(parent, 50)
    assert tables.kv.reserve(child, 10, 11) is None
    assert tables.kv.fitting(child, 10, 11) <= 10
    tables.free(parent)
    assert tables.kv.reserve(child, 10, 11) == []
    tables.run()


@pytest.mark.parametrize(("num_tokens", "num_matched"), [(8, 7), (10, 8)])
def test_a_fork_may_compute_the_last_token_again(tables: Tables, num_tokens: int, num_matched: int):
    """It enters later than the prompt was computed and needs its logits."""
    snapshot = tables.compute(range(num_tokens))
    child = tables.fork(snapshot)
    tables.grow(child, num_tokens - 1, num_tokens)
    assert tables.run().copy_from == [snapshot.block_ids[0][-1]]
    assert tables.num_matched(range(num_tokens)) == num_matched


def test_a_findable_block_of_ones_own_is_not_findable_while_it_is_written(tables: Tables):
    """The last choice has the snapshot's blocks alone and computes the last token again."""
    snapshot = tables.compute(range(8))
    child = tables.fork(snapshot)
    tables.free(snapshot)
    assert tables.grow(child, 7, 8) == []
    assert child.block_ids[0][1] in tables.kv.promises
    assert tables.run().copy_from == []
    assert tables.num_matched([*range(8), 9]) == 8


def test_a_partial_block_that_a_sibling_left_findable_may_be_written_after_its_end(tables: Tables):
    parent = tables.compute(range(10))
    child = tables.fork(parent, 50)
    tables.kv.free(parent, 10)
    assert tables.grow(child, 10, 11) == []
    tables.run()
    assert tables.num_matched([*range(10), 70, 71]) == 10


def test_a_fork_ends_without_touching_the_other(tables: Tables):
    parent = tables.compute(range(10))
    child = tables.fork(parent, 50)
    tables.free(parent)
    assert tables.kv.num_used_blocks == 3
    tables.grow(child, 10, 11)
    tables.run()
    tables.free(child)
    assert tables.kv.num_used_blocks == 0


def test_forks_share_without_prefix_caching(make_tables: Callable[..., Tables]):
    tables = make_tables(enable_prefix_caching=False)
    parent = tables.compute(range(10))
    child = tables.fork(parent, 50)
    assert tables.kv.num_used_blocks == 3
    tables.grow(child, 10, 11)
    tables.run()
    assert tables.kv.num_used_blocks == 4


def test_full_blocks_of_a_fork_are_findable_by_its_own_tokens(tables: Tables):
    parent = tables.compute(range(6))
    child = tables.fork(parent, 60, 61)
    parent.token_ids.extend([70, 71])
    tables.grow(child, 6, 8)
    tables.grow(parent, 6, 8)
    tables.run()
    assert tables.num_matched([*range(6), 60, 61, 99]) == 8
    assert tables.num_matched([*range(6), 70, 71, 99]) == 8


def test_a_findable_block_ahead_is_not_written_when_a_fork_gets_there(tables: Tables):
    """Forks of forks that start over may have blocks ahead of them with what others computed."""
    first = tables.compute(range(8))
    second = tables.fork(first)
    third = tables.kv.fork(second, tables.open(range(4)).token_ids)
    tables.opened.append(third)
    tables.free(first, second)
    tables.grow(third, 3, 4)
    tables.run()
    third.token_ids.extend([50, 51])
    assert third.is_forked
    tables.grow(third, 4, 6)
    tables.run()
    assert tables.num_matched([*range(8), 99]) == 4
