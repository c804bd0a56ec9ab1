"""AsyncLLM.encode: vectors for asyncio programs, and how their requests end early."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.config.model_facts import PoolingFacts
from octavo.engine.async_engine import AsyncLLM
from octavo.errors import (
    DeadlineExceededError,
    EngineDeadError,
    InvalidRequestError,
    RequestFailedError,
)
from octavo.executor.scripted import ScriptedExecutor
from octavo.foundation.clock import ManualClock
from octavo.outputs import PoolingRequestOutput
from octavo.pooling_params import PoolingParams
from tests.support.scripted_engine import scripted_async_llm
from tests.support.serving import Gate, assert_idle

PLAIN = PoolingParams(use_activation=False)


def pooling_llm(**options: Any) -> AsyncLLM:
    """The scripted vector of a prompt is the sum of its ids."""
    return scripted_async_llm(facts={"pooling": PoolingFacts(method="last")}, **options)


async def encoded(llm: AsyncLLM, ids: list[int], name: str | None = None) -> PoolingRequestOutput:
    [output] = [output async for output in llm.encode(ids, PLAIN, name)]
    return output


async def test_encode_yields_one_output_and_leaves_nothing_behind() -> None:
    """Many at once, each with its own vector."""
    async with pooling_llm() as llm:
        outputs = await asyncio.gather(*(encoded(llm, [n, n + 1], f"r{n}") for n in range(20)))
        await assert_idle(llm)

    assert [[2.0 * n + 1.0] for n in range(20)] == [output.outputs.data for output in outputs]
    assert [f"r{n}" for n in range(20)] == [output.request_id for output in outputs]
    assert all(output.finished and output.metrics is not None for output in outputs)


async def test_a_reader_that_leaves_ends_its_request() -> None:
    """Its blocks are free, and the neighbour has its vector."""
    gate = Gate()
    async with pooling_llm(before_run=gate.before_run) as llm:
        leaver = asyncio.create_task(encoded(llm, [1, 2]))
        stayer = asyncio.create_task(encoded(llm, [3, 4]))
        await asyncio.to_thread(gate.is_reached.wait, 10)
        leaver.cancel()
        gate.open()
        output = await stayer
        with pytest.raises(asyncio.CancelledError):
            await leaver
        await assert_idle(llm)

    assert output.outputs.data == [7.0]


async def test_a_fault_of_one_prompt_is_its_readers_alone() -> None:
    """The other request goes on."""
    executors: list[ScriptedExecutor] = []
    async with pooling_llm(on_executor=executors.append) as llm:
        bad = await llm.check_pooling([1, 2], PLAIN)
        executors[0].fail_row(bad.request.request_id, "the vector is not finite")
        stream = llm.submit_pooling(bad)
        good = await encoded(llm, [3, 4])
        with pytest.raises(RequestFailedError, match="not finite"):
            await anext(stream)
        await assert_idle(llm)

    assert good.outputs.data == [7.0]


async def test_a_vector_that_is_late_is_an_error_with_the_time() -> None:
    """There is no part of it to give."""
    clock = ManualClock()
    limits = {"max_num_batched_tokens": 3}
    async with pooling_llm(
        clock=clock, before_run=lambda plan: clock.advance(20.0), scheduler=limits
    ) as llm:
        checked = await llm.check_pooling([1, 2, 3, 4, 5], PLAIN, timeout=5.5)
        with pytest.raises(DeadlineExceededError, match="timeout"):
            await anext(llm.submit_pooling(checked))
        await assert_idle(llm)


async def test_shutting_down_tells_who_still_waits() -> None:
    """There is no vector, and the reader knows why."""
    gate = Gate()
    llm = pooling_llm(before_run=gate.before_run)
    waiting = asyncio.create_task(encoded(llm, [1, 2]))
    await asyncio.to_thread(gate.is_reached.wait, 10)
    stopping = asyncio.create_task(llm.shutdown())
    with pytest.raises(RequestFailedError, match="ended before it was computed"):
        await waiting
    gate.open()
    await stopping


async def test_the_death_of_the_engine_reaches_every_reader() -> None:
    """As an error, not as silence."""

    def break_engine(executor: ScriptedExecutor) -> None:
        executor.fail_run(EngineDeadError("the ranks are gone"))

    llm = pooling_llm(on_executor=break_engine)
    with pytest.raises(EngineDeadError, match="ranks are gone"):
        await encoded(llm, [1, 2])
    await llm.shutdown()


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "must not be empty"),
        ([5000], "out of vocabulary"),
        (list(range(257)), "maximum context length is 256 tokens, but the prompt has 257"),
        ({"prompt_token_ids": [1, 2], "token_type_ids": [0, 1]}, "does not tell two texts apart"),
    ],
)
async def test_a_prompt_that_cannot_be_is_refused(prompt: Any, message: str) -> None:
    """One of the whole context can: there is no answer that needs room."""
    async with pooling_llm() as llm:
        with pytest.raises(InvalidRequestError, match=message):
            await encoded(llm, prompt)
        assert (await encoded(llm, [1] * 256)).outputs.data == [256.0]
