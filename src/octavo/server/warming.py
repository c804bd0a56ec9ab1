"""Grammars made ready before anyone asks: the first structured answer would wait for them.

Owns when: once the server has had nothing to do for a while, so that neither its start nor an
answer pays for it. Does not know what grammars need.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from octavo.engine.async_engine import AsyncLLM

IDLE_S = 1.0
Sleep: TypeAlias = Callable[[float], Coroutine[Any, Any, None]]  # for so many seconds


async def warm_when_idle(
    engine: AsyncLLM, idle_s: float = IDLE_S, sleep: Sleep = asyncio.sleep
) -> None:
    """Return when grammars are ready. Its owner is the server, and may cancel it.

    They are made once no request has been open while it slept for `idle_s` seconds.
    """
    grammars = (await engine.ready()).grammars
    while True:
        await engine.open_requests.wait_idle()
        if await _is_left_alone(engine, sleep(idle_s)):
            break
    await asyncio.to_thread(grammars.warm)


async def _is_left_alone(engine: AsyncLLM, rest: Coroutine[Any, Any, None]) -> bool:
    """Wait for the end of `rest`, or for a request; whether none came."""
    resting = asyncio.ensure_future(rest)
    called = asyncio.ensure_future(engine.open_requests.wait_busy())
    try:
        await asyncio.wait({resting, called}, return_when=asyncio.FIRST_COMPLETED)
        return not called.done()
    finally:
        resting.cancel()
        called.cancel()
