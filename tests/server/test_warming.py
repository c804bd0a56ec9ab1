"""Grammars are made ready while the server has nothing else to do."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing

import pytest

from octavo.server.warming import warm_when_idle
from tests.support.serving import ENDLESS, serving

TIMEOUT_S = 30


async def test_an_idle_server_gets_its_grammars_ready() -> None:
    """Without a request for any."""
    async with serving() as engine:
        grammars = (await engine.ready()).grammars
        assert not grammars.is_warm

        await asyncio.wait_for(warm_when_idle(engine, 0.01), TIMEOUT_S)

    assert grammars.is_warm


async def test_a_server_at_work_is_left_alone() -> None:
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
    assert grammars.is_warm


async def test_a_server_without_the_library_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first structured request says what is missing."""
    monkeypatch.setitem(sys.modules, "octavo.structured.compiler", None)
    async with serving() as engine:
        await asyncio.wait_for(warm_when_idle(engine, 0.01), TIMEOUT_S)

        assert not (await engine.ready()).grammars.is_warm
