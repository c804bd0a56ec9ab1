"""AsyncLLM: streams, slow readers, death, loading, draining."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from octavo.contracts.progress import ReportProgress
from octavo.contracts.step import StepPlan
from octavo.engine.async_engine import LONG_TEXT, AsyncLLM, LoadProgress
from octavo.engine.build import Engine
from octavo.engine.health import STALLED_AFTER_S
from octavo.errors import (
    EngineDeadError,
    InvalidRequestError,
    ModelFileError,
    OverloadedError,
    RequestFailedError,
)
from octavo.executor.scripted import ScriptedExecutor
from octavo.foundation.clock import ManualClock
from octavo.sampling_params import BeamSearchParams, RequestOutputKind, SamplingParams
from tests.support.scripted_engine import says, scripted_engine
from tests.support.serving import ANSWERS, ENDLESS, SHORT, Gate, assert_idle, serving, text_of
from tests.support.tiny_tokenizer import tiny_tokenizer

DELTA = RequestOutputKind.DELTA


# ---- streams


async def test_a_stream_of_deltas_joins_to_the_answer() -> None:
    """The last output has the finish reason."""
    async with serving() as engine:
        outputs = [output async for output in engine.generate("Two", SHORT, "mine")]

    assert "".join(output.outputs[0].text for output in outputs) == ANSWERS["Two"]
    assert [output.finished for output in outputs[:-1]] == [False] * (len(outputs) - 1)
    assert outputs[-1].outputs[0].finish_reason == "stop"
    assert {output.request_id for output in outputs} == {"mine"}


async def test_a_final_output_can_be_awaited() -> None:
    """One output, complete."""
    params = SamplingParams(n=3, max_tokens=20, output_kind=RequestOutputKind.FINAL_ONLY)
    async with serving() as engine:
        (output,) = [output async for output in engine.generate("Two", params)]

    assert [choice.text for choice in output.outputs] == [ANSWERS["Two"]] * 3


async def test_a_beam_search_is_awaited() -> None:
    """All answers at once, the best first; a wrong one is refused by name."""
    params = BeamSearchParams(beam_width=2, max_tokens=3, ignore_eos=True)
    async with serving() as engine:
        output = await engine.beam_search("Two", params)
        with pytest.raises(InvalidRequestError, match="beam_width"):
            await engine.beam_search("Two", BeamSearchParams(beam_width=128, max_tokens=3))

    prompt = tiny_tokenizer().encode("Two")
    assert [len(sequence.tokens) for sequence in output.sequences] == [len(prompt) + 3] * 2
    assert output.sequences[0].cum_logprob >= output.sequences[1].cum_logprob


async def test_an_answer_that_takes_too_long_ends_as_it_is() -> None:
    """With the reason of the finish, and of the stop."""
    clock = ManualClock()
    options: dict[str, Any] = {"clock": clock, "before_run": lambda plan: clock.advance(1.0)}
    async with serving(**options) as engine:
        outputs = [output async for output in engine.generate("Two", ENDLESS, timeout=7.5)]

    last = outputs[-1].outputs[0]
    assert (last.finish_reason, last.stop_reason) == ("abort", "timeout")
    assert 0 < sum(len(output.outputs[0].token_ids) for output in outputs) <= 8


async def test_tenants_share_no_cached_blocks() -> None:
    """The same prompt of another one is computed again."""
    prompt = "one two three four five six seven eight nine"
    cached = []
    async with serving() as engine:
        for tenant in ("ann", "ben", "ann", ""):
            outputs = [one async for one in engine.generate(prompt, SHORT, tenant=tenant)]
            cached.append(outputs[-1].num_cached_tokens)

    assert cached[2]
    assert [cached[0], cached[1], cached[3]] == [0, 0, 0]


async def test_many_streams_run_at_the_same_time() -> None:
    """Each gets its own answer."""
    async with serving(num_blocks=40, scheduler={"max_num_seqs": 4}) as engine:
        prompts = list(ANSWERS) * 10
        texts = await asyncio.gather(*(text_of(engine.generate(p, SHORT)) for p in prompts))

    assert texts == [ANSWERS[prompt] for prompt in prompts]


async def test_a_stop_string_ends_the_request_in_the_core() -> None:
    """It does not run on to max_tokens."""
    async with serving() as engine:
        text = await text_of(engine.generate("Two", ENDLESS.replace(stop=" four")))
        await assert_idle(engine)
        stats = await engine.stats()

    assert text == " three"
    assert stats.num_finished["stop"] == 1


async def test_a_wrong_request_is_refused_before_it_is_queued() -> None:
    """The error names the field; the engine has not heard of it."""
    async with serving() as engine:
        with pytest.raises(InvalidRequestError) as caught:
            await text_of(engine.generate([10**9], SHORT))
        assert caught.value.param == "prompt"
        stats = await engine.stats()

    assert stats.num_prompt_tokens == 0


async def test_a_long_text_is_tokenised_like_a_short_one() -> None:
    """In another thread, so that the loop goes on; the refusal is the same."""
    text = "One two three. " * (LONG_TEXT // 10)
    async with serving(max_model_len=256) as engine:
        with pytest.raises(InvalidRequestError, match="maximum context length"):
            await engine.check(text, SHORT)
    async with serving() as engine:
        checked = await engine.check(text, SHORT)

    assert checked.prompt.token_ids == tiny_tokenizer().encode(text)


async def test_live_requests_may_share_a_name() -> None:
    """Each goes its own way, and ending one leaves the other."""
    async with serving() as engine:
        first, second = (engine.generate("Two", ENDLESS, "same") for _ in range(2))
        await anext(first)
        await anext(second)
        await first.aclose()
        assert (await anext(second)).request_id == "same"
        await second.aclose()

        assert await text_of(engine.generate("Two", SHORT, "same")) == ANSWERS["Two"]


async def test_a_request_without_a_name_gets_one() -> None:
    """A different one each time."""
    async with serving() as engine:
        names = [(await engine.check("One", SHORT)).request_id for _ in range(2)]

    assert len(set(names)) == 2


async def test_a_slow_reader_gets_several_steps_at_once() -> None:
    """And does not hold up others meanwhile."""
    async with serving() as engine:
        slow = engine.generate(
            "One", SamplingParams(max_tokens=1000, ignore_eos=True, output_kind=DELTA)
        )
        first = await anext(slow)
        for _ in range(3):
            assert await text_of(engine.generate("Two", SHORT)) == ANSWERS["Two"]
        while (await engine.stats()).num_running:
            pass
        rest = [output async for output in slow]

    assert len(rest) <= 1
    assert sum(len(output.outputs[0].token_ids) for output in (first, *rest)) == 1000


async def test_a_loop_that_is_held_up_is_called_once() -> None:
    """A call for each step would keep a fast engine's loop busy with nothing but the calls."""
    loop = asyncio.get_running_loop()
    calls, steps, enough = [], count(), threading.Event()
    call_soon_threadsafe = loop.call_soon_threadsafe

    def counted(*arguments: Any, **options: Any) -> asyncio.Handle:
        calls.append(arguments)
        return call_soon_threadsafe(*arguments, **options)

    def before_run(plan: StepPlan) -> None:
        if next(steps) == 100:
            enough.set()

    async with serving(before_run=before_run) as engine:
        stream = engine.generate("One", SamplingParams(max_tokens=200, ignore_eos=True))
        loop.call_soon_threadsafe = counted  # type: ignore[method-assign]
        reading = asyncio.ensure_future(text_of(stream))
        await asyncio.sleep(0)
        assert await engine.check("Two", SHORT)
        calls.clear()
        assert enough.wait(60)
        assert len(calls) <= 1
        await reading


