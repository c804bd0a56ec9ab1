"""OutputStream: leaving early, at any point, ends the request and frees its blocks."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import dataclass, field

import pytest

from octavo.contracts.delta import FinishReason
from octavo.engine.async_engine import AsyncLLM
from octavo.engine.output_stream import OutputStream
from tests.support.serving import ANSWERS, ENDLESS, SHORT, Gate, serving, text_of


@pytest.mark.parametrize("num_read", [0, 1, 5])
async def test_closing_the_iterator_ends_the_request(num_read: int) -> None:
    """However far it was read; the fixture finds no block in use."""
    async with serving() as engine:
        outputs = engine.generate("Two", ENDLESS)
        for _ in range(num_read):
            await anext(outputs)
        await outputs.aclose()
        stats = await engine.stats()

    assert stats.num_finished["abort"] == (1 if num_read else 0)


async def test_blocks_are_free_before_the_next_plan() -> None:
    """A pool that one request fills serves the next as soon as the first has left."""
    async with serving(num_blocks=4, max_model_len=16) as engine:
        outputs = engine.generate([7] * 12, ENDLESS)
        await anext(outputs)
        await outputs.aclose()

        assert (await engine.stats()).num_used_blocks == 0


async def test_a_request_that_waits_can_be_left() -> None:
    """Before it has ever run."""
    async with serving(scheduler={"max_num_seqs": 1}) as engine:
        running = engine.generate("Two", ENDLESS)
        await anext(running)
        waiting = engine.submit(await engine.check("One", SHORT))
        waiting.close()
        waiting.close()
        assert (await engine.stats()).num_waiting == 0
        assert [output async for output in waiting] == []
        await running.aclose()


async def test_breaking_out_of_the_loop_ends_the_request() -> None:
    """As soon as Python drops the iterator, without a word from the caller."""
    async with serving() as engine:
        async for _ in engine.generate("Two", ENDLESS):
            break
        while engine.open_requests:
            await asyncio.sleep(0)  # the loop closes the iterator in one of its next turns
        stats = await engine.stats()

    assert stats.num_finished["abort"] == 1


async def test_the_end_of_a_readers_task_ends_its_request() -> None:
    """Cancelled while it waits for the next output."""
    gate = Gate()
    async with serving(before_run=gate.before_run) as engine:
        reader = asyncio.create_task(text_of(engine.generate("Two", ENDLESS)))
        await asyncio.to_thread(gate.is_reached.wait, 30)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        gate.open()


async def test_random_cancels_leave_nothing_behind() -> None:
    """64 readers, two thirds of them leave at a random point; the others get their answers."""
    chance = random.Random(3)

    async def read(engine: AsyncLLM, limit: int | None) -> str:
        params = SHORT if limit is None else ENDLESS.replace(n=chance.choice((1, 2)))
        outputs = engine.generate("Two", params)
        pieces = []
        async for output in outputs:
            pieces.append(output.outputs[0].text)
            if limit is not None and len(pieces) >= limit:
                await outputs.aclose()
                return "left"
        return "".join(pieces)

    async with serving(num_blocks=64, scheduler={"max_num_seqs": 8}) as engine:
        tasks = []
        for number in range(64):
            limit = None if number % 3 == 0 else chance.randrange(1, 20)
            tasks.append(asyncio.create_task(read(engine, limit)))
        for task in chance.sample(tasks[1::3], 12):
            await asyncio.sleep(0)
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)

    assert results[::3] == [ANSWERS["Two"]] * len(results[::3])
    cancelled = [result for result in results if isinstance(result, BaseException)]
    assert cancelled
    assert all(isinstance(result, asyncio.CancelledError) for result in cancelled)


async def test_abort_by_name_gives_the_reader_a_last_output() -> None:
    """With what there is, and the reason."""
    async with serving() as engine:
        outputs = engine.generate("Two", ENDLESS, "mine")
        await anext(outputs)
        await engine.abort(["mine", "unknown"])
        *_, last = [output async for output in outputs]

    assert last.finished
    assert last.outputs[0].finish_reason == "abort"


@dataclass
class Vectors:
    """A stream whose output needs work, and the event loop needs to turn meanwhile."""

    request_id: str = "r"
    is_finished: bool = True
    takes_long: bool = True
    finished: bool = True
    has_turned: threading.Event = field(default_factory=threading.Event)

    def take(self) -> Vectors | None:
        assert self.has_turned.wait(10), "the loop is held"
        return self

    def end(self, reason: FinishReason, stop_reason: int | str | None = None) -> None: ...


async def test_what_takes_long_is_taken_beside_the_loop() -> None:
    vectors = Vectors()
    outputs: OutputStream[Vectors, Vectors] = OutputStream(lambda _: vectors, lambda _: None)

    taken = asyncio.ensure_future(anext(outputs))
    await asyncio.sleep(0)  # now it is being taken
    vectors.has_turned.set()

    assert await taken is vectors
