"""Engine core: the loop over a scheduler and an executor, and what happens when a run fails."""

from __future__ import annotations

import pytest

from octavo.contracts.kv_plan import MemoryPlan
from octavo.contracts.progress import ReportProgress
from octavo.contracts.request import BeamSpec
from octavo.contracts.step import SamplingSpec, StepPlan, StepResult
from octavo.engine.stats import STEP_TIME_BOUNDS
from octavo.errors import EngineDeadError, InvalidRequestError
from octavo.executor.scripted import ScriptedExecutor, answers
from octavo.foundation.clock import ManualClock
from tests.support.builders import make_kv_plan, make_request, solo_answer
from tests.support.cores import SCRIPT, make_core, run_until_idle, tokens_of


def test_requests_go_in_and_all_their_tokens_come_out():
    core = make_core()
    requests = [make_request(str(n), range(n, n + 10)) for n in range(8)]
    for request in requests:
        core.add_request(request)
    deltas = run_until_idle(core)
    for request in requests:
        assert solo_answer(request, SCRIPT)[0] == tokens_of(deltas, request.request_id)
    assert len([delta for delta in deltas if delta.finish_reason == "length"]) == 8


def test_without_work_a_step_does_nothing():
    core = make_core()
    assert not core.has_work()
    assert core.step() == []
    assert core.stats().num_steps == 0


def test_the_pool_is_the_one_that_the_executor_could_make():
    core = make_core(ScriptedExecutor(SCRIPT, make_kv_plan(5), max_model_len=77))
    assert 5 == core.stats().num_blocks == core.memory_plan.kv.num_blocks
    assert core.memory_plan.max_model_len == 77


def test_an_abort_is_answered_by_the_next_step():
    core = make_core()
    core.add_request(make_request("a"))
    core.step()
    assert core.abort("a")
    assert core.stats().num_used_blocks == 0
    assert core.has_work()
    (delta,) = core.step()
    assert (delta.request_id, delta.token_ids, delta.finish_reason) == ("a", [], "abort")
    assert not core.has_work()


def test_a_silent_abort_is_not_answered():
    core = make_core()
    core.add_request(make_request("a"))
    core.step()
    core.abort("a", reason="stop", silent=True)
    assert not core.has_work()
    assert core.step() == []
    assert core.stats().num_finished["stop"] == 1


def test_an_id_that_is_live_is_refused():
    core = make_core()
    core.add_request(make_request("a"))
    with pytest.raises(InvalidRequestError, match="choose another id") as caught:
        core.add_request(make_request("a"))
    assert caught.value.param == "request_id"


def test_the_prefix_cache_is_reset_only_while_nothing_runs():
    core = make_core()
    core.add_request(make_request("a"))
    core.step()
    assert not core.reset_prefix_cache()
    run_until_idle(core)
    assert core.reset_prefix_cache()
    core.add_request(make_request("b"))
    assert {0} == {delta.num_cached_tokens for delta in run_until_idle(core)}


def test_prefix_caching_can_be_switched_off():
    core = make_core(enable_prefix_caching=False)
    for name in "ab":
        core.add_request(make_request(name))
        assert {0} == {delta.num_cached_tokens for delta in run_until_idle(core)}
    assert core.stats().prefix_query_tokens == 0


def test_an_error_of_a_row_is_a_delta_of_that_request():
    executor = ScriptedExecutor(SCRIPT, make_kv_plan(32))
    core = make_core(executor)
    good = make_request("good")
    core.add_request(good)
    core.add_request(make_request("bad", range(50, 60)))
    executor.fail_row("bad", "NaN in the logits")
    deltas = run_until_idle(core)
    (end,) = [delta for delta in deltas if delta.request_id == "bad"]
    assert (end.finish_reason, end.error, end.token_ids) == ("error", "NaN in the logits", [])
    assert solo_answer(good, SCRIPT)[0] == tokens_of(deltas, "good")


def test_a_failed_run_ends_what_runs_and_the_engine_goes_on(caplog: pytest.LogCaptureFixture):
    executor = ScriptedExecutor(SCRIPT, make_kv_plan(32))
    core = make_core(executor, max_num_seqs=1)
    waiting = make_request("waiting", range(50, 60))
    core.add_request(make_request("running"))
    core.add_request(waiting)
    core.step()
    executor.fail_run(OSError("out of memory"))
    (end,) = core.step()
    assert (end.request_id, end.finish_reason) == ("running", "error")
    assert "out of memory" in (end.error or "")
    assert "step failed" in caplog.text
    deltas = run_until_idle(core)
    assert solo_answer(waiting, SCRIPT)[0] == tokens_of(deltas, "waiting")


