"""AsyncLLM while it loads, and after its end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from octavo.contracts.progress import ReportProgress
from octavo.engine.async_engine import AsyncLLM
from octavo.engine.build import Engine
from octavo.errors import EngineDeadError, OverloadedError
from octavo.outputs import RequestOutput
from octavo.sampling_params import SamplingParams
from tests.support.scripted_engine import says, scripted_async_llm, scripted_engine

PARAMS = SamplingParams(max_tokens=4)


async def test_requests_that_come_while_it_loads_are_all_answered() -> None:
    """Several waiters wake together when loading ends; none of them is forgotten."""
    may_load = threading.Event()

    def build(report: ReportProgress) -> Engine:
        assert may_load.wait(20)
        return scripted_engine(says({}))

    async def last(llm: AsyncLLM, prompt: str) -> RequestOutput:
        return [output async for output in llm.generate(prompt, PARAMS)][-1]

    llm = AsyncLLM(build)
    waiting = [asyncio.ensure_future(last(llm, prompt)) for prompt in ("a", "b", "c")]
    await asyncio.sleep(0)  # all three wait for the engine now
    may_load.set()
    outputs = await asyncio.wait_for(asyncio.gather(*waiting), 20)
    await llm.shutdown()

    assert [output.finished for output in outputs] == [True] * 3


@pytest.mark.parametrize("prompt", ["short", "long " * 2000], ids=["short", "long"])
async def test_a_request_after_the_end_is_refused_alike_whatever_its_length(prompt: str) -> None:
    """A long text, which is tokenised elsewhere, gets the same error as a short one."""
    llm = scripted_async_llm()
    await llm.ready()
    await llm.shutdown()

    with pytest.raises((EngineDeadError, OverloadedError)):
        await llm.check(prompt, PARAMS)
