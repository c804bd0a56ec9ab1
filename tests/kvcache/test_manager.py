"""The KV manager: match, reserve, announce, commit, retract, free."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import pytest

from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.invariants import check_pool
from octavo.kvcache.manager import KVManager
from tests.support.builders import make_kv


class Tables:
    """A KV manager and all tables that a test opens; checked when the test ends."""

    def __init__(self, kv: KVManager) -> None:
        self.kv = kv
        self.opened: list[BlockTable] = []

    def open(self, token_ids: Iterable[int], **options: object) -> BlockTable:
        table = self.kv.open_table(array("i", token_ids), **options)  # type: ignore[arg-type]
        self.opened.append(table)
        return table

    def compute(self, token_ids: Iterable[int], **options: object) -> BlockTable:
        """A table of a request whose tokens were all computed in one step."""
        table = self.open(token_ids, **options)
        num_tokens = len(table.token_ids)
        assert self.kv.reserve(table, num_tokens, self.kv.match(table)) is not None
        self.kv.announce(table, num_tokens)
        self.kv.commit()
        return table


@pytest.fixture
def tables() -> Iterator[Tables]:
    """Eight blocks of four tokens."""
    made = Tables(make_kv(8, 4))
    yield made
    check_pool(made.kv, made.opened)


def test_reserve_takes_as_many_blocks_as_the_tokens_need(tables: Tables):
    table = tables.open(range(9))
    assert tables.kv.reserve(table, 9) == [0, 1, 2]
    assert tables.kv.reserve(table, 12) == []
    assert tables.kv.reserve(table, 13) == [3]
    assert table.block_ids == [0, 1, 2, 3]


def test_reserve_takes_all_or_nothing(tables: Tables):
    tables.kv.reserve(tables.open(range(24)), 24)
    late = tables.open(range(100, 112))
    assert tables.kv.shortfall(late, 12) == 1
    assert tables.kv.reserve(late, 12) is None
    assert late.block_ids == []
    assert tables.kv.num_free_blocks == 2


def test_an_equal_beginning_is_matched_in_full_blocks(tables: Tables):
    first = tables.compute(range(10))
    assert first.block_ids[:2] == tables.kv.match(tables.open([*range(10), 99]))
    assert first.block_ids[:1] == tables.kv.match(tables.open([*range(7), 99, 99]))


@pytest.mark.parametrize(("num_tokens", "num_matched"), [(8, 1), (9, 2), (4, 0), (5, 1)])
def test_the_last_token_is_never_matched(tables: Tables, num_tokens: int, num_matched: int):
    """Its logits are needed, so it is computed again; at most the known tokens less one match."""
    tables.compute(range(12))
    assert num_matched == len(tables.kv.match(tables.open(range(num_tokens))))


def test_a_matched_block_is_shared_and_not_copied(tables: Tables):
    first, second = tables.compute(range(10)), tables.compute(range(10))
    assert first.block_ids[:2] == second.block_ids[:2]
    assert first.block_ids[2] != second.block_ids[2]
    assert tables.kv.num_used_blocks == 4


def test_blocks_are_findable_once_they_are_announced_even_before_the_step_ran(tables: Tables):
    """Two equal prompts in one step share."""
    first = tables.open(range(9))
    tables.kv.reserve(first, 9)
    second = tables.open(range(9))
    assert tables.kv.match(second) == []
    tables.kv.announce(first, 9)
    assert first.block_ids[:2] == tables.kv.match(second)


def test_only_the_announced_chunk_is_findable(tables: Tables):
    """Blocks are reserved for the whole prompt, but content appears chunk by chunk."""
    first = tables.open(range(13))
    tables.kv.reserve(first, 13)
    tables.kv.announce(first, 6)
    assert first.block_ids[:1] == tables.kv.match(tables.open(range(13)))


def test_blocks_stay_findable_after_they_are_free(tables: Tables):
    first = tables.compute(range(10))
    held = list(first.block_ids)
    tables.kv.free(first)
    assert tables.kv.num_used_blocks == 0
    second = tables.compute(range(10))
    assert held[:2] == second.block_ids[:2]


def test_the_end_of_a_chain_is_reused_before_its_beginning(tables: Tables):
    """A beginning without its end is still worth something; an end alone can never be matched."""
    tables.kv.free(tables.compute(range(32)))
    other = tables.compute(range(100, 120))  # takes five of eight blocks
    assert len(tables.kv.match(tables.open(range(32)))) == 3
    tables.kv.free(other)


def test_matched_blocks_are_not_reused_for_the_same_request(tables: Tables):
    """They are free until taken: `take` must not evict what `match` has just found."""
    tables.kv.free(tables.compute(range(32)))
    table = tables.open(range(31))
    matched = tables.kv.match(table)
    assert len(matched) == 7
    assert tables.kv.shortfall(table, 31, matched) == 0
    tables.kv.reserve(table, 31, matched)
    assert matched == table.block_ids[:7]


def test_matched_free_blocks_do_not_count_as_free_for_the_rest(tables: Tables):
    tables.kv.free(tables.compute(range(32)))
    longer = tables.open(range(40))
    matched = tables.kv.match(longer)
    assert len(matched) == 8
    assert tables.kv.shortfall(longer, 40, matched) == 2


def test_a_table_that_skips_the_cache_does_not_read_but_writes(tables: Tables):
    tables.compute(range(10))
    skipping = tables.compute(range(100, 110), reads_cache=False)
    assert tables.kv.match(tables.open(range(10), reads_cache=False)) == []
    assert skipping.block_ids[:2] == tables.kv.match(tables.open(range(100, 110)))


def test_salts_separate(tables: Tables):
    """Equal prompts of different tenants share nothing, not even by timing."""
    red = tables.compute(range(10), cache_salt="red")
    assert tables.kv.match(tables.open(range(10))) == []
    assert tables.kv.match(tables.open(range(10), cache_salt="blue")) == []
    assert red.block_ids[:2] == tables.kv.match(tables.open(range(10), cache_salt="red"))


def test_generated_tokens_are_findable_too(tables: Tables):
    """The next turn of a conversation begins with the answer of this one."""
    table = tables.compute(range(6))
    table.token_ids.extend([60, 61])
    tables.kv.reserve(table, 8)
    tables.kv.announce(table, 8)
    tables.kv.commit()
    assert table.block_ids == tables.kv.match(tables.open([*range(6), 60, 61, 99]))


def test_the_second_block_with_equal_content_stays_private(tables: Tables):
    first = tables.compute(range(10), reads_cache=False)
    second = tables.compute(range(10), reads_cache=False)
    assert not set(first.block_ids) & set(second.block_ids)
    assert first.block_ids[:2] == tables.kv.match(tables.open(range(10)))


def test_retracted_blocks_are_not_findable_and_are_named(tables: Tables):
    """The step failed for this request: what was announced for it does not exist."""
    table = tables.compute(range(6))
    table.token_ids.extend(range(6, 13))
    tables.kv.reserve(table, 13)
    tables.kv.announce(table, 13)
    assert set(table.block_ids[1:3]) == tables.kv.retract(table)
    assert table.block_ids[:1] == tables.kv.match(tables.open(range(13)))


def test_retracting_spares_what_others_announced(tables: Tables):
    owner, sharer = tables.open(range(9)), tables.open([*range(8), 70, 71, 72, 73, 74])
    tables.kv.reserve(owner, 9)
    tables.kv.announce(owner, 9)
    tables.kv.reserve(sharer, 13, tables.kv.match(sharer))
    tables.kv.announce(sharer, 13)
    assert {sharer.block_ids[2]} == tables.kv.retract(sharer)
    assert owner.block_ids[:2] == tables.kv.match(tables.open(range(9)))


def test_what_was_committed_cannot_be_retracted(tables: Tables):
    table = tables.compute(range(9))
    assert set() == tables.kv.retract(table)
    assert len(tables.kv.match(tables.open(range(9)))) == 2


def test_forget_makes_all_blocks_of_a_table_unfindable(tables: Tables):
    table = tables.compute(range(9))
    tables.kv.forget(table)
    assert tables.kv.match(tables.open(range(9))) == []


def test_reset_is_refused_while_a_block_is_in_use(tables: Tables):
    table = tables.compute(range(9))
    assert not tables.kv.reset()
    assert len(tables.kv.match(tables.open(range(9)))) == 2
    tables.kv.free(table)
    assert tables.kv.reset()
    assert tables.kv.match(tables.open(range(9))) == []


def test_without_prefix_caching_nothing_is_findable():
    tables = Tables(make_kv(8, 4, enable_prefix_caching=False))
    tables.kv.free(tables.compute(range(9)))
    assert tables.kv.match(tables.open(range(9))) == []
    assert len(tables.kv.index) == 0
    check_pool(tables.kv, tables.opened)


def test_a_shared_block_counts_as_freed_with_its_last_holder(tables: Tables):
    """Two tables share two blocks and have one of their own each."""
    pair = [tables.compute(range(9)), tables.compute(range(9))]
    assert tables.kv.num_blocks_freed_by(pair) == [1, 4]
    assert tables.kv.num_blocks_freed_by(pair, kept=pair[0].block_ids[:2]) == [1, 2]


def test_each_full_block_is_hashed_once_in_the_life_of_a_request(tables: Tables):
    """Hashes survive a preemption: tokens are only ever appended."""
    table = tables.compute(range(9))
    before = table.hashes
    tables.kv.free(table)
    tables.kv.reserve(table, 9, tables.kv.match(table))
    tables.kv.announce(table, 9)
    tables.kv.commit()
    assert before is table.hashes
    assert len(table.hashes) == 2
