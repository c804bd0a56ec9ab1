"""Grammars made ready before anyone asks: the first structured answer would wait for them.

Owns when: once the server has had nothing to do for a while, so that neither its start nor an
answer pays for it. Does not know what grammars need.
"""

from __future__ import annotations

import asyncio

from octavo.engine.async_engine import AsyncLLM

IDLE_S = 1.0
_LOOK_EVERY_S = 0.1


async def warm_when_idle(engine: AsyncLLM, idle_s: float = IDLE_S) -> None:
    """Return when grammars are ready. Its owner is the server, and may cancel it."""
    grammars = (await engine.ready()).grammars
    loop = asyncio.get_running_loop()
    idle_since_s = loop.time()
    while loop.time() < idle_since_s + idle_s:
        await asyncio.sleep(min(_LOOK_EVERY_S, idle_s))
        if engine.num_open_requests:
            idle_since_s = loop.time()
    await asyncio.to_thread(grammars.warm)