# ---- faults


async def test_one_failed_request_leaves_the_others_alone() -> None:
    """Its reader gets the reason."""
    executors: list[ScriptedExecutor] = []
    async with serving(on_executor=executors.append) as engine:
        checked = await engine.check("One", SHORT)
        executors[0].fail_row(checked.requests[0].request_id, "row went wrong")
        failing = engine.submit(checked)
        text = await text_of(engine.generate("Two", SHORT))
        with pytest.raises(RequestFailedError, match="row went wrong"):
            await anext(failing)
        assert [output async for output in failing] == []

    assert text == ANSWERS["Two"]


async def test_a_lost_step_fails_its_requests_and_no_later_one() -> None:
    """The engine goes on."""
    executors: list[ScriptedExecutor] = []
    async with serving(on_executor=executors.append) as engine:
        executors[0].fail_run(ValueError("numbers went wrong"))
        with pytest.raises(RequestFailedError, match="numbers went wrong"):
            await text_of(engine.generate("One", SHORT))

        assert await text_of(engine.generate("Two", SHORT)) == ANSWERS["Two"]
        await engine.check_health()


async def test_the_death_of_the_engine_reaches_every_reader() -> None:
    """Those who wait, those who come later, and the health check."""
    gate = Gate()
    executors: list[ScriptedExecutor] = []
    options = {"before_run": gate.before_run, "on_executor": executors.append}
    async with serving(**options) as engine:
        executors[0].fail_run(EngineDeadError("the device is gone"))
        readers = [asyncio.create_task(text_of(engine.generate("Two", SHORT))) for _ in range(5)]
        await asyncio.to_thread(gate.is_reached.wait, 30)
        assert engine.is_running
        gate.open()
        results = await asyncio.gather(*readers, return_exceptions=True)

        for result in results:
            assert isinstance(result, EngineDeadError)
            assert "the device is gone" in str(result)
            assert isinstance(result.__cause__, EngineDeadError)
        assert len({id(result) for result in results}) == 5
        assert engine.errored
        assert not engine.is_running
        for attempt in (
            engine.check_health(),
            engine.stats(),
            text_of(engine.generate("One", SHORT)),
        ):
            with pytest.raises(EngineDeadError, match="the device is gone"):
                await attempt


