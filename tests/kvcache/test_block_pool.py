"""The block pool: homes of blocks, order of reuse; and the same against a slow, obvious twin."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.prefix_index import Content, PrefixIndex
from tests.kvcache.contents import content


def make_pool(num_blocks: int) -> tuple[BlockPool, PrefixIndex]:
    index = PrefixIndex()
    return BlockPool(num_blocks, index), index


def test_a_new_pool_gives_low_block_numbers_first():
    pool, _ = make_pool(4)
    assert pool.take(3) == [0, 1, 2]
    assert pool.num_free == 1
    assert pool.num_used == 3


def test_blank_blocks_are_reused_before_cached_ones():
    """A cached block may still save somebody a prefill."""
    pool, index = make_pool(3)
    kept, blank, other = pool.take(3)
    index.add(content(b"kept"), kept)
    pool.release([kept, blank, other])
    assert {blank, other} == set(pool.take(2))
    assert [kept] == pool.take(1)


def test_the_least_recently_released_cached_block_is_reused_first():
    pool, index = make_pool(3)
    for block_id in pool.take(3):
        index.add(content(bytes([block_id])), block_id)
    pool.release([1])
    pool.release([2, 0])
    assert pool.take(3) == [1, 2, 0]


def test_a_cached_block_loses_its_hash_when_it_is_reused_and_not_before():
    pool, index = make_pool(1)
    pool.take(1)
    index.add(content(b"content"), 0)
    pool.release([0])
    assert index.find(0, b"content") == 0
    pool.take(1)
    assert index.find(0, b"content") is None


def test_sharing_a_cached_block_takes_it_out_of_the_free_ones():
    pool, index = make_pool(2)
    pool.take(1)
    index.add(content(b"content"), 0)
    pool.release([0])
    pool.share([0])
    assert pool.num_free == 1
    assert pool.take(1) == [1]


def test_a_block_is_free_when_its_last_holder_releases_it():
    pool, _ = make_pool(1)
    pool.take(1)
    pool.share([0])
    pool.release([0])
    assert pool.num_free == 0
    pool.release([0])
    assert pool.num_free == 1


def test_a_forgotten_free_block_becomes_blank():
    """Else it would wait among the cached ones without a hash."""
    pool, index = make_pool(2)
    pool.take(2)
    index.add(content(b"zero"), 0)
    index.add(content(b"one"), 1)
    pool.release([0, 1])
    pool.forget([1])
    assert list(pool.free_blocks()) == [1, 0]
    assert pool.num_cached == 1


def test_who_loses_its_content_is_told_by_reuse_or_by_forgetting():
    pool, index = make_pool(2)
    evicted: list[tuple[int, Content]] = []
    forgotten: list[Content] = []
    pool.on_evict = lambda block_id, lost: evicted.append((block_id, lost))
    pool.on_forget = forgotten.append
    pool.take(2)
    index.add(content(b"zero"), 0)
    index.add(content(b"one"), 1)
    pool.release([0, 1])
    pool.forget([1])
    pool.take(2)
    assert forgotten == [content(b"one")]
    assert evicted == [(0, content(b"zero"))]


def test_a_shared_block_is_freed_with_its_last_holder():
    pool, _ = make_pool(3)
    pool.take(3)
    pool.share([0])
    assert pool.num_freed_by([[0, 1], [0, 2]]) == [1, 3]
    assert pool.num_freed_by([[0, 1], [0, 2]], kept=[0]) == [1, 2]


def test_releasing_a_block_that_nobody_holds_is_caught():
    pool, _ = make_pool(1)
    with pytest.raises(AssertionError, match="nobody holds it"):
        pool.release([0])


def test_taking_more_than_is_free_is_caught():
    pool, _ = make_pool(1)
    with pytest.raises(AssertionError, match="2 blocks wanted, 1 free"):
        pool.take(2)


class SlowPool:
    """The rules in the plainest form: lists, searched from the start."""

    def __init__(self, num_blocks: int) -> None:
        self.blank = list(range(num_blocks))  # next one first
        self.cached: list[int] = []  # next one first
        self.holders = [0] * num_blocks
        self.findable: set[int] = set()

    def take(self) -> int:
        home = self.blank or self.cached
        block_id = home.pop(0)
        self.findable.discard(block_id)
        self.holders[block_id] = 1
        return block_id

    def share(self, block_id: int) -> None:
        if block_id in self.cached:
            self.cached.remove(block_id)
        self.holders[block_id] += 1

    def release(self, block_id: int) -> None:
        self.holders[block_id] -= 1
        if self.holders[block_id] == 0 and block_id in self.findable:
            self.cached.append(block_id)
        elif self.holders[block_id] == 0:
            self.blank.insert(0, block_id)

    def forget(self, block_id: int) -> None:
        self.findable.discard(block_id)
        if block_id in self.cached:
            self.cached.remove(block_id)
            self.blank.insert(0, block_id)


class PoolAgainstTwin(RuleBasedStateMachine):
    """Any sequence of calls leaves the pool and its twin in the same state."""

    @initialize(num_blocks=st.integers(1, 6))
    def start(self, num_blocks: int) -> None:
        self.pool, self.index = make_pool(num_blocks)
        self.twin = SlowPool(num_blocks)

    def blocks(self, *, held: bool) -> list[int]:
        return [block for block, count in enumerate(self.twin.holders) if (count > 0) == held]

    @precondition(lambda self: self.pool.num_free)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, self.pool.num_free))
        assert [self.twin.take() for _ in range(count)] == self.pool.take(count)

    @precondition(lambda self: any(self.twin.holders) or self.twin.cached)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        block_id = data.draw(st.sampled_from(self.blocks(held=True) + self.twin.cached))
        self.twin.share(block_id)
        self.pool.share([block_id])

    @precondition(lambda self: any(self.twin.holders))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        held = st.lists(st.sampled_from(self.blocks(held=True)), min_size=1, unique=True)
        block_ids = data.draw(held)
        for block_id in block_ids:
            self.twin.release(block_id)
        self.pool.release(block_ids)

    @precondition(lambda self: set(self.blocks(held=True)) - self.twin.findable)
    @rule(data=st.data())
    def make_findable(self, data: st.DataObject) -> None:
        candidates = sorted(set(self.blocks(held=True)) - self.twin.findable)
        block_id = data.draw(st.sampled_from(candidates))
        self.twin.findable.add(block_id)
        assert self.index.add(content(bytes([block_id])), block_id)

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        block_id = data.draw(st.integers(0, len(self.twin.holders) - 1))
        self.twin.forget(block_id)
        self.pool.forget([block_id])

    @precondition(lambda self: not any(self.twin.holders))
    @rule()
    def forget_all(self) -> None:
        for block_id in list(self.twin.cached):
            self.twin.forget(block_id)
        self.pool.forget_all()

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "twin"):
            return
        assert self.twin.blank + self.twin.cached == list(self.pool.free_blocks())
        assert len(self.twin.cached) == self.pool.num_cached
        assert self.twin.findable == {block_id for block_id, _ in self.index}
        counts = [self.pool.ref_count(block) for block in range(self.pool.num_blocks)]
        assert self.twin.holders == counts


TestPoolAgainstTwin = PoolAgainstTwin.TestCase
TestPoolAgainstTwin.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
