"""Chunks in a running scheduler: pacing by measured speed, sharing, vLLM's two limits.

A toy machine tells the scheduler how long each step took: 10 ms for the weights, 0.5 ms for a row
that decodes, 1 ms for a prompt token.
"""

from __future__ import annotations

import pytest

from octavo.contracts.request import BeamSpec
from octavo.contracts.step import StepPlan
from octavo.scheduling.admission import MAX_TIMES_PASSED
from tests.scheduling.conftest import MakeRig
from tests.support.builders import Rig, make_request

DECODE_S = 0.010 + 8 * 0.0005  # of eight rows


class Machine:
    """Runs steps of a rig, and knows how long each took."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.times: list[float] = []

    def step(self) -> StepPlan:
        plan = self.rig.step()
        num_rows = plan.num_tokens.count(1)
        self.times.append(0.010 + 0.0005 * num_rows + 0.001 * (plan.total_tokens - num_rows))
        self.rig.scheduler.note_step(plan, self.times[-1], 0.0)
        return plan

    def steps(self, count: int) -> list[StepPlan]:
        return [self.step() for _ in range(count)]


@pytest.fixture
def machine(new_rig: MakeRig) -> Machine:
    """Eight requests decode, one after the other computed and measured."""
    rig = new_rig(num_blocks=1000, max_num_seqs=16, max_num_batched_tokens=256)
    built = Machine(rig)
    for number in range(8):
        prompt = range(100 * number, 100 * number + 20)
        rig.add(make_request(f"decoding {number}", prompt, max_tokens=500))
        while not rig.tokens_of(f"decoding {number}"):
            built.step()
        built.step()
    built.times.clear()
    return built


def tokens_of(rig: Rig, plan: StepPlan, request_id: str) -> int:
    """What a plan grants a running request."""
    row = rig.scheduler.requests[request_id].row
    return dict(zip(plan.rows, plan.num_tokens, strict=True)).get(row, 0)


def test_a_long_prompt_keeps_eight_decoding_rows_within_twice_their_time(machine: Machine):
    machine.rig.add(make_request("long", range(5000, 5700), max_tokens=1))
    while "long" in machine.rig.scheduler.requests:
        machine.step()
    assert max(machine.times) < 2 * DECODE_S
    assert len(machine.times) < 1.2 * 700 / (0.4 * DECODE_S / 0.001)


def test_every_decoding_row_gets_its_token_in_every_step(machine: Machine):
    machine.rig.add(make_request("long", range(5000, 5700), max_tokens=1))
    for plan in machine.steps(20):
        assert plan.num_tokens.count(1) == 8


def test_with_nobody_decoding_a_prompt_gets_the_whole_step(machine: Machine):
    for number in range(8):
        machine.rig.abort(f"decoding {number}")
    machine.rig.add(make_request("long", range(5000, 5700), max_tokens=1))
    assert [plan.num_tokens for plan in machine.steps(3)] == [[256], [256], [188]]


def test_with_nobody_decoding_a_short_prompt_has_its_token_before_the_long_one_beside_it(
    machine: Machine,
):
    """Also where the rest of the long one would fit the step: that would be a long step."""
    rig = machine.rig
    for number in range(8):
        rig.abort(f"decoding {number}")
    rig.add(make_request("long", range(5000, 5500), max_tokens=1))
    machine.step()
    rig.add(make_request("short", range(6000, 6012), max_tokens=1))
    assert machine.step().num_tokens == [64 - 12, 12]
    assert rig.tokens_of("short")
    assert [plan.num_tokens for plan in machine.steps(1)] == [[500 - 256 - 52]]
    assert rig.tokens_of("long")


def test_a_short_prompt_that_finds_no_room_does_not_slow_a_long_one(new_rig: MakeRig):
    """A search of three beams waits for three rows while there are two."""
    rig = new_rig(num_blocks=1000, max_num_batched_tokens=256, max_num_seqs=3)
    rig.add(make_request("long", range(5000, 5700), max_tokens=1))
    rig.step()
    spec = BeamSpec(beam_width=3, num_returned=1)
    rig.add(make_request("search", range(6000, 6012), max_tokens=2, beam=spec))
    assert rig.step().num_tokens == [256]


def test_a_short_prompt_that_has_begun_does_not_wait_for_a_long_one_when_decoding_stops(
    machine: Machine,
):
    """Pacing let both begin in small chunks."""
    rig = machine.rig
    rig.add(make_request("long", range(5000, 5700), max_tokens=1))
    machine.steps(2)
    rig.add(make_request("short", range(6000, 6030), max_tokens=1))
    machine.steps(2)
    num_missing = rig.scheduler.requests["short"].num_missing_tokens
    assert 0 < num_missing < 30
    for number in range(8):
        rig.abort(f"decoding {number}")
    assert machine.step().num_tokens == [64 - num_missing, num_missing]
    assert rig.tokens_of("short")
    assert machine.step().num_tokens == [256]


def test_a_short_prompt_shares_its_step_with_all_that_have_begun(new_rig: MakeRig):
    """Each of them computes as many tokens as it does, and it is done with that step."""
    rig = new_rig(num_blocks=1000, max_num_batched_tokens=256, long_prefill_token_threshold=128)
    for number in range(2):
        rig.add(make_request(f"long {number}", range(1000 * number, 1000 * number + 900)))
    rig.step()
    rig.add(make_request("short", range(5000, 5040), max_tokens=1))
    assert rig.step().num_tokens == [40, 40, 40]
    assert rig.tokens_of("short")


def one_long_prompt_and_a_search_that_finds_no_rows(new_rig: MakeRig) -> Rig:
    """A search of three beams waits for three rows while there are two."""
    rig = new_rig(num_blocks=2000, max_num_batched_tokens=256, max_num_seqs=3)
    rig.add(make_request("long", range(5000, 7000), max_tokens=1))
    rig.step()
    spec = BeamSpec(beam_width=3, num_returned=1)
    rig.add(make_request("search", range(7000, 7012), max_tokens=2, beam=spec))
    return rig


def test_a_short_prompt_may_stand_behind_one_that_finds_no_room(new_rig: MakeRig):
    rig = one_long_prompt_and_a_search_that_finds_no_rows(new_rig)
    rig.add(make_request("short", range(8000, 8012), max_tokens=1))
    assert rig.step().num_tokens == [64 - 12, 12]
    assert rig.tokens_of("short")


def test_steps_stay_large_for_a_short_prompt_that_may_pass_nobody_any_more(new_rig: MakeRig):
    rig = one_long_prompt_and_a_search_that_finds_no_rows(new_rig)
    for number in range(MAX_TIMES_PASSED + 1):
        rig.add(make_request(str(number), [8000 + number], max_tokens=1))
    for number in range(MAX_TIMES_PASSED // 2):
        assert rig.step().num_tokens == [63, 1], number
    while rig.scheduler.waiting.first.num_times_passed < MAX_TIMES_PASSED:
        rig.step()
    assert rig.step().num_tokens == [256]


def test_a_short_prompt_behind_a_middling_one_has_its_turn_in_the_next_small_step(
    new_rig: MakeRig,
):
    """Else it would wait for the long one, and then for the one before it."""
    rig = new_rig(num_blocks=1000, max_num_batched_tokens=256)
    rig.add(make_request("long", range(5000, 5900), max_tokens=1))
    rig.step()
    rig.add(make_request("middling", range(7000, 7400), max_tokens=1))
    rig.add(make_request("short", range(8000, 8010), max_tokens=1))
    assert [plan.num_tokens for plan in rig.steps(2)] == [[32, 32], [27, 27, 10]]
    assert rig.tokens_of("short")


def test_beside_decoding_rows_too_a_short_prompt_may_stand_behind_one_without_room(
    machine: Machine,
):
    """Sixteen rows, of which eight decode: a search of eight waits, and has no share of a step."""
    rig = machine.rig
    rig.add(make_request("long", range(5000, 5700), max_tokens=1))
    machine.steps(4)
    spec = BeamSpec(beam_width=8, num_returned=1)
    rig.add(make_request("search", range(7000, 7012), max_tokens=2, beam=spec))
    rig.add(make_request("short", range(6000, 6012), max_tokens=2))
    machine.steps(5)
    assert rig.tokens_of("short")
    assert not rig.tokens_of("long")


def test_under_fair_the_prompts_of_one_tenant_share_a_small_step(new_rig: MakeRig):
    rig = new_rig(num_blocks=1000, max_num_batched_tokens=256, scheduling_policy="fair")
    rig.add(make_request("long", range(5000, 5900), max_tokens=1))
    rig.step()
    rig.add(make_request("short", range(6000, 6012), max_tokens=1))
    assert rig.step().num_tokens == [64 - 12, 12]


def test_with_nobody_decoding_prompts_of_like_lengths_follow_each_other(machine: Machine):
    rig = machine.rig
    for number in range(8):
        rig.abort(f"decoding {number}")
    rig.add(make_request("first", range(5000, 5600), max_tokens=1))
    machine.step()
    rig.add(make_request("second", range(6000, 6100), max_tokens=1))
    assert [plan.num_tokens for plan in machine.steps(2)] == [[256], [88, 100]]


def test_a_short_prompt_is_not_held_up_by_a_long_one_before_it(machine: Machine):
    """Small chunks would make it wait for 80 steps; it gets half of each."""
    rig = machine.rig
    rig.add(make_request("long", range(5000, 5700), max_tokens=1))
    machine.steps(4)
    rig.add(make_request("short", range(6000, 6012), max_tokens=2))
    machine.steps(5)
    assert rig.tokens_of("short")
    assert not rig.tokens_of("long")
    assert max(machine.times) < 2 * DECODE_S


def test_many_waiting_requests_lift_the_limit(machine: Machine):
    """Eight wait for each row that decodes: speed for all goes before smoothness. One prompt
    alone would get five tokens beside eight rows."""
    machine.step()
    for number in range(64):
        machine.rig.add(make_request(str(number), range(9000 + number * 50, 9050 + number * 50)))
    plans = machine.steps(3)
    assert max(plan.total_tokens for plan in plans) > 8 + 5 * 5


def test_pacing_can_be_turned_off(new_rig: MakeRig):
    rig = new_rig(num_blocks=1000, max_num_batched_tokens=256, max_decode_slowdown=0.0)
    machine = Machine(rig)
    rig.add(make_request("decoding", max_tokens=500))
    machine.steps(5)
    rig.add(make_request("long", range(5000, 5700), max_tokens=1))
    assert machine.step().num_tokens == [1, 255]
    rig.abort("decoding")


def test_before_anything_is_measured_the_whole_step_is_used(new_rig: MakeRig):
    rig = new_rig(num_blocks=1000, max_num_batched_tokens=256)
    rig.add(make_request("decoding", max_tokens=500))
    rig.step()
    rig.add(make_request("long", range(5000, 5700), max_tokens=1))
    assert rig.step().num_tokens == [1, 255]
    rig.abort("decoding")


def test_chunk_sizes_change_no_answer(machine: Machine, new_rig: MakeRig):
    machine.rig.add(make_request("long", range(5000, 5700), max_tokens=5))
    while "long" in machine.rig.scheduler.requests:
        machine.step()
    alone = new_rig(num_blocks=1000, max_num_batched_tokens=1000)
    alone.add(make_request("long", range(5000, 5700), max_tokens=5))
    alone.finish()
    assert alone.tokens_of("long") == machine.rig.tokens_of("long")


def test_the_long_prefill_threshold_caps_each_prompt_of_a_step(new_rig: MakeRig):
    rig = new_rig(num_blocks=100, long_prefill_token_threshold=10)
    rig.add(make_request("a", range(30)), make_request("b", range(50, 58)))
    assert [plan.num_tokens for plan in rig.steps(3)] == [[10, 8], [10, 1], [10, 1]]


def test_no_more_prompts_than_allowed_are_half_computed(new_rig: MakeRig):
    rig = new_rig(num_blocks=100, long_prefill_token_threshold=10, max_num_partial_prefills=1)
    for number, length in enumerate((30, 30, 8)):
        rig.add(make_request(str(number), range(100 * number, 100 * number + length)))
    plans = rig.steps(4)
    assert [plan.num_tokens for plan in plans] == [[10, 8], [10, 1], [10, 1, 10], [1, 10, 1]]
    rig.finish()


def test_the_wait_for_a_place_follows_the_measured_speeds(machine: Machine):
    """Before anything has ended, by how long an average answer takes."""
    scheduler = machine.rig.scheduler
    for number in range(20):
        machine.rig.add(
            make_request(str(number), range(9000 + number * 50, 9050 + number * 50), max_tokens=400)
        )
    machine.steps(30)
    assert not scheduler.rows.num_free
    scheduler.speed.note_step(0, 16, 4.0)
    scheduler.speed.note_step(0, 16, 4.0)
    scheduler.speed.note_step(0, 16, 4.0)
    assert 20 < scheduler.estimate_wait_s() < 60


def test_the_wait_for_a_place_does_not_count_the_time_in_which_nobody_came(new_rig: MakeRig):
    """A request each hour that takes a second: after the next quiet hour a place takes seconds."""
    rig = new_rig(num_blocks=100, max_num_seqs=2)
    for number in range(6):
        rig.now_s = 3600.0 * number
        rig.add(
            make_request(f"hourly {number}", range(100 * number, 100 * number + 8), max_tokens=2)
        )
        while rig.scheduler.has_work():
            rig.step()
            rig.now_s += 0.5
    rig.now_s = 3600.0 * 6
    for number in range(5):
        rig.add(make_request(str(number), range(9000 + number * 50, 9020 + number * 50)))
    rig.step()
    assert rig.scheduler.waiting
    assert rig.scheduler.estimate_wait_s() < 5
