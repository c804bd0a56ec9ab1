"""Preemption by swapping: blocks leave and come back as they were; `auto` picks the cheaper way."""

from __future__ import annotations

import pytest

from octavo.executor.scripted import hash_of_history
from octavo.scheduling.request import Status
from tests.scheduling.conftest import MakeRig
from tests.support.builders import Rig, make_request, solo_answer

SCRIPT = hash_of_history(50)


def make_pair(rig: Rig) -> None:
    """Both fill two blocks of a pool of four; "young" yields in the second step."""
    rig.add(make_request("old", range(8), max_tokens=6))
    rig.add(make_request("young", range(50, 58), max_tokens=6))


def judge(rig: Rig, *request_ids: str) -> None:
    for start, request_id in ((0, "old"), (50, "young")):
        if request_id in request_ids:
            request = make_request(request_id, range(start, start + 8), max_tokens=6)
            assert solo_answer(request, SCRIPT)[0] == rig.tokens_of(request_id)


def test_the_victims_blocks_move_to_host_slots_and_come_back(new_rig: MakeRig):
    rig = new_rig(SCRIPT, num_blocks=4, num_host_slots=4, preemption_mode="swap")
    make_pair(rig)
    plan = rig.steps(2)[1]
    assert len(plan.swap_out_from) == 2
    assert plan.freed_rows == [1]
    young = rig.scheduler.requests["young"]
    assert young.status is Status.PREEMPTED
    assert young.num_computed_tokens == 8
    rig.finish()
    judge(rig, "old", "young")
    end = rig.end_of("young")
    assert (end.num_preemptions, end.num_swaps) == (1, 1)
    counters = rig.scheduler.counters
    assert (counters.num_preemptions, counters.num_swaps) == (1, 1)
    assert counters.num_blocks_swapped_out == 2
    assert rig.scheduler.kv.slots.num_used == 0


def test_nothing_is_computed_again_after_a_swap(new_rig: MakeRig):
    rig = new_rig(
        SCRIPT, num_blocks=4, num_host_slots=4, preemption_mode="swap", enable_prefix_caching=False
    )
    make_pair(rig)
    num_tokens = 0
    while rig.scheduler.has_work():
        num_tokens += rig.step().total_tokens
    assert num_tokens == 2 * (8 + 6 - 1)
    assert rig.scheduler.counters.num_blocks_swapped_in == 2


def test_without_slots_the_victim_computes_again(new_rig: MakeRig):
    rig = new_rig(SCRIPT, num_blocks=4, num_host_slots=1, preemption_mode="swap")
    make_pair(rig)
    rig.finish()
    judge(rig, "old", "young")
    end = rig.end_of("young")
    assert (end.num_preemptions, end.num_swaps) == (1, 0)


def test_a_swapped_request_can_be_aborted(new_rig: MakeRig):
    rig = new_rig(SCRIPT, num_blocks=4, num_host_slots=4, preemption_mode="swap")
    make_pair(rig)
    rig.steps(2)
    rig.abort("young")
    assert rig.scheduler.kv.slots.num_used == 0
    rig.finish()
    judge(rig, "old")


def test_a_request_that_a_failed_step_should_have_swapped_computes_again(new_rig: MakeRig):
    """Nobody knows what is in its slots."""
    rig = new_rig(SCRIPT, num_blocks=4, num_host_slots=4, preemption_mode="swap")
    make_pair(rig)
    rig.step()
    plan = rig.plan()
    assert plan.swap_out_to
    rig.executor.fail_run(RuntimeError("lost"))
    with pytest.raises(RuntimeError):
        rig.run(plan)
    rig.fail_step(plan, "lost")
    assert rig.scheduler.requests["young"].num_computed_tokens == 0
    rig.finish()
    judge(rig, "young")


def test_a_window_keeps_what_it_sees_over_a_swap(new_rig: MakeRig):
    rig = new_rig(SCRIPT, num_blocks=15, windows=(0, 6), num_host_slots=12, preemption_mode="swap")
    requests = [make_request(str(n), range(n, n + 9), max_tokens=14) for n in (0, 50)]
    rig.add(*requests)
    rig.finish()
    assert rig.scheduler.counters.num_swaps >= 1
    for request in requests:
        assert solo_answer(request, SCRIPT)[0] == rig.tokens_of(request.request_id)


def test_a_better_arrival_swaps_the_worse_one_out(new_rig: MakeRig):
    rig = new_rig(
        SCRIPT,
        num_blocks=4,
        num_host_slots=4,
        preemption_mode="swap",
        scheduling_policy="priority",
    )
    rig.add(make_request("old", range(8), max_tokens=6, priority=9))
    rig.step()
    rig.add(make_request("young", range(50, 58), max_tokens=6, priority=0))
    rig.step()
    rig.add(make_request("b", range(90, 99), priority=0))
    rig.finish()
    judge(rig, "old", "young")
    assert rig.end_of("old").num_swaps >= 1


@pytest.mark.parametrize(
    ("block_s", "num_swaps"), [(0.0001, 1), (1.0, 0)], ids=["moving is cheap", "moving is dear"]
)
def test_auto_takes_the_way_that_costs_fewer_seconds(
    new_rig: MakeRig, block_s: float, num_swaps: int
):
    """Two blocks there and back, or eight tokens at a millisecond each."""
    rig = new_rig(
        SCRIPT, num_blocks=4, num_host_slots=4, preemption_mode="auto", max_decode_slowdown=0.0
    )
    speed = rig.scheduler.speed
    speed.note_step(100, 0, compute_s=0.1)
    speed.note_step(0, 1, compute_s=0.1, num_moved_blocks=1, swap_s=block_s)
    make_pair(rig)
    rig.finish()
    assert rig.end_of("young").num_swaps == num_swaps
    judge(rig, "old", "young")


def test_auto_computes_again_before_it_has_measured_anything(new_rig: MakeRig):
    rig = new_rig(SCRIPT, num_blocks=4, num_host_slots=4, preemption_mode="auto")
    make_pair(rig)
    rig.finish()
    assert rig.end_of("young").num_swaps == 0


def test_auto_tries_a_swap_to_measure_it(new_rig: MakeRig):
    rig = new_rig(
        SCRIPT, num_blocks=4, num_host_slots=4, preemption_mode="auto", max_decode_slowdown=0.0
    )
    rig.scheduler.speed.note_step(100, 0, compute_s=0.1)
    make_pair(rig)
    rig.finish()
    assert rig.end_of("young").num_swaps == 1


def test_a_lone_request_that_outgrows_the_pool_is_not_swapped(new_rig: MakeRig):
    """It would come back to the same wall."""
    rig = new_rig(num_blocks=3, num_host_slots=8, preemption_mode="swap")
    rig.add(make_request("a", range(10), max_tokens=9))
    rig.finish()
    assert rig.end_of("a").finish_reason == "error"
    assert rig.scheduler.counters.num_swaps == 0
