"""A prompt that diverges inside a block copies the common part. Blocks of four tokens."""

from __future__ import annotations

from collections.abc import Callable

from octavo.kvcache.prefix_index import MAX_CHILDREN
from tests.kvcache.conftest import Tables


def test_a_prompt_that_diverges_inside_a_block_copies_the_common_part(tables: Tables):
    first = tables.compute(range(10))
    second = tables.open([*range(6), 99, 99, 99])
    assert tables.admit(second) == 6
    moves = tables.run()
    assert moves.copy_from == [first.block_ids[0][1]]
    assert moves.copy_to == [second.block_ids[0][1]]
    assert first.block_ids[0][0] == second.block_ids[0][0]


def test_a_prompt_of_whole_blocks_computes_one_token_again(tables: Tables):
    first = tables.compute(range(8))
    second = tables.open(range(8))
    assert tables.admit(second) == 7
    assert tables.run().copy_from == [first.block_ids[0][1]]


def test_the_longest_common_part_wins(tables: Tables):
    tables.compute([0, 1, 9, 9])
    best = tables.compute([0, 1, 2, 9])
    tables.compute([0, 8, 8, 8])
    match = tables.kv.match(tables.open([0, 1, 2, 3, 4]))
    assert match.num_tokens == 3
    assert match.copied == best.block_ids[0]


def test_the_source_is_not_reused_before_the_step_has_run(make_tables: Callable[..., Tables]):
    """It is free but for the copy that reads it."""
    tables = make_tables(4)
    tables.free(tables.compute(range(4)))
    table = tables.open([0, 1, 2, 9, 9, 9, 9, 9])
    assert tables.admit(table) == 3
    assert tables.kv.num_free_blocks == 1
    tables.run()
    assert tables.kv.num_free_blocks == 2
    assert tables.num_matched(range(4)) == 3


def test_the_source_counts_in_the_shortfall(make_tables: Callable[..., Tables]):
    tables = make_tables(4)
    tables.free(tables.compute(range(4)))
    table = tables.open([0, 1, 2, *range(100, 113)])
    match = tables.kv.match(table)
    assert match.num_tokens == 3
    assert tables.kv.shortfall(table, 16, match) == 1
    assert tables.kv.admit(table, 16, match) is None
    assert tables.kv.shortfall(table, 16) == 0


def test_what_this_step_computes_is_not_copied_in_it(tables: Tables):
    """Copies come before computing: there is nothing to copy yet."""
    first, second = tables.open(range(8)), tables.open(range(8))
    tables.admit(first)
    assert tables.admit(second) == 4
    tables.run()
    assert tables.num_matched(range(8)) == 7


def test_an_evicted_block_is_no_source_any_more(make_tables: Callable[..., Tables]):
    tables = make_tables(2)
    tables.free(tables.compute(range(4)))
    tables.compute(range(100, 108))
    assert tables.num_matched([0, 1, 2, 9]) == 0


def test_the_exact_block_is_found_among_any_number_of_siblings(make_tables: Callable[..., Tables]):
    """A search looks at the newest few; an exactly repeated prompt needs no search."""
    tables = make_tables(MAX_CHILDREN + 4)
    for last in range(MAX_CHILDREN + 2):
        tables.compute([9, 9, last, 0])
    assert tables.num_matched([9, 9, 0, 0]) == 3


def test_the_partial_last_block_of_a_finished_request_serves_the_next_turn(tables: Tables):
    """A conversation goes on inside a block, for answers rarely end at its border."""
    first = tables.compute(range(10))
    tables.kv.free(first, 10)
    assert tables.num_matched([*range(10), 50, 51]) == 10
    assert tables.num_matched([*range(9), 50, 51]) == 9


def test_a_partial_block_is_kept_once(tables: Tables):
    for _ in range(2):
        table = tables.compute(range(6), reads_cache=False)
        tables.kv.free(table, 6)
    assert tables.kv.index.num_children == 2


def test_without_its_computed_tokens_a_partial_block_is_not_kept(tables: Tables):
    tables.free(tables.compute(range(10)))
    assert tables.num_matched([*range(10), 50]) == 8


def test_a_copy_for_a_trifle_is_not_made(make_tables: Callable[..., Tables]):
    """All prompts begin with the same token: that alone is not worth moving a block."""
    tables = make_tables(block_size=16)
    tables.compute(range(16))
    assert tables.num_matched([0, 99, 99]) == 0
    assert tables.num_matched([0, 1, 99]) == 2


def test_a_freed_admission_takes_its_copies_back(tables: Tables):
    """Freed before a plan carried them, the copies must not overwrite the blocks' next content."""
    tables.compute(range(10))
    table = tables.open([*range(6), 99, 99, 99])
    assert tables.kv.admit(table, 9, tables.kv.match(table)) == 6
    tables.free(table)
    assert tables.kv.take_moves().copy_to == []
    tables.run()
    assert tables.kv.num_used_blocks == 3
