"""EngineThread: commands run between steps, in order; everybody is answered at the end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from octavo.contracts.delta import TokenDelta
from octavo.contracts.progress import ReportProgress
from octavo.contracts.request import EngineRequest
from octavo.contracts.step import StepPlan
from octavo.engine.core import EngineCore
from octavo.engine.detached import EngineListener, EngineThread
from octavo.errors import EngineDeadError, ModelFileError, OverloadedError
from octavo.executor.scripted import ScriptedExecutor
from octavo.foundation.clock import SystemClock
from tests.support.builders import make_request
from tests.support.scripted_engine import scripted_engine

WAIT_S = 30


class Rig:
    """An engine thread, and what it told its listener."""

    def __init__(self) -> None:
        self.steps: list[list[TokenDelta]] = []
        self.deaths: list[BaseException] = []
        self.has_died = threading.Event()
        self.gate = threading.Event()
        self.is_reached = threading.Event()
        self.executors: list[ScriptedExecutor] = []
        self.thread = EngineThread(
            lambda report: scripted_engine(
                on_executor=self.executors.append,
                before_run=self._before_run,
                num_blocks=4_000,
                max_model_len=16_000,
            ),
            EngineListener(lambda phase, share: None, self.steps.append, self._died),
            SystemClock(),
        )
        self.thread.loaded.result(WAIT_S)

    def _before_run(self, _: StepPlan) -> None:
        self.is_reached.set()
        self.gate.wait(WAIT_S)

    def _died(self, error: BaseException) -> None:
        self.deaths.append(error)
        self.has_died.set()

    def live(self) -> list[str]:
        """Ids of requests that run or wait, after all commands sent so far."""
        return self.thread.call(lambda core: sorted(core._scheduler.requests)).result(WAIT_S)


@pytest.fixture
def rig() -> Iterator[Rig]:
    built = Rig()
    yield built
    built.gate.set()
    built.thread.stop()


def endless(request_id: str) -> EngineRequest:
    """Runs for seconds, so a test can rely on it being live."""
    return make_request(request_id, [7, 8], max_tokens=10_000)


def test_a_step_is_one_message_with_all_its_deltas(rig: Rig) -> None:
    """However many requests it served."""
    rig.gate.set()
    rig.thread.add([make_request(name, [7, 8], max_tokens=1) for name in "abc"])
    rig.live()
    while rig.live():
        pass

    assert [[delta.request_id for delta in step] for step in rig.steps] == [["a", "b", "c"]]


def test_commands_run_in_order_between_two_steps(rig: Rig) -> None:
    """An abort that was sent during a step is carried out before the next plan."""
    rig.thread.add([endless("a"), endless("b")])
    rig.is_reached.wait(WAIT_S)
    rig.thread.add([endless("c")])
    rig.thread.abort(["a", "c", "unknown"], "abort")
    answer = rig.thread.call(lambda core: core.stats().num_steps)
    assert not answer.done()

    rig.gate.set()

    assert answer.result(WAIT_S) == 1
    assert rig.live() == ["b"]


def test_an_abort_is_silent(rig: Rig) -> None:
    """No delta follows it."""
    rig.thread.add([endless("a")])
    rig.is_reached.wait(WAIT_S)
    rig.thread.abort(["a"], "stop")
    rig.gate.set()

    assert rig.live() == []
    assert all(delta.finish_reason is None for step in rig.steps for delta in step)


def test_a_request_that_the_core_refuses_fails_alone(rig: Rig) -> None:
    """Its neighbours in the same command run."""
    rig.thread.add([endless("a")])
    rig.is_reached.wait(WAIT_S)
    rig.thread.add([endless("a"), endless("b")])
    rig.gate.set()

    assert rig.live() == ["a", "b"]
    errors = [delta for step in rig.steps for delta in step if delta.finish_reason == "error"]
    assert len(errors) == 1
    assert errors[0].request_id == "a"
    assert rig.deaths == []


def test_what_the_core_refuses_is_told_as_the_fault_of_the_caller(rig: Rig) -> None:
    rig.thread.add([endless("a"), endless("a")])
    rig.gate.set()
    rig.live()
    [failed] = [delta for step in rig.steps for delta in step if delta.finish_reason == "error"]
    assert failed.is_unanswerable


def test_where_too_many_wait_none_of_several_requests_is_added(rig: Rig) -> None:
    """Room for two of these: the pool has 4,000 blocks of four tokens."""
    rig.gate.set()
    large = [make_request(name, [ord(name)] * 7_000, max_tokens=1) for name in "abcdef"]
    rig.is_reached.clear()
    rig.gate.clear()
    rig.thread.add([endless("running")])
    rig.is_reached.wait(WAIT_S)
    taken = rig.thread.add_if_few_wait(large[:3], 1)
    refused = rig.thread.add_if_few_wait(large[3:5], 1)
    rig.gate.set()

    assert taken.result(WAIT_S) is None
    with pytest.raises(OverloadedError, match="1 requests wait already, at most 1 may") as caught:
        refused.result(WAIT_S)
    assert caught.value.retry_after_s >= 1
    assert not {"d", "e"} & set(rig.live())


def test_a_call_that_raises_fails_its_caller_only(rig: Rig) -> None:
    """The engine goes on."""

    def fail(core: EngineCore) -> None:
        raise ValueError("the caller's fault")

    with pytest.raises(ValueError, match="the caller's fault"):
        rig.thread.call(fail).result(WAIT_S)

    assert rig.live() == []


def test_a_call_that_nobody_waits_for_any_more_is_skipped(rig: Rig) -> None:
    """Cancelled before its turn."""
    seen: list[EngineCore] = []
    rig.thread.add([make_request("a", [7], max_tokens=1)])
    rig.is_reached.wait(WAIT_S)
    call = rig.thread.call(seen.append)
    assert call.cancel()
    rig.gate.set()

    rig.live()
    assert seen == []
    with pytest.raises(CancelledError):
        call.result(WAIT_S)


def test_stopping_waits_for_the_step_in_flight(rig: Rig) -> None:
    """Afterwards the thread is gone, calls fail, and stopping again does nothing."""
    rig.thread.add([endless("a")])
    rig.is_reached.wait(WAIT_S)
    rig.thread.request_stop()
    waiting = rig.thread.call(EngineCore.stats)
    assert rig.thread.is_alive
    rig.gate.set()
    rig.thread.stop()

    assert not rig.thread.is_alive
    assert rig.executors[0]._rows == {}  # the executor was stopped, too
    for call in (waiting, rig.thread.call(EngineCore.stats)):
        with pytest.raises(EngineDeadError, match="has been stopped"):
            call.result(WAIT_S)
    rig.thread.add([endless("b")])
    rig.thread.stop()
    assert rig.deaths == []


def test_death_is_reported_once_and_answers_every_call(rig: Rig) -> None:
    """Those in the queue and those that come later get the cause."""
    rig.executors[0].fail_run(EngineDeadError("no device"))
    rig.thread.add([endless("a")])
    rig.is_reached.wait(WAIT_S)
    waiting = rig.thread.call(EngineCore.stats)
    rig.gate.set()
    rig.has_died.wait(WAIT_S)

    for call in (waiting, rig.thread.call(EngineCore.stats)):
        with pytest.raises(EngineDeadError, match="no device"):
            call.result(WAIT_S)
    rig.thread.stop()
    assert [str(death) for death in rig.deaths] == ["no device"]


def test_loading_can_be_given_up() -> None:
    """At the next report of progress; nobody waits for a model that is not wanted any more."""
    is_asked = threading.Event()

    def build(report: ReportProgress) -> Any:
        for percent in range(100):
            report("weights", percent / 100)
            is_asked.wait(WAIT_S)
        raise AssertionError("it loaded to the end")

    ignore = EngineListener(lambda phase, share: None, lambda deltas: None, lambda error: None)
    thread = EngineThread(build, ignore, SystemClock())
    thread.request_stop()
    is_asked.set()

    with pytest.raises(EngineDeadError, match="stopped while it was loading"):
        thread.loaded.result(WAIT_S)
    thread.stop()


def test_what_loading_raises_reaches_whoever_waits() -> None:
    """Also those who called before it failed."""
    go_on = threading.Event()

    def build(report: object) -> Any:
        go_on.wait(WAIT_S)
        raise ModelFileError("no such model")

    ignore = EngineListener(lambda phase, share: None, lambda deltas: None, lambda error: None)
    thread = EngineThread(build, ignore, SystemClock())
    early = thread.call(EngineCore.stats)
    assert not thread.loaded.cancel()
    go_on.set()

    for future in (thread.loaded, early, thread.call(EngineCore.stats)):
        with pytest.raises(ModelFileError, match="no such model"):
            future.result(WAIT_S)
    thread.stop()