async def test_a_step_that_takes_minutes_is_unhealthy() -> None:
    """A step of a second is not; nothing is queued for the probe."""
    gate, clock = Gate(), ManualClock()
    engine = AsyncLLM(
        lambda report: scripted_engine(says(ANSWERS), before_run=gate.before_run), clock
    )
    await engine.ready()
    reader = asyncio.create_task(text_of(engine.generate("Two", SHORT)))
    await asyncio.to_thread(gate.is_reached.wait, 30)

    clock.advance(1.0)
    await engine.check_health()
    clock.advance(STALLED_AFTER_S)
    with pytest.raises(EngineDeadError, match="a step has been running for 601 s"):
        await engine.check_health()

    gate.open()
    assert await reader == ANSWERS["Two"]
    await engine.check_health()
    await engine.shutdown()


# ---- loading


async def test_loading_goes_on_in_the_background() -> None:
    """The constructor returns at once; progress can be seen; an impatient waiter ends nothing."""
    go_on = threading.Event()

    def build(report: ReportProgress) -> Engine:
        report("weights", 0.5)
        go_on.wait(30)
        return scripted_engine(says(ANSWERS))

    engine = AsyncLLM(build)
    assert not engine.is_ready
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(engine.ready(), 0.01)
    assert engine.load_progress == LoadProgress("weights", 0.5)
    assert engine.is_running
    await engine.check_health()

    go_on.set()
    assert await text_of(engine.generate("Two", SHORT)) == ANSWERS["Two"]
    assert engine.is_ready
    assert engine.load_progress == LoadProgress("ready", 1.0)
    await engine.shutdown()


async def test_a_model_that_cannot_be_loaded_is_reported_to_everyone() -> None:
    """`ready` raises the cause, the health check says that the engine is dead."""

    def build(report: ReportProgress) -> Engine:
        raise ModelFileError("no such model")

    engine = AsyncLLM(build)

    for _ in range(2):
        with pytest.raises(ModelFileError, match="no such model"):
            await engine.ready()
    with pytest.raises(ModelFileError, match="no such model"):
        await text_of(engine.generate("One", SHORT))
    with pytest.raises(EngineDeadError, match="no such model"):
        await engine.check_health()
    assert engine.errored
    assert not engine.is_running
    await engine.shutdown(drain_s=5)


