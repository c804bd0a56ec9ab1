"""SyncEngine: all jobs are answered in order, and leaving early ends what runs."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from octavo.contracts.step import StepPlan
from octavo.engine.sync_engine import SyncEngine
from octavo.errors import EngineDeadError, InvalidRequestError
from octavo.executor.scripted import ScriptedExecutor
from octavo.foundation.clock import SystemClock
from octavo.outputs import RequestOutput
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.support.scripted_engine import says, scripted_engine

ANSWERS = {"One": " two", "Two": " three four five", "Three": " four"}
GREEDY = SamplingParams(temperature=0, max_tokens=20)


def make_engine(**options: Any) -> SyncEngine:
    return SyncEngine(scripted_engine(says(ANSWERS), **options), SystemClock())


def run(engine: SyncEngine, *prompts: str, params: SamplingParams = GREEDY) -> list[RequestOutput]:
    return engine.run([engine.check(prompt, params) for prompt in prompts])


def assert_idle(engine: SyncEngine) -> None:
    """Nothing runs, waits or holds a block."""
    stats = engine.engine.core.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_used_blocks) == (0, 0, 0)
    assert not engine.engine.core.has_work()


def test_results_come_in_the_order_of_the_jobs() -> None:
    """However long each answer is."""
    engine = make_engine()

    outputs = run(engine, "Two", "One", "Three")

    assert [output.prompt for output in outputs] == ["Two", "One", "Three"]
    assert [output.outputs[0].text for output in outputs] == [" three four five", " two", " four"]
    assert all(output.finished for output in outputs)
    assert_idle(engine)


def test_more_jobs_than_rows_are_answered() -> None:
    """What does not run yet waits."""
    engine = make_engine(scheduler={"max_num_seqs": 2}, num_blocks=12)

    outputs = run(engine, *(["One", "Two", "Three"] * 5))

    assert [output.outputs[0].text for output in outputs] == [
        ANSWERS[p] for p in ["One", "Two", "Three"] * 5
    ]
    assert_idle(engine)


def test_a_stop_string_frees_the_request_at_once() -> None:
    """The core does not go on to max_tokens."""
    engine = make_engine()

    (output,) = run(engine, "Two", params=SamplingParams(stop=" four", max_tokens=200))

    assert output.outputs[0].text == " three"
    assert engine.engine.core.stats().num_finished["stop"] == 1
    assert_idle(engine)


def test_choices_come_in_one_output() -> None:
    """n answers by index, once all are done."""
    engine = make_engine()

    (output,) = run(engine, "Two", params=SamplingParams(n=4, max_tokens=20))

    assert [choice.index for choice in output.outputs] == [0, 1, 2, 3]
    assert {choice.text for choice in output.outputs} == {" three four five"}


def test_a_failed_request_is_reported_in_its_place(caplog: pytest.LogCaptureFixture) -> None:
    """The others are answered; the log says what went wrong."""
    executors: list[ScriptedExecutor] = []
    engine = make_engine(on_executor=executors.append)
    jobs = [engine.check(prompt, GREEDY) for prompt in ("One", "Two")]
    executors[0].fail_row(jobs[0].requests[0].request_id, "row went wrong")

    outputs = engine.run(jobs)

    assert [output.outputs[0].finish_reason for output in outputs] == ["error", "stop"]
    assert "row went wrong" in caplog.text
    assert_idle(engine)


def interrupt_at(step: int) -> Callable[[StepPlan], None]:
    """As if the user pressed Ctrl-C in that step."""
    seen = []

    def before_run(plan: StepPlan) -> None:
        seen.append(plan)
        if len(seen) == step:
            signal.raise_signal(signal.SIGINT)

    return before_run


@pytest.mark.parametrize("step", [1, 3])
def test_an_interrupt_ends_what_runs(step: int) -> None:
    """The step in flight is finished first, and the next call finds an engine that works."""
    engine = make_engine(before_run=interrupt_at(step))

    with pytest.raises(KeyboardInterrupt):
        run(engine, "One", "Two", "Three")

    assert_idle(engine)
    assert engine.engine.core.stats().num_steps == step
    (output,) = run(engine, "Two")
    assert output.outputs[0].text == ANSWERS["Two"]


def test_a_dead_engine_raises() -> None:
    """Waiting for an answer would never end."""
    executors: list[ScriptedExecutor] = []
    engine = make_engine(on_executor=executors.append)
    executors[0].fail_run(EngineDeadError("no device"))

    with pytest.raises(EngineDeadError):
        run(engine, "One")
    with pytest.raises(EngineDeadError):
        run(engine, "One")


def test_a_stopped_engine_refuses_requests() -> None:
    """The error says why."""
    engine = make_engine()
    engine.stop()

    with pytest.raises(EngineDeadError, match="shut down"):
        engine.check("One", GREEDY)


def test_requests_can_be_stepped_by_hand() -> None:
    """As with vLLM's LLMEngine: outputs of the kind that was asked for, step by step."""
    engine = make_engine()
    engine.add_request("a", "Two", GREEDY.replace(output_kind=RequestOutputKind.DELTA))
    engine.add_request("b", "One", GREEDY.replace(output_kind=RequestOutputKind.FINAL_ONLY))

    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()

    assert "".join(o.outputs[0].text for o in outputs if o.request_id == "a") == ANSWERS["Two"]
    assert [o.outputs[0].text for o in outputs if o.request_id == "b"] == [ANSWERS["One"]]
    assert_idle(engine)


def test_a_live_id_is_not_given_twice() -> None:
    """After its end it may be used again."""
    engine = make_engine()
    engine.add_request("a", "One", GREEDY)

    with pytest.raises(InvalidRequestError, match="request_id 'a' is live"):
        engine.add_request("a", "Two", GREEDY)

    while engine.has_unfinished_requests():
        engine.step()
    engine.add_request("a", "Two", GREEDY)


def test_a_request_can_be_aborted_by_hand() -> None:
    """No output follows; unknown ids are skipped."""
    engine = make_engine()
    engine.add_request("a", "One", GREEDY)
    engine.add_request("b", "Two", GREEDY)
    engine.step()

    engine.abort_request(["a", "unknown"])
    seen = set()
    while engine.has_unfinished_requests():
        seen |= {output.request_id for output in engine.step()}

    assert seen == {"b"}
    assert_idle(engine)


def test_a_run_leaves_requests_added_by_hand_alone() -> None:
    """Their outputs wait for the next step."""
    engine = make_engine()
    engine.add_request("a", "One", GREEDY.replace(output_kind=RequestOutputKind.FINAL_ONLY))

    assert len(run(engine, "Two")) == 1

    (output,) = engine.step()
    assert (output.request_id, output.outputs[0].text) == ("a", ANSWERS["One"])
