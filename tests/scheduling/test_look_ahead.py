"""Passing a waiting request that does not fit: useful, and bounded."""

from __future__ import annotations

import pytest

from octavo.scheduling.admission import MAX_LOOK_AHEAD, MAX_TIMES_PASSED
from tests.scheduling.conftest import MakeRig
from tests.support.builders import Rig, make_request


def running(rig: Rig) -> list[str]:
    return [request.id for request in rig.scheduler.running]


def block_with_one_long_request(new_rig: MakeRig, **options: int) -> Rig:
    """Five of eight blocks are taken, so a prompt of four blocks does not fit."""
    rig = new_rig(num_blocks=8, **options)
    rig.add(make_request("long", range(17), max_tokens=3))
    rig.step()
    return rig


def test_a_small_request_passes_one_that_does_not_fit(new_rig: MakeRig):
    rig = block_with_one_long_request(new_rig)
    rig.add(make_request("big", range(50, 66)), make_request("small", [200], max_tokens=2))
    rig.step()
    assert running(rig) == ["long", "small"]
    rig.finish()
    assert rig.end_of("big").finish_reason == "length"


def test_a_request_that_fits_is_never_passed(new_rig: MakeRig):
    rig = new_rig(max_num_seqs=2)
    rig.add(make_request("a"), make_request("b", range(50, 60)), make_request("c", [200]))
    rig.step()
    assert running(rig) == ["a", "b"]
    rig.finish()


def test_a_request_is_passed_only_so_often_then_nothing_passes_it(new_rig: MakeRig):
    """A stream of small requests would keep a big one waiting for ever."""
    rig = new_rig(num_blocks=16)
    rig.add(make_request("long", range(33), max_tokens=9))
    rig.step()
    rig.add(make_request("big", range(50, 82), max_tokens=1))
    for number in range(2 * MAX_TIMES_PASSED):
        rig.add(make_request(f"small {number}", [200 + number], max_tokens=1))
    rig.steps(7)
    ended = [delta.request_id for delta in rig.deltas if delta.finish_reason]
    assert ended == [f"small {number}" for number in range(MAX_TIMES_PASSED)]
    rig.finish()
    order = [delta.request_id for delta in rig.deltas if delta.finish_reason]
    assert order.index("big") == MAX_TIMES_PASSED + 1, "right after the long one"


@pytest.mark.parametrize(
    ("num_big", "passes"), [(MAX_LOOK_AHEAD, True), (MAX_LOOK_AHEAD + 1, False)]
)
def test_only_so_many_that_do_not_fit_are_looked_past(new_rig: MakeRig, num_big: int, passes: bool):
    """The cost of a plan stays bounded however many wait."""
    rig = block_with_one_long_request(new_rig, max_num_seqs=32)
    for number in range(num_big):
        rig.add(make_request(f"big {number}", range(1000 + 100 * number, 1016 + 100 * number)))
    rig.add(make_request("small", [5000], max_tokens=2))
    rig.step()
    assert passes == ("small" in running(rig))
    rig.finish()


def test_nobody_passes_in_a_step_in_which_blocks_ran_out(new_rig: MakeRig):
    """What the victim gave back is for those that run; else the next step is short again."""
    rig = new_rig(num_blocks=4)
    rig.add(make_request("old", range(8)), make_request("young", range(50, 58)))
    rig.step()
    rig.add(make_request("small", [200], max_tokens=2))
    rig.step()
    assert running(rig) == ["old"]
    rig.finish()


def test_under_priority_a_worse_request_may_pass_too_and_only_so_often(new_rig: MakeRig):
    rig = new_rig(num_blocks=8, scheduling_policy="priority", priority_preemption=False)
    rig.add(make_request("long", range(17), max_tokens=3))
    rig.step()
    rig.add(make_request("big", range(50, 66), priority=-1))
    rig.add(make_request("small", [200], max_tokens=2, priority=5))
    rig.step()
    assert "small" in running(rig)
    rig.finish()


@pytest.mark.parametrize(("is_on", "expected"), [(True, ["urgent"]), (False, ["a"])])
def test_displacing_by_priority_can_be_turned_off(
    new_rig: MakeRig, is_on: bool, expected: list[str]
):
    rig = new_rig(max_num_seqs=1, scheduling_policy="priority", priority_preemption=is_on)
    rig.add(make_request("a", priority=1, max_tokens=9))
    rig.step()
    rig.add(make_request("urgent", range(50, 60), priority=0))
    rig.step()
    assert running(rig) == expected
    rig.finish()
