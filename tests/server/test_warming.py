"""Grammars are made ready while the server has nothing else to do."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing

import pytest

from octavo.server.warming import warm_when_idle
from tests.support.serving import ANSWERS, ENDLESS, SHORT, serving, text_of

TIMEOUT_S = 30


class Rests:
    """Sleeps that end when the test says so."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []
        self.end = asyncio.Event()
        self._begun: asyncio.Queue[None] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.asked_s.append(seconds)
        self._begun.put_nowait(None)
        await self.end.wait()

    async def begin(self) -> None:
        """Return when one more has begun."""
        await asyncio.wait_for(self._begun.get(), TIMEOUT_S)


async def test_an_idle_server_gets_its_grammars_ready() -> None:
    """Without a request for any."""
    async with serving() as engine:
        grammars = (await engine.ready()).grammars
        assert not grammars.is_warm

        await asyncio.wait_for(warm_when_idle(engine, 0.0), TIMEOUT_S)

    assert grammars.is_warm


async def test_a_server_at_work_is_left_alone() -> None:
    """It has no rest before the last answer is out, and another one after each request."""
    rests = Rests()
    async with serving() as engine:
        grammars = (await engine.ready()).grammars
        async with aclosing(engine.generate("Two", ENDLESS)) as stream:
            await anext(stream)
            warming = asyncio.ensure_future(warm_when_idle(engine, 7.0, rests.sleep))
            for _ in range(100):
                await anext(stream)
            assert rests.asked_s == []
        await rests.begin()
        assert await text_of(engine.generate("One", SHORT)) == ANSWERS["One"]
        await rests.begin()
        assert not grammars.is_warm
        rests.end.set()
        await asyncio.wait_for(warming, TIMEOUT_S)

    assert rests.asked_s == [7.0, 7.0]
    assert grammars.is_warm


async def test_a_server_without_the_library_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first structured request says what is missing."""
    monkeypatch.setitem(sys.modules, "octavo.structured.compiler", None)
    async with serving() as engine:
        await asyncio.wait_for(warm_when_idle(engine, 0.0), TIMEOUT_S)

        assert not (await engine.ready()).grammars.is_warm