def test_a_dead_executor_ends_the_engine_for_good():
    executor = ScriptedExecutor(SCRIPT, make_kv_plan(32))
    core = make_core(executor)
    core.add_request(make_request("a"))
    death = EngineDeadError("rank 1 is gone")
    executor.fail_run(death)
    with pytest.raises(EngineDeadError, match="rank 1"):
        core.step()
    with pytest.raises(EngineDeadError) as caught:
        core.add_request(make_request("b"))
    assert death is caught.value.__cause__
    with pytest.raises(EngineDeadError):
        core.step()


class WrongAnswers:
    """An executor whose results do not belong to the plan."""

    compute_s = 0.0

    def __init__(self, result: StepResult) -> None:
        self.result = result

    def kv_tier(self) -> None:
        return None

    def describe(self) -> str:
        return "wrong"

    def start(self, report: ReportProgress) -> MemoryPlan:
        return ScriptedExecutor(SCRIPT, make_kv_plan(8)).start(report)

    def run(self, plan: StepPlan) -> StepResult:
        return self.result

    def stop(self) -> None:
        pass


WRONG = [
    StepResult(step_id=0, sampled=[]),
    StepResult(step_id=9, sampled=[1]),
    StepResult(step_id=0, sampled=[1], accepted=[0]),
]


@pytest.mark.parametrize("result", WRONG)
def test_an_answer_that_does_not_belong_to_the_plan_fails_the_step(result: StepResult):
    """It is refused before anything is changed by it."""
    core = make_core(WrongAnswers(result))
    core.add_request(make_request("a"))
    (end,) = core.step()
    assert end.finish_reason == "error"
    assert "the executor" in (end.error or "")
    assert core.stats().num_used_blocks == 0


def test_gauges_come_from_live_state_and_go_back_to_zero():
    core = make_core(max_num_seqs=2)
    for number in range(3):
        core.add_request(make_request(str(number), range(number, number + 10)))
    core.step()
    busy = core.stats()
    assert (
        busy.num_running,
        busy.num_waiting,
        busy.num_used_blocks,
        busy.num_blocks,
    ) == (2, 1, 6, 32)
    assert busy.kv_cache_usage == 6 / 32
    run_until_idle(core)
    idle = core.stats()
    assert (idle.num_running, idle.num_waiting, idle.num_used_blocks) == (0, 0, 0)


def test_counters_count_every_request_once_by_its_last_state():
    executor = ScriptedExecutor(
        answers({"stop": [1, 2], "length": [1, 1, 1, 1], "abort": [], "error": []}),
        make_kv_plan(32),
    )
    core = make_core(executor)
    for name in ("stop", "length", "abort", "error"):
        core.add_request(make_request(name, range(10), eos_token_ids=[2]))
    executor.fail_row("error", "bad")
    core.step()
    core.abort("abort")
    run_until_idle(core)
    stats = core.stats()
    assert stats.num_finished == {"stop": 1, "length": 1, "abort": 1, "error": 1}
    assert stats.num_prompt_tokens == 40
    assert stats.num_generation_tokens == 2 + 4 + 1
    assert (stats.prefix_query_tokens, stats.prefix_hit_tokens) == (40, 24)


def test_preemptions_are_counted():
    core = make_core(ScriptedExecutor(SCRIPT, make_kv_plan(4)))
    core.add_request(make_request("old", range(8)))
    core.add_request(make_request("young", range(50, 58)))
    run_until_idle(core)
    assert core.stats().num_preemptions == 1


def test_step_times_tell_computing_from_the_rest():
    clock = ManualClock()

    def take_two_seconds(plan: StepPlan) -> None:
        clock.advance(2.0)

    executor = ScriptedExecutor(
        *(SCRIPT, make_kv_plan(8)),
        before_run=take_two_seconds,
        step_compute_s=1.5,
        step_sample_s=0.03,
    )
    core = make_core(executor, clock)
    core.add_request(make_request("a", range(10), max_tokens=3))
    run_until_idle(core)
    stats = core.stats()
    assert (stats.num_steps, stats.compute_s, stats.python_s) == (3, 4.5, 1.5)
    assert stats.sample_s == pytest.approx(0.09)
    for counts, seconds in (
        (stats.steps_by_compute_s, 1.5),
        (stats.steps_by_python_s, 0.5),
        (stats.steps_by_sample_s, 0.03),
    ):
        place = next(i for i, bound in enumerate(STEP_TIME_BOUNDS) if seconds <= bound)
        assert counts == [3 if i == place else 0 for i in range(len(STEP_TIME_BOUNDS) + 1)]
    assert stats.last_step is not None
    assert (
        stats.last_step.num_rows,
        stats.last_step.num_tokens,
        stats.last_step.compute_s,
    ) == (1, 1, 1.5)


