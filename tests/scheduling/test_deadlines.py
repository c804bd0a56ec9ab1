"""Deadlines: who is ended when, and what its client is told."""

from __future__ import annotations

import pytest

from octavo.contracts.delta import FinishReason
from octavo.contracts.request import BeamSpec
from octavo.contracts.step import StepPlan
from octavo.scheduling.deadlines import DeadlineHeap
from octavo.scheduling.request import Request
from tests.scheduling.conftest import MakeRig
from tests.support.builders import Rig, make_kv, make_request


def step(rig: Rig, now_s: float) -> StepPlan:
    plan = rig.scheduler.plan(now_s)
    rig.finish_step(plan)
    return plan


def measure(rig: Rig, token_s: float) -> None:
    """Make the scheduler believe that a prompt token takes so many seconds."""
    rig.scheduler.speed.note_step(100, 0, 100 * token_s)


def test_a_request_that_runs_ends_at_its_deadline_and_keeps_what_it_got(new_rig: MakeRig):
    rig = new_rig()
    rig.add(make_request("a", max_tokens=50, arrival_s=1.0, deadline_s=9.0))
    step(rig, 1.0)
    step(rig, 8.9)
    assert step(rig, 9.0).rows == []
    end = rig.end_of("a")
    assert (end.finish_reason, end.stop_reason, end.error) == ("abort", "timeout", None)
    assert len(rig.tokens_of("a")) == 2
    assert rig.scheduler.kv.num_used_blocks == 0


def test_a_request_that_got_nothing_ends_with_the_numbers(new_rig: MakeRig):
    rig = new_rig(max_num_seqs=1)
    rig.add(make_request("first", max_tokens=50))
    step(rig, 0.0)
    rig.add(make_request("late", range(50, 60), arrival_s=1.0, deadline_s=3.0))
    step(rig, 2.9)
    assert "late" in rig.scheduler.requests
    step(rig, 3.5)
    end = rig.end_of("late")
    assert (end.finish_reason, end.stop_reason) == ("abort", "timeout")
    assert rig.scheduler.counters.num_missed_deadlines == 1
    assert end.error is not None
    assert "to be done within 2.000 s and has no token after 2.500 s" in end.error
    rig.abort("first")


def test_a_waiting_request_ends_as_soon_as_its_prompt_cannot_be_computed_in_time(
    new_rig: MakeRig,
):
    """Ten tokens at 0.1 s take a second: at 2.1 the deadline at 3.0 is lost."""
    rig = new_rig(max_num_seqs=1)
    measure(rig, 0.1)
    rig.add(make_request("first", max_tokens=50))
    step(rig, 0.0)
    rig.add(make_request("late", range(50, 60), arrival_s=1.0, deadline_s=3.0))
    step(rig, 1.9)
    assert "late" in rig.scheduler.requests
    step(rig, 2.1)
    assert "its 10 missing prompt tokens need about 1.000 s more" in (
        rig.end_of("late").error or ""
    )
    rig.abort("first")


def test_a_long_prompt_is_not_given_up_because_short_ones_came_before(new_rig: MakeRig):
    """Reading the weights takes most of their steps: 25 ms a token would be wrong for a long one."""
    rig = new_rig()
    for _ in range(6):
        rig.scheduler.speed.note_step(2, 0, 0.05)
    rig.add(make_request("long", range(40), max_tokens=1, arrival_s=1.0, deadline_s=1.5))
    step(rig, 1.0)
    assert rig.tokens_of("long")


def test_what_the_cache_holds_need_not_be_computed(new_rig: MakeRig):
    """Of the same ten tokens only the last ones are missing, so there is time left at 2.1."""
    rig = new_rig(max_num_seqs=1)
    measure(rig, 0.1)
    rig.add(make_request("first", max_tokens=50))
    step(rig, 0.0)
    rig.add(make_request("late", arrival_s=1.0, deadline_s=3.0))
    step(rig, 2.1)
    assert "late" in rig.scheduler.requests
    step(rig, 3.0)
    assert rig.end_of("late").stop_reason == "timeout"
    rig.abort("first")


