"""The KV manager: match, admit, reserve, announce, commit, retract, free. Blocks of four tokens."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest

from octavo.kvcache.manager import TableEdit
from tests.kvcache.conftest import Tables


def test_reserve_takes_as_many_blocks_as_the_tokens_need(tables: Tables):
    table = tables.compute(range(9))
    assert table.block_ids == [[0, 1, 2]]
    table.token_ids.extend(range(9, 14))
    assert tables.grow(table, 9, 12) == []
    assert tables.grow(table, 12, 13) == [TableEdit(0, 3, 3)]
    assert table.block_ids == [[0, 1, 2, 3]]


def test_admission_and_growth_take_all_or_nothing(tables: Tables):
    first = tables.compute(range(24))
    late = tables.open(range(100, 112))
    assert tables.kv.shortfall(late, 12) == 1
    assert tables.kv.admit(late, 12) is None
    assert late.is_empty
    assert tables.kv.reserve(first, 24, 36) is None
    assert tables.kv.num_free_blocks == 2


def test_an_equal_beginning_is_shared_and_not_copied(tables: Tables):
    first = tables.compute(range(10))
    second = tables.open([*range(8), 99, 99])
    assert tables.admit(second) == 8
    assert first.block_ids[0][:2] == second.block_ids[0][:2]
    assert first.block_ids[0][2] != second.block_ids[0][2]
    assert tables.kv.num_used_blocks == 4


@pytest.mark.parametrize("num_tokens", [1, 4, 5, 8, 9, 12])
def test_the_last_token_is_never_matched(tables: Tables, num_tokens: int):
    """Its logits are needed, so it is computed again: it alone, not its block."""
    tables.compute(range(12))
    assert tables.num_matched(range(num_tokens)) == num_tokens - 1


def test_blocks_are_findable_once_they_are_announced_even_before_the_step_ran(tables: Tables):
    """Two equal prompts in one step share."""
    first, second = tables.open(range(9)), tables.open(range(9))
    assert tables.admit(first) == 0
    assert tables.admit(second) == 8
    assert first.block_ids[0][:2] == second.block_ids[0][:2]
    tables.run()


def test_only_the_announced_chunk_is_findable(tables: Tables):
    """Blocks are reserved for the whole prompt, but content appears chunk by chunk."""
    first = tables.open(range(13))
    tables.admit(first, end=6)
    tables.run()
    assert tables.num_matched(range(13)) == 4


def test_blocks_stay_findable_after_they_are_free(tables: Tables):
    first = tables.compute(range(10))
    held = list(first.block_ids[0])
    tables.free(first)
    assert tables.kv.num_used_blocks == 0
    assert held[:2] == tables.compute(range(10)).block_ids[0][:2]


def test_the_end_of_a_chain_is_reused_before_its_beginning(tables: Tables):
    """A beginning without its end is still worth something; an end alone can never be matched."""
    tables.free(tables.compute(range(32)))
    other = tables.compute(range(100, 120))  # takes five of eight blocks
    assert tables.num_matched(range(32)) == 12
    tables.free(other)


def test_matched_blocks_are_not_reused_for_the_same_request(tables: Tables):
    """They are free until taken: taking must not evict what `match` has just found."""
    tables.free(tables.compute(range(32)))
    table = tables.open([*range(28), 99])
    match = tables.kv.match(table)
    assert tables.kv.shortfall(table, 29, match) == 0
    assert tables.admit(table) == 28
    assert match.block_ids[0] == table.block_ids[0][:7]


def test_matched_free_blocks_do_not_count_as_free_for_the_rest(tables: Tables):
    tables.free(tables.compute(range(32)))
    longer = tables.open(range(40))
    match = tables.kv.match(longer)
    assert match.num_tokens == 32
    assert tables.kv.shortfall(longer, 40, match) == 2


def test_a_table_that_skips_the_cache_does_not_read_but_writes(tables: Tables):
    tables.compute(range(10))
    tables.compute(range(100, 110), reads_cache=False)
    assert tables.num_matched(range(10), reads_cache=False) == 0
    assert tables.num_matched(range(100, 110)) == 8


def test_root_keys_separate(tables: Tables):
    """Equal prompts of different tenants share nothing, not even inside a block."""
    tables.compute(range(10), root_keys=(b"red",))
    assert tables.num_matched(range(10)) == 0
    assert tables.num_matched(range(10), root_keys=(b"blue",)) == 0
    assert tables.num_matched(range(10), root_keys=(b"red",)) == 8


def test_generated_tokens_are_findable_too(tables: Tables):
    """The next turn of a conversation begins with the answer of this one."""
    table = tables.compute(range(6))
    table.token_ids.extend([60, 61])
    tables.grow(table, 6, 8)
    tables.run()
    assert tables.num_matched([*range(6), 60, 61, 99]) == 8


def test_the_second_block_with_equal_content_stays_private(tables: Tables):
    first = tables.compute(range(10), reads_cache=False)
    second = tables.compute(range(10), reads_cache=False)
    assert not set(first.block_ids[0]) & set(second.block_ids[0])
    assert first.block_ids[0][:2] == tables.kv.match(tables.open(range(10))).block_ids[0]


def test_retracted_blocks_are_not_findable_and_are_named(tables: Tables):
    """The step failed for this request: what was announced for it does not exist."""
    table = tables.compute(range(6))
    table.token_ids.extend(range(6, 13))
    tables.grow(table, 6, 13)
    assert set(table.block_ids[0][1:3]) == tables.kv.retract(table)
    assert tables.num_matched(range(13)) == 4
    tables.rows.clear()
    tables.run()


def test_retracting_spares_what_others_announced(tables: Tables):
    owner, sharer = tables.open(range(9)), tables.open([*range(8), 70, 71, 72, 73, 74])
    tables.admit(owner)
    assert tables.admit(sharer) == 8
    assert {sharer.block_ids[0][2]} == tables.kv.retract(sharer)
    assert tables.num_matched(range(9)) == 8
    tables.run()


def test_what_was_committed_cannot_be_retracted(tables: Tables):
    table = tables.compute(range(9))
    assert set() == tables.kv.retract(table)
    assert tables.num_matched(range(9)) == 8


def test_forget_makes_all_blocks_of_a_table_unfindable(tables: Tables):
    table = tables.compute(range(9))
    tables.kv.forget(table)
    assert tables.num_matched(range(9)) == 0


def test_a_failed_step_has_computed_nothing(tables: Tables):
    """What it promised is not findable; what was there before is."""
    table = tables.compute(range(4))
    table.token_ids.extend(range(4, 9))
    tables.grow(table, 4, 9)
    tables.kv.take_moves()
    tables.kv.fail_step()
    tables.rows.clear()
    assert tables.num_matched(range(9)) == 4
    tables.check()


def test_reset_is_refused_while_a_block_is_in_use(tables: Tables):
    table = tables.compute(range(9))
    assert not tables.kv.reset()
    assert tables.num_matched(range(9)) == 8
    tables.free(table)
    assert tables.kv.reset()
    assert tables.num_matched(range(9)) == 0


def test_without_prefix_caching_nothing_is_findable(make_tables: Callable[..., Tables]):
    tables = make_tables(enable_prefix_caching=False)
    table = tables.compute(range(9))
    tables.kv.free(table, 9)
    assert tables.num_matched(range(9)) == 0
    assert len(tables.kv.index) == 0


def test_a_shared_block_counts_as_freed_with_its_last_holder(tables: Tables):
    """Two tables share two blocks and have one of their own each."""
    pair = [tables.compute(range(9)), tables.compute(range(9))]
    assert tables.kv.num_blocks_freed_by(pair) == [1, 4]
    assert tables.kv.num_blocks_freed_by(pair, kept=pair[0].block_ids[0][:2]) == [1, 2]


def test_each_full_block_is_hashed_once_in_the_life_of_a_request(tables: Tables):
    """Hashes survive a preemption: tokens are only ever appended."""
    table = tables.compute(range(9))
    before = table.hashes
    tables.free(table)
    tables.admit(table)
    tables.run()
    assert before is table.hashes
    assert len(table.hashes) == 2


def test_committing_moves_that_no_plan_carries_is_caught(tables: Tables):
    tables.compute(range(12))
    table = tables.open([*range(6), 99])
    tables.admit(table)
    with pytest.raises(AssertionError, match="no plan carries"):
        tables.kv.commit()


def test_a_table_of_many_tokens_is_hashed_as_the_contract_says(tables: Tables):
    table = tables.kv.open_table(array("i", range(8)))
    assert table.parent_of(0) == table.root
    assert table.parent_of(1) == table.hash_of(0)