# ---- the whole engine


async def test_the_prefix_cache_can_be_reset_when_nothing_runs() -> None:
    """While a request runs it says no."""
    prompt = [7] * 20
    async with serving() as engine:
        running = engine.generate(prompt, ENDLESS)
        await anext(running)
        assert not await engine.reset_prefix_cache()
        await running.aclose()
        assert await engine.reset_prefix_cache()
        (first, *_) = [output async for output in engine.generate(prompt, SHORT)]

    assert first.num_cached_tokens == 0


async def test_an_engine_serves_one_loop_at_a_time() -> None:
    """A second loop is told so; when the first has nothing open it may take over."""
    async with serving() as engine:
        outputs = engine.generate("Two", ENDLESS)
        await anext(outputs)

        def elsewhere() -> str:
            return asyncio.run(text_of(engine.generate("Two", SHORT)))

        with pytest.raises(RuntimeError, match="one event loop at a time"):
            await asyncio.to_thread(elsewhere)
        await outputs.aclose()
        assert await asyncio.to_thread(elsewhere) == ANSWERS["Two"]


async def test_two_engines_in_one_process_do_not_meet() -> None:
    """Same names, same prompts, different answers."""
    async with serving() as first, serving() as second:
        other = AsyncLLM(lambda report: scripted_engine(says({"Two": " ducks"})))
        texts = await asyncio.gather(
            *(text_of(e.generate("Two", SHORT, "same")) for e in (first, other, second))
        )
        await other.shutdown()

    assert texts == [ANSWERS["Two"], " ducks", ANSWERS["Two"]]


async def test_a_drain_lets_live_requests_finish() -> None:
    """Further ones are refused with a hint to come back elsewhere."""
    gate = Gate()
    async with serving(before_run=gate.before_run) as engine:
        reader = asyncio.create_task(text_of(engine.generate("Two", SHORT)))
        await asyncio.to_thread(gate.is_reached.wait, 30)
        checked = await engine.check("One", SHORT)
        stopping = asyncio.create_task(engine.shutdown(drain_s=30))
        await asyncio.sleep(0)  # one turn of the loop: the shutdown begins
        with pytest.raises(OverloadedError, match="shutting down"):
            engine.submit(checked)
        gate.open()
        await stopping

        assert await reader == ANSWERS["Two"]
        assert not engine.is_running


async def test_a_shutdown_ends_what_takes_too_long() -> None:
    """Its reader gets a last output, not an error."""
    async with serving() as engine:
        outputs = engine.generate("Two", ENDLESS)
        await anext(outputs)
        await engine.shutdown()
        *_, last = [output async for output in outputs]

        assert last.outputs[0].finish_reason == "abort"
        for attempt in (engine.check_health, engine.stats, engine.reset_prefix_cache):
            with pytest.raises(EngineDeadError, match="shut down"):
                await attempt()
        await engine.shutdown()


def assert_set(event: threading.Event) -> None:
    """Hold a step until something has happened."""
    assert event.wait(30)


def test_a_closed_loop_ends_the_engine() -> None:
    """Nobody could take its outputs any more."""
    engines = []
    is_closed = threading.Event()

    async def leave_early() -> None:
        engine = AsyncLLM(
            lambda report: scripted_engine(
                says(ANSWERS), before_run=lambda plan: assert_set(is_closed)
            )
        )
        engines.append(engine)
        engine.submit(await engine.check("Two", ENDLESS.replace(max_tokens=200)))

    asyncio.run(leave_early())
    is_closed.set()
    engines[0]._thread._thread.join(30)

    assert not engines[0].is_running


CALLS: list[Callable[[AsyncLLM], Any]] = [AsyncLLM.stats, AsyncLLM.reset_prefix_cache]


@pytest.mark.parametrize("call", CALLS)
async def test_calls_wait_for_loading(call: Callable[[AsyncLLM], Any]) -> None:
    """They need no separate `ready`."""
    engine = AsyncLLM(lambda report: scripted_engine(says(ANSWERS)))
    await call(engine)
    await engine.shutdown()