def test_a_preempted_request_that_misses_its_deadline_keeps_its_tokens(new_rig: MakeRig):
    rig = new_rig(num_blocks=4)
    rig.add(make_request("old", range(8), max_tokens=6))
    rig.add(make_request("young", range(50, 58), max_tokens=6, deadline_s=5.0))
    step(rig, 0.0)
    step(rig, 1.0)
    assert rig.scheduler.requests["young"].num_preemptions == 1
    step(rig, 5.0)
    end = rig.end_of("young")
    assert (end.finish_reason, end.stop_reason) == ("abort", "timeout")
    assert len(rig.tokens_of("young")) == 1
    rig.finish()


def test_a_choice_that_waits_for_the_prompt_of_another_ends_at_its_deadline(new_rig: MakeRig):
    """It is in no queue; the first choice goes on."""
    rig = new_rig(max_num_batched_tokens=4)
    rig.add(make_request("first", range(40), max_tokens=2))
    rig.add(make_request("second", range(40), max_tokens=2, fork_of="first", deadline_s=3.0))
    for now_s in range(4):
        step(rig, float(now_s))
    assert rig.end_of("second").stop_reason == "timeout"
    rig.finish()
    assert len(rig.tokens_of("first")) == 2


def test_a_beam_search_that_misses_its_deadline_has_sent_nothing(new_rig: MakeRig):
    rig = new_rig()
    beam = BeamSpec(beam_width=2, num_returned=2)
    rig.add(make_request("a", max_tokens=50, beam=beam, deadline_s=5.0))
    for now_s in range(6):
        step(rig, float(now_s))
    end = rig.end_of("a")
    assert (end.stop_reason, end.beams) == ("timeout", None)
    assert "has no token after 5.000 s" in (end.error or "")
    assert rig.scheduler.kv.num_used_blocks == 0


@pytest.mark.parametrize("deadline_s", [None, 100.0])
def test_whoever_makes_it_notices_nothing(new_rig: MakeRig, deadline_s: float | None):
    rig = new_rig()
    rig.add(make_request("a", deadline_s=deadline_s))
    now_s = 0.0
    while rig.scheduler.has_work():
        step(rig, now_s)
        now_s += 1.0
    expected: FinishReason = "length"
    assert rig.end_of("a").finish_reason == expected
    assert len(rig.tokens_of("a")) == 4


def test_the_others_go_on_when_one_ends(new_rig: MakeRig):
    rig = new_rig()
    rig.add(make_request("a", max_tokens=5, deadline_s=2.0))
    rig.add(make_request("b", range(50, 60), max_tokens=5))
    for now_s in range(5):
        step(rig, float(now_s))
    assert rig.end_of("a").stop_reason == "timeout"
    assert len(rig.tokens_of("b")) == 5


def test_many_requests_that_end_early_leave_little_behind():
    """Each could have waited an hour."""
    kv, live = make_kv(), dict[str, Request]()
    heap = DeadlineHeap(live)
    for number in range(10_000):
        source = make_request(str(number), deadline_s=3600.0)
        live[str(number)] = Request(source, (number,), 1000, kv)
        heap.look_at(str(number), 3600.0)
        live.pop(str(number - 10), None)
    assert len(heap) < 100
    assert {request.id for request in heap.take_due(3600.0)} == set(live)


def test_an_id_that_came_back_is_looked_at_once():
    kv = make_kv()
    live = {"a": Request(make_request("a", deadline_s=9.0), (0,), 1000, kv)}
    heap = DeadlineHeap(live)
    heap.look_at("a", 5.0)
    live["a"] = Request(make_request("a", deadline_s=20.0), (1,), 1000, kv)
    heap.look_at("a", 20.0)
    assert heap.take_due(99.0) == [live["a"]]
