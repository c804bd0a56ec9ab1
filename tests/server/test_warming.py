"""Grammars are made ready while the server has nothing else to do."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing

import pytest

from octavo.engine.grammars import Grammars
from octavo.errors import InvalidRequestError
from octavo.sampling_params import StructuredOutputsParams
from octavo.server.warming import warm_when_idle
from tests.support.serving import ENDLESS, serving

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


async def test_an_idle_server_gets_its_grammars_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a request for any."""
    async with serving() as engine:
        grammars = (await engine.ready()).grammars
        assert not is_ready(grammars, monkeypatch)

        await asyncio.wait_for(warm_when_idle(engine, 0.01), TIMEOUT_S)

    assert is_ready(grammars, monkeypatch)


async def test_a_server_at_work_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its grammars wait until the last answer is out."""
    async with serving() as engine:
        async with aclosing(engine.generate("Two", ENDLESS)) as stream:
            await anext(stream)
            warming = asyncio.ensure_future(warm_when_idle(engine, 0.01))
            end_s = time.monotonic() + 0.3
            while time.monotonic() < end_s:
                await anext(stream)
            is_early = warming.done()
        await asyncio.wait_for(warming, TIMEOUT_S)
        grammars = (await engine.ready()).grammars

    assert not is_early
    assert is_ready(grammars, monkeypatch)


async def test_a_server_without_the_library_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first structured request says what is missing."""
    monkeypatch.setitem(sys.modules, LIBRARY, None)
    async with serving() as engine:
        await asyncio.wait_for(warm_when_idle(engine, 0.01), TIMEOUT_S)

        with pytest.raises(InvalidRequestError, match="llguidance, which is not installed"):
            (await engine.ready()).grammars.check(CHOICE)
