"""Running AsyncLLMs without a model, for tests of everything that streams."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from octavo.contracts.step import StepPlan
from octavo.engine.async_engine import AsyncLLM
from octavo.outputs import RequestOutput
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.support.scripted_engine import says, scripted_engine

ANSWERS = {"One": " two", "Two": " three four five", "Three": " four"}
SHORT = SamplingParams(temperature=0, max_tokens=20, output_kind=RequestOutputKind.DELTA)
# Runs for seconds in the room that `serving` gives, so a test can rely on it being live.
ENDLESS = SamplingParams(ignore_eos=True, max_tokens=None, output_kind=RequestOutputKind.DELTA)


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[AsyncLLM]:
    """An engine that is loaded; at the end nothing may run or hold a block."""
    room = {"max_model_len": 16_000, "num_blocks": 4_000} | options
    engine = AsyncLLM(lambda report: scripted_engine(says(ANSWERS), **room))
    try:
        await engine.ready()
        yield engine
        if engine.is_running and not engine.is_draining:
            await assert_idle(engine)
    finally:
        await engine.shutdown()


async def assert_idle(engine: AsyncLLM) -> None:
    """The commands sent so far have been carried out, and have left nothing behind."""
    stats = await engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_used_blocks) == (0, 0, 0)
    assert len(engine.open_requests) == 0


async def text_of(outputs: AsyncIterator[RequestOutput]) -> str:
    """All pieces of the first choice, joined."""
    return "".join([output.outputs[0].text async for output in outputs])


class Gate:
    """Holds the engine's thread at the begin of each step until it is opened."""

    def __init__(self) -> None:
        self._is_open = threading.Event()
        self.is_reached = threading.Event()

    def before_run(self, _: StepPlan) -> None:
        self.is_reached.set()
        self._is_open.wait(30)

    def open(self) -> None:
        self._is_open.set()
