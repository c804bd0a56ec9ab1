"""Random histories of the KV manager on a machine that remembers what every slot holds.

Everything that a scheduler may do in any order: admit with partial hits, chunks, forks in and after
the step that computes them, copy-on-write, windows, swaps, tier, failing rows, failing steps.
"""

from __future__ import annotations

from array import array
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.contracts.kv_events import AllBlocksCleared, BlockStored
from octavo.contracts.kv_plan import KVGroup, KVPlan
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.invariants import check_pool
from octavo.kvcache.manager import KVManager
from octavo.kvcache.prefix_index import MAX_CHILDREN
from tests.kvcache.kv_machine import SlowMachine, SlowTier, longest_match

WINDOWS = [(0,), (0, 0), (3,), (0, 5), (0, 4, 9), (2, 6)]


class One:
    """A request: its tokens, its table, how far it is."""

    def __init__(self, table: BlockTable) -> None:
        self.table = table
        self.num_computed = 0
        self.is_running = False
        self.end = 0  # of the chunk in the coming step; 0: not in it
        self.twin: One | None = None  # whose row computes the entries of this one in the step

    @property
    def tokens(self) -> array[int]:
        return self.table.token_ids

    @property
    def is_in_step(self) -> bool:
        return bool(self.end) or self.twin is not None


