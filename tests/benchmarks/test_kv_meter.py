"""The KV meter counts what a slow look at all block tables counts."""

from __future__ import annotations

from benchmarks.kv_meter import KVMeter
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan
from tests.benchmarks.support import kv_plan


def new_row(row: int, name: str, num_tokens: int, blocks: list[int], computed: int = 0) -> NewRow:
    return NewRow(
        row=row,
        request_id=name,
        token_ids=list(range(num_tokens)),
        num_prompt_tokens=num_tokens,
        num_computed_tokens=computed,
        block_ids=[blocks],
        sampling=SamplingSpec(),
    )


def test_slots_are_live_reserved_or_never_used() -> None:
    """A request of 10 + 7 tokens that got 4 blocks of 8, and has computed its prompt."""
    meter = KVMeter(kv_plan(num_blocks=8), {"a": 17}.get)

    meter.see(
        StepPlan(
            step_id=0,
            new_rows=[new_row(0, "a", 10, [0, 1, 2, 3])],
            rows=[0],
            num_tokens=[10],
            samples=[True],
        )
    )
    meter.spend(2.0)
    use = meter.averages()

    assert (10, 6, 16) == (use.live * 64, use.reserved * 64, use.never_used * 64)
    assert 32 == use.free * 64
    assert 22 / 32 == use.waste


def test_averages_are_over_time() -> None:
    """A step of three seconds counts three times as much as one of one."""
    meter = KVMeter(kv_plan(num_blocks=2), {"a": 9}.get)
    first = StepPlan(
        step_id=0, new_rows=[new_row(0, "a", 4, [0])], rows=[0], num_tokens=[4], samples=[True]
    )
    second = StepPlan(step_id=1, rows=[0], num_tokens=[1], samples=[True])

    meter.see(first)
    meter.spend(3.0)
    meter.see(second)
    meter.spend(1.0)

    assert (3 * 4 + 5) / 4 == meter.averages().live * 16


def test_a_shared_block_counts_once_and_a_copy_counts_again() -> None:
    """Two samples of one prompt; then one of them writes."""
    meter = KVMeter(kv_plan(num_blocks=4), {"a": 20, "b": 20}.get)
    meter.see(
        StepPlan(
            step_id=0,
            new_rows=[new_row(0, "a", 10, [0, 1]), new_row(1, "b", 10, [0, 1], computed=10)],
            rows=[0, 1],
            num_tokens=[10, 0],
            samples=[True, True],
        )
    )
    meter.spend(1.0)

    assert (2, 10) == (meter.num_held_blocks, meter.num_live_slots)
    assert 0.5 == meter.averages().sharing

    meter.see(
        StepPlan(
            step_id=1,
            table_rows=[0],
            table_groups=[0],
            table_places=[1],
            table_block_ids=[2],
            copy_from=[1],
            copy_to=[2],
            rows=[0, 1],
            num_tokens=[1, 1],
            samples=[True, True],
        )
    )

    assert (3, 10 + 2 + 2) == (meter.num_held_blocks, meter.num_live_slots)
    meter.see(StepPlan(step_id=2, freed_rows=[0, 1]))
    assert (0, 0, 0) == (meter.num_held_blocks, meter.num_live_slots, meter.num_context_tokens)


def test_a_block_that_leaves_a_window_is_given_back() -> None:
    """Its entry becomes -1, which is no block."""
    meter = KVMeter(kv_plan(num_blocks=4), {"a": 40}.get)
    meter.see(
        StepPlan(
            step_id=0,
            new_rows=[new_row(0, "a", 16, [0, 1])],
            rows=[0],
            num_tokens=[16],
            samples=[True],
        )
    )

    meter.see(
        StepPlan(
            step_id=1,
            table_rows=[0, 0],
            table_groups=[0, 0],
            table_places=[0, 2],
            table_block_ids=[-1, 2],
            rows=[0],
            num_tokens=[1],
            samples=[True],
        )
    )

    assert (2, 9) == (meter.num_held_blocks, meter.num_live_slots)
    meter.see(StepPlan(step_id=2, freed_rows=[0]))
    assert (0, 0) == (meter.num_held_blocks, meter.num_live_slots)


def test_a_request_that_ended_but_keeps_its_blocks_is_waste() -> None:
    """As in a static batch that waits for its longest request."""
    meter = KVMeter(kv_plan(num_blocks=4), {"a": 5, "b": 30}.get)
    meter.see(
        StepPlan(
            step_id=0,
            new_rows=[new_row(0, "a", 4, [0]), new_row(1, "b", 4, [1])],
            rows=[0, 1],
            num_tokens=[4, 4],
            samples=[True, True],
        )
    )

    meter.see(StepPlan(step_id=1, rows=[1], num_tokens=[1], samples=[True]))
    meter.spend(1.0)
    use = meter.averages()

    assert 5 == use.live * 32
    assert 8 == use.never_used * 32
    assert 5 == meter.num_context_tokens
    meter.see(StepPlan(step_id=2, freed_rows=[0, 1]))
    assert 0 == meter.num_context_tokens


def test_nothing_counts_after_the_end() -> None:
    """A pool that drains says nothing about a load."""
    meter = KVMeter(kv_plan(num_blocks=2), {}.get)
    meter.see(
        StepPlan(
            step_id=0, new_rows=[new_row(0, "a", 4, [0])], rows=[0], num_tokens=[4], samples=[True]
        )
    )
    meter.close()

    meter.spend(1.0)

    assert 0 == meter.averages().live
