"""Grammars are made ready while the server has nothing else to do."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing

import pytest

from octavo.engine.grammars import Grammars
from octavo.errors import InvalidRequestError
from octavo.sampling_params import StructuredOutputsParams
from octavo.server.warming import warm_when_idle
from tests.support.serving import ANSWERS, ENDLESS, SHORT, serving, text_of

TIMEOUT_S = 30
LIBRARY = "octavo.structured.compiler"
CHOICE = StructuredOutputsParams(choice=["two"])


def is_ready(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a grammar is compiled with what is loaded already."""
    with monkeypatch.context() as nothing_more:
        nothing_more.setitem(sys.modules, LIBRARY, None)
        try:
            grammars.check(CHOICE)
        except InvalidRequestError:
            return False
        return True


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


async def test_an_idle_server_gets_its_grammars_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a request for any."""
    async with serving() as engine:
        grammars = (await engine.ready()).grammars
        assert not is_ready(grammars, monkeypatch)

        await asyncio.wait_for(warm_when_idle(engine, 0.0), TIMEOUT_S)

    assert is_ready(grammars, monkeypatch)


async def test_a_server_at_work_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert not is_ready(grammars, monkeypatch)
        rests.end.set()
        await asyncio.wait_for(warming, TIMEOUT_S)

    assert rests.asked_s == [7.0, 7.0]
    assert is_ready(grammars, monkeypatch)


async def test_a_server_without_the_library_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first structured request says what is missing."""
    monkeypatch.setitem(sys.modules, LIBRARY, None)
    async with serving() as engine:
        await asyncio.wait_for(warm_when_idle(engine, 0.0), TIMEOUT_S)

        with pytest.raises(InvalidRequestError, match="llguidance, which is not installed"):
            (await engine.ready()).grammars.check(CHOICE)