class History:
    """Between two actions `check_pool` holds; after every step all entries are the right ones."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        caches = self.random.random() < 0.85
        self.tier = SlowTier() if caches and self.flips() else None
        plan = KVPlan(
            num_blocks=self.random.randint(4, 16),
            block_size=self.random.randint(1, 4),
            bytes_per_block=1,
            groups=tuple(KVGroup(window=window) for window in self.random.choice(WINDOWS)),
            num_host_slots=self.random.randint(0, 8),
        )
        self.kv = KVManager(
            plan, enable_prefix_caching=caches, tier=self.tier, collects_events=True
        )
        self.machine = SlowMachine(self.kv, self.tier)
        self.ones: list[One] = []
        self.prompts: list[list[int]] = []
        self.mirror: set[tuple[int | None, bytes]] = set()

    def run(self, num_actions: int) -> None:
        actions = [self.add, self.admit, self.admit, self.grow, self.grow, self.run_step,
                   self.run_step, self.leave, self.fork, self.swap_out, self.swap_in]  # fmt: skip
        rare = [self.fail_step, self.trouble_the_tier, self.reset, self.flush, self.leave_all]
        for _ in range(num_actions):
            self.random.choice(rare if self.random.random() < 0.06 else actions)()
            self.check()
        self.end()

    def flips(self) -> bool:
        return self.random.random() < 0.5

    def no_step(self) -> bool:
        return not any(one.is_in_step for one in self.ones)

    def check(self) -> None:
        check_pool(self.kv, [one.table for one in self.ones])

    def some(self, kind: str) -> One | None:
        found = [one for one in self.ones if getattr(self, kind)(one)]
        return self.random.choice(found) if found else None

    def waits(self, one: One) -> bool:
        return not one.is_running and not one.table.is_swapped

    def is_out(self, one: One) -> bool:
        return one.table.is_swapped

    def is_idle(self, one: One) -> bool:
        return one.is_running and not one.is_in_step

    def runs(self, one: One) -> bool:
        return one.is_running

    def add(self) -> None:
        """Prompts often begin as others did."""
        if len(self.ones) >= 6:
            return
        start = (
            self.random.choice(self.prompts) if self.prompts and self.random.random() < 0.8 else []
        )
        start = start[: self.random.randint(0, len(start))]
        tokens = start + [self.random.randint(0, 1) for _ in range(self.random.randint(1, 8))]
        self.prompts = [*self.prompts[-4:], tokens]
        keys = (b"salt:a",) if self.random.random() < 0.1 else ()
        reads_cache = self.random.random() < 0.9
        table = self.kv.open_table(array("i", tokens), root_keys=keys, reads_cache=reads_cache)
        self.ones.append(One(table))

    def admit(self) -> None:
        one = self.some("waits")
        if one is None:
            return
        kv, table, num_known = self.kv, one.table, len(one.tokens)
        match = kv.match(table)
        self.check_match(table, match.num_tokens)
        chunk_end = self.random.randint(match.num_tokens + 1, num_known)
        shortfall = kv.shortfall(table, num_known, match, chunk_end=chunk_end)
        num_free = kv.num_free_blocks
        num_computed = kv.admit(table, num_known, match, chunk_end=chunk_end)
        if num_computed is None:
            assert shortfall > 0 or match.num_from_tier
            assert table.is_empty
            assert num_free == kv.num_free_blocks
            return
        assert shortfall <= 0
        assert num_computed == match.num_tokens or match.num_from_tier
        one.is_running, one.num_computed = True, num_computed
        if self.random.randint(0, 9) == 0:  # admitted, and not granted anything after all
            self.yields(one)
        else:
            one.end = self.random.randint(num_computed + 1, chunk_end)
            kv.announce(table, one.end)

    def check_match(self, table: BlockTable, num_tokens: int) -> None:
        slow = longest_match(self.kv, self.machine, table, self.tier)
        has_many_children = len(self.kv.index) > MAX_CHILDREN
        assert num_tokens == slow or (has_many_children and num_tokens < slow), (num_tokens, slow)

    def grow(self) -> None:
        one = self.some("is_idle")
        if one is None:
            return
        end = self.random.randint(one.num_computed + 1, len(one.tokens))
        table, size = one.table, self.kv.block_size
        is_inside = one.num_computed % size and end <= -(-one.num_computed // size) * size
        if table.is_forked or not is_inside:
            fitting = self.kv.fitting(table, one.num_computed, end)
            edits = self.kv.reserve(table, one.num_computed, end)
            assert (fitting == end) == (edits is not None)
            if edits is None and fitting > one.num_computed:
                end = fitting
                edits = self.kv.reserve(table, one.num_computed, end)
                assert edits is not None
            if edits is None:
                return
            for group, place, block_id in edits:
                assert table.block_ids[group][place] == block_id
        self.kv.announce(table, end)
        one.end = end

    def yields(self, one: One) -> None:
        """Back to waiting, to be computed again."""
        self.kv.free(one.table, one.num_computed if one.end == 0 else 0)
        one.is_running, one.num_computed, one.end, one.twin = False, 0, 0, None

    def leave(self) -> None:
        one = self.some("is_idle")
        if one is None:
            return
        self.prompts.append(list(one.tokens))
        self.yields(one)
        if self.flips():
            self.ones.remove(one)

    def leave_all(self) -> None:
        if self.no_step():
            for one in self.ones:
                self.kv.free(one.table, one.num_computed)
            self.ones.clear()

    def fork(self) -> None:
        parent = self.some("runs")
        if parent is None or parent.twin is not None or len(self.ones) >= 8:
            return
        num_computed = parent.end or parent.num_computed
        tokens = parent.tokens[:num_computed]
        starts_over = self.flips() and self.sees_last(parent)
        child = One(self.kv.fork(parent.table, tokens))
        self.ones.append(child)
        child.is_running, child.num_computed = True, num_computed
        if starts_over:
            child.num_computed -= 1
        else:
            tokens.append(self.random.randint(0, 1))
        child.twin = parent if parent.end else None

    def sees_last(self, parent: One) -> bool:
        """A child can compute the last token again if what it sees is still there."""
        last, size = parent.num_computed - 1, self.kv.block_size
        if parent.end or last < 0:
            return False
        firsts = [kind.first_place(last, size) for kind in self.kv.groups]
        return all(
            ids[first] >= 0 for ids, first in zip(parent.table.block_ids, firsts, strict=True)
        )

    def swap_out(self) -> None:
        one = self.some("is_idle")
        if one is not None and self.kv.swap_out(one.table, one.num_computed):
            one.is_running = False
            assert not any(one.table.block_ids)

    def swap_in(self) -> None:
        one = self.some("is_out")
        if one is None:
            return
        if self.random.random() < 0.2:
            self.kv.drop_swapped(one.table)
            one.num_computed = 0
            self.check()
            return
        end = self.random.randint(one.num_computed + 1, len(one.tokens))
        shortfall = self.kv.shortfall(one.table, end)
        if not self.kv.swap_in(one.table):
            assert shortfall > 0
            return
        one.is_running = True
        is_reserved = self.kv.reserve(one.table, one.num_computed, end) is not None
        assert is_reserved or shortfall > 0
        if is_reserved:
            self.kv.announce(one.table, end)
            one.end = end
        else:
            self.yields(one)

    def run_step(self) -> None:
        """A step in which maybe a row fails."""
        rows = [one for one in self.ones if one.end]
        if not rows:
            return
        failed = self.random.choice([None, None, None, *rows])
        self.machine.move(self.kv.take_moves())
        broken = self.settle_error(failed) if failed else []
        granted = [(one.table, one.num_computed, one.end) for one in rows]
        self.machine.compute(granted, [one.table for one in broken])
        for one in broken:
            if one is failed or one.twin is failed:
                self.kv.forget(one.table)
                self.ones.remove(one)
            self.kv.free(one.table)
            one.is_running, one.num_computed, one.end = False, 0, 0
        self.kv.commit()
        for one in rows:
            one.num_computed, one.end = one.end, 0
            if one in broken:
                one.num_computed = 0
            elif one.num_computed == len(one.tokens):
                one.tokens.append(self.random.randint(0, 1))
        for one in self.ones:
            one.twin = None
        self.after_step()

    def settle_error(self, failed: One) -> list[One]:
        """As a scheduler does: who shares what was not computed computes again."""
        lost: set[int] = set()
        broken: list[One] = []
        for one in self.ones:
            if not one.is_in_step:
                continue
            is_hit = one is failed or one.twin in broken
            if is_hit or not lost.isdisjoint(one.table.held_blocks()):
                lost |= self.kv.retract(one.table)
                broken.append(one)
        return self.closure(broken, lost)

    def closure(self, broken: list[One], lost: set[int]) -> list[One]:
        """`ones` are not in the order of the plan: go on until nobody is hit any more."""
        size = -1
        while size != len(broken):
            size = len(broken)
            for one in self.ones:
                if one in broken or not one.is_in_step:
                    continue
                if one.twin in broken or not lost.isdisjoint(one.table.held_blocks()):
                    lost |= self.kv.retract(one.table)
                    broken.append(one)
        return broken

    def fail_step(self) -> None:
        """The step raises somewhere: nothing that it did can be relied on."""
        running = [one for one in self.ones if one.is_running]
        rows = [one for one in running if one.end]
        if not rows:
            return
        moves = self.kv.take_moves()
        if self.flips():
            self.machine.move(moves)
        tables = [one.table for one in rows]
        self.machine.compute([(one.table, one.num_computed, one.end) for one in rows], tables)
        self.kv.fail_step()
        for one in running:
            if one.is_in_step:
                self.kv.forget(one.table)
            self.kv.free(one.table)
            self.ones.remove(one)
        for one in self.ones:
            if not one.table.is_swapped:
                one.num_computed = 0
        self.after_step()

    def after_step(self) -> None:
        self.check()
        for one in self.ones:
            if one.is_running:
                self.machine.check_visible(one.table, one.num_computed, one.num_computed)
        self.machine.check_findable()
        self.follow_events()

    def follow_events(self) -> None:
        """A router that mirrors the cache from its events knows exactly what is findable."""
        for event in self.kv.take_events():
            if isinstance(event, AllBlocksCleared):
                self.mirror.clear()
                continue
            keys = {(event.group_idx, block_hash) for block_hash in event.block_hashes}
            if isinstance(event, BlockStored):
                assert self.mirror.isdisjoint(keys)
                self.mirror |= keys
            else:
                assert keys <= self.mirror
                self.mirror -= keys
        has_groups = len(self.kv.groups) > 1
        findable = {
            (content.group if has_groups else None, content.block_hash)
            for _, content in self.kv.index
            if content.block_hash is not None
        }
        assert findable == self.mirror

    def trouble_the_tier(self) -> None:
        if self.tier is not None:
            self.tier.is_slow = self.flips()
        if self.tier is not None and self.tier.contents:
            self.tier.damaged.add(self.random.choice(sorted(self.tier.contents)))

    def reset(self) -> None:
        if not self.no_step():
            return
        was_idle = not self.kv.num_used_blocks
        assert self.kv.reset() == was_idle
        assert not was_idle or len(self.kv.index) == 0

    def flush(self) -> None:
        """What an engine does before it ends."""
        if not self.no_step():
            return
        self.kv.stage_unstored()
        self.machine.move(self.kv.take_moves())
        self.kv.commit()
        self.after_step()

    def end(self) -> None:
        """Every history ends empty."""
        self.machine.move(self.kv.take_moves())
        self.machine.compute(
            [(one.table, one.num_computed, one.end) for one in self.ones if one.end]
        )
        self.kv.commit()
        for one in self.ones:
            self.kv.free(one.table)
        if self.tier is not None and self.kv.link is not None:
            self.tier.is_slow = False
            self.kv.link.poll()
        check_pool(self.kv, [])
        assert self.kv.num_used_blocks == 0
        assert self.kv.slots.num_used == 0


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), num_actions=st.integers(1, 150))
def test_any_history_reads_what_it_wrote_and_ends_empty(seed: int, num_actions: int):
    History(seed).run(num_actions)
