"""Evicted blocks go down to the tier, hits come up again. Blocks of four tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kvcache.conftest import Tables
from tests.kvcache.kv_machine import SlowTier


@pytest.fixture
def tier() -> SlowTier:
    return SlowTier()


@pytest.fixture
def tables(make_tables: Callable[..., Tables], tier: SlowTier) -> Tables:
    """Three blocks, four host slots."""
    return make_tables(3, num_host_slots=4, tier=tier)


def evict_all(tables: Tables) -> None:
    """Every block of the pool is reused, and free again."""
    tables.free(tables.compute(range(900, 912), reads_cache=False))
    tables.run()


def test_evicted_blocks_come_back_on_a_hit(tables: Tables, tier: SlowTier):
    tables.free(tables.compute(range(9)))
    evict_all(tables)
    assert len(tier.contents) == 2
    table = tables.open(range(9))
    assert tables.kv.match(table).num_from_tier == 2
    assert tables.admit(table) == 8
    moves = tables.run()
    assert moves.swap_in_to == table.block_ids[0][:2]
    assert tables.kv.link is not None
    assert tables.kv.link.num_loaded == 2


def test_a_loaded_block_is_findable_for_others_of_the_step(tables: Tables):
    tables.free(tables.compute(range(4)))
    evict_all(tables)
    first, second = tables.open([*range(4), 50]), tables.open([*range(4), 60])
    assert tables.kv.admit(first, 5, tables.kv.match(first)) == 4
    match = tables.kv.match(second)
    assert (match.num_tokens, match.num_from_tier) == (4, 0)
    tables.run()


def test_a_damaged_entry_shortens_the_hit(tables: Tables, tier: SlowTier):
    table = tables.compute(range(9))
    damaged = table.hash_of(1)
    tables.free(table)
    evict_all(tables)
    tier.damaged = {key for key in tier.contents if key.startswith(damaged)}
    again = tables.open(range(9))
    match = tables.kv.match(again)
    assert match.num_tokens == 8
    assert tables.kv.admit(again, 9, match) == 4
    tables.grant(again, 4, 9)
    tables.run()
    assert tables.kv.slots.num_used == 0


def test_after_a_failed_load_an_admission_that_does_not_fit_changes_nothing(
    make_tables: Callable[..., Tables], tier: SlowTier
):
    tables = make_tables(3, num_host_slots=4, tier=tier, windows=(4,))
    tables.free(tables.compute(range(12)))
    evict_all(tables)
    tier.damaged = set(tier.contents)
    table = tables.open(range(13))
    match = tables.kv.match(table)
    assert match.num_tokens == 12
    assert tables.kv.shortfall(table, 13, match) <= 0
    assert tables.kv.admit(table, 13, match) is None
    assert table.is_empty
    assert tables.kv.slots.num_used == 0


def test_without_a_free_slot_the_content_is_dropped(
    make_tables: Callable[..., Tables], tier: SlowTier
):
    tables = make_tables(3, num_host_slots=1, tier=tier)
    tables.free(tables.compute(range(12)))
    evict_all(tables)
    assert len(tier.contents) == 1
    assert tables.kv.link is not None
    assert tables.kv.link.num_dropped == 2


def test_a_slot_is_busy_until_the_tier_has_written_it(tables: Tables, tier: SlowTier):
    tier.is_slow = True
    tables.free(tables.compute(range(9)))
    evict_all(tables)
    assert tables.kv.slots.num_used == 2
    assert tables.num_matched(range(9)) == 0
    tier.is_slow = False
    assert tables.num_matched(range(9)) == 8
    assert tables.kv.slots.num_used == 0


def test_who_looks_at_an_idle_pool_sees_no_slot_that_the_tier_is_done_with(
    tables: Tables, tier: SlowTier
):
    tier.is_slow = True
    tables.free(tables.compute(range(9)))
    evict_all(tables)
    assert tables.kv.snapshot({}).num_used_host_slots == 2
    tier.is_slow = False
    assert tables.kv.snapshot({}).num_used_host_slots == 0


def test_hits_are_limited_by_the_slots_that_loads_need(
    make_tables: Callable[..., Tables], tier: SlowTier
):
    tables = make_tables(3, num_host_slots=2, tier=tier)
    for start in (0, 100):
        tables.free(tables.compute(range(start, start + 8)))
    evict_all(tables)
    held = tables.kv.slots.take()
    assert tables.num_matched(range(9)) == 4
    tables.kv.slots.release(held)
    assert tables.num_matched(range(9)) == 8


def test_what_the_tier_has_is_not_stored_again(tables: Tables, tier: SlowTier):
    tables.free(tables.compute(range(9)))
    evict_all(tables)
    tables.free(tables.compute(range(9)))
    assert tables.kv.link is not None
    num_stored = tables.kv.link.num_stored
    tables.compute(range(500, 512))
    assert tables.kv.link.num_stored == num_stored


def test_a_failed_step_stores_nothing(tables: Tables, tier: SlowTier):
    """Nobody knows whether the slots were filled."""
    tables.free(tables.compute(range(9)))
    table = tables.open(range(100, 112))
    tables.admit(table)
    tables.kv.take_moves()
    tables.kv.fail_step()
    tables.rows.clear()
    tables.free(table)
    assert not tier.contents
    assert tables.kv.slots.num_used == 0


def test_at_the_end_all_findable_blocks_can_be_stored(
    make_tables: Callable[..., Tables], tier: SlowTier
):
    """As many at once as there are slots."""
    tables = make_tables(8, num_host_slots=2, tier=tier)
    table = tables.compute(range(14))
    rounds = []
    while num_staged := tables.kv.stage_unstored():
        rounds.append(num_staged)
        tables.run()
    assert rounds == [2, 1]
    assert {table.hash_of(place) + bytes(4) for place in range(3)} == set(tier.contents)


def test_at_the_end_a_tier_that_keeps_nothing_is_offered_each_block_once(
    make_tables: Callable[..., Tables], tier: SlowTier
):
    """Its folder is full, or too small for the pool: the engine must come to its end."""
    tables = make_tables(8, num_host_slots=2, tier=tier)
    tables.compute(range(14))
    rounds = []
    while (num_staged := tables.kv.stage_unstored()) and len(rounds) < 9:
        rounds.append(num_staged)
        tables.run()
        assert tables.kv.link is not None
        tables.kv.link.poll()
        tier.clear()
    assert rounds == [2, 1]


def test_reset_clears_the_tier_too(tables: Tables, tier: SlowTier):
    tables.free(tables.compute(range(9)))
    evict_all(tables)
    assert tables.kv.reset()
    assert not tier.contents
    assert tables.num_matched(range(9)) == 0


def test_a_reset_may_spare_the_tier(tables: Tables):
    tables.free(tables.compute(range(9)))
    evict_all(tables)
    assert tables.kv.reset(resets_tier=False)
    assert tables.num_matched(range(9)) == 8


def test_reset_strikes_what_is_on_its_way_down(tables: Tables, tier: SlowTier):
    tables.free(tables.compute(range(9)))
    table = tables.open(range(100, 112))
    assert tables.kv.admit(table, 12) == 0
    tables.free(table)
    assert tables.kv.reset()
    assert tables.run().swap_out_to == []
    assert not tier.contents


def test_a_partial_block_is_not_stored(tables: Tables, tier: SlowTier):
    tables.kv.free(tables.compute(range(3)), 3)
    evict_all(tables)
    assert not tier.contents


def test_groups_have_entries_of_their_own(make_tables: Callable[..., Tables], tier: SlowTier):
    tables = make_tables(6, num_host_slots=8, tier=tier, windows=(0, 4))
    tables.free(tables.compute(range(9)))
    evict_all(tables)
    table = tables.open(range(9))
    match = tables.kv.match(table)
    assert match.num_tokens == 8
    assert match.num_from_tier == 3  # two of all, one of the window
    assert tables.admit(table) == 8
    tables.run()