def test_the_first_delta_tells_when_its_request_was_admitted():
    """By the engine's clock, once; the time in the queue is not part of it."""
    clock = ManualClock(5.0)
    executor = ScriptedExecutor(SCRIPT, make_kv_plan(8), before_run=lambda _: clock.advance(2.0))
    core = make_core(executor, clock, max_num_seqs=1)
    for name in "ab":
        core.add_request(make_request(name, range(10), max_tokens=2))
    deltas = run_until_idle(core)
    assert [("a", 5.0), ("a", None), ("b", 9.0), ("b", None)] == [
        (delta.request_id, delta.admitted_s) for delta in deltas
    ]


def test_a_long_prompt_was_admitted_with_its_first_chunk():
    clock = ManualClock()
    executor = ScriptedExecutor(SCRIPT, make_kv_plan(8), before_run=lambda _: clock.advance(2.0))
    core = make_core(executor, clock, max_num_batched_tokens=4)
    core.add_request(make_request("a", range(12), max_tokens=1))
    assert [0.0] == [delta.admitted_s for delta in run_until_idle(core)]
    assert 6.0 == clock.now_s()


def test_a_preempted_request_is_not_admitted_again():
    core = make_core(ScriptedExecutor(SCRIPT, make_kv_plan(4)))
    core.add_request(make_request("old", range(8)))
    core.add_request(make_request("young", range(50, 58)))
    deltas = run_until_idle(core)
    assert core.stats().num_preemptions == 1
    assert 2 == len([delta for delta in deltas if delta.admitted_s is not None])


def test_a_silent_abort_takes_the_time_of_admission_with_it():
    """The next request with that id has another, or none when it never ran."""
    clock = ManualClock()
    executor = ScriptedExecutor(SCRIPT, make_kv_plan(8), before_run=lambda _: clock.advance(2.0))
    core = make_core(executor, clock, max_num_batched_tokens=4)
    core.add_request(make_request("a", range(12)))
    assert [] == core.step()
    core.abort("a", silent=True)
    core.add_request(make_request("a"))
    core.abort("a")
    assert [None] == [delta.admitted_s for delta in core.step()]
    core.add_request(make_request("a", [7], max_tokens=1))
    assert [2.0] == [delta.admitted_s for delta in run_until_idle(core)]


def test_logprobs_reach_the_delta():
    core = make_core()
    core.add_request(make_request("a", max_tokens=1, sampling=SamplingSpec(num_logprobs=0)))
    (delta,) = run_until_idle(core)
    assert delta.logprobs is not None
    assert delta.token_ids == delta.logprobs[0].token_ids


def test_two_cores_in_one_process_do_not_meet():
    first, second = make_core(), make_core()
    for core in (first, second):
        core.add_request(make_request("a"))
    assert [delta.token_ids for delta in run_until_idle(first)] == [
        delta.token_ids for delta in run_until_idle(second)
    ]
    assert 0 == first.stats().prefix_hit_tokens == second.stats().prefix_hit_tokens


def test_stop_may_be_called_twice():
    core = make_core()
    core.stop()
    core.stop()


def test_choices_and_beams_go_through_the_core():
    """A search brings one delta, dated with the admission of its first beam."""
    clock = ManualClock(5.0)
    executor = ScriptedExecutor(SCRIPT, make_kv_plan(32), before_run=lambda _: clock.advance(2.0))
    core = make_core(executor, clock)
    core.add_request(make_request("a", range(10)))
    core.add_request(make_request("a/1", range(10), fork_of="a"))
    core.add_request(make_request("s", range(50, 55), beam=BeamSpec(beam_width=2, num_returned=2)))
    deltas = run_until_idle(core)
    assert tokens_of(deltas, "a") == tokens_of(deltas, "a/1")
    (search,) = [delta for delta in deltas if delta.request_id == "s"]
    assert len(search.beams or []) == 2
    assert search.admitted_s == 5.0


def test_swaps_are_counted_and_timed():
    plan = make_kv_plan(4, num_host_slots=4)
    core = make_core(ScriptedExecutor(SCRIPT, plan, step_swap_s=0.5), preemption_mode="swap")
    core.add_request(make_request("old", range(8)))
    core.add_request(make_request("young", range(50, 58)))
    deltas = run_until_idle(core)
    stats = core.stats()
    assert (stats.num_preemptions, stats.num_swaps) == (1, 1)
    assert stats.num_blocks_swapped_out == 2
    assert stats.num_blocks_swapped_in >= 1
    assert stats.swap_s == 1.0
    assert [1] == [one.num_swaps for one in deltas if one.num_swaps]


def test_a_deadline_passes_by_the_engines_clock():
    clock = ManualClock()
    executor = ScriptedExecutor(SCRIPT, make_kv_plan(8), before_run=lambda _: clock.advance(2.0))
    core = make_core(executor, clock)
    core.add_request(make_request("a", max_tokens=9, deadline_s=5.0))
    end = run_until_idle(core)[-1]
    assert (end.finish_reason, end.stop_reason) == ("abort", "timeout")
