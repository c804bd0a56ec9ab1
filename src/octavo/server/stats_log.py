"""One statistics line every ten seconds while there is something to tell. Tools grep it."""

from __future__ import annotations

import asyncio
import logging
import time

from octavo.engine.async_engine import AsyncLLM
from octavo.engine.stats import EngineStats

logger = logging.getLogger(__name__)


async def log_statistics(engine: AsyncLLM, every_s: float) -> None:
    """Runs until it is cancelled; its owner is the server."""
    before: EngineStats | None = None
    since_s = time.monotonic()
    while True:
        await asyncio.sleep(every_s)
        stats = await engine.stats()
        now_s = time.monotonic()
        line = statistics_line(before, stats, now_s - since_s)
        before, since_s = stats, now_s
        if line:
            logger.info("%s", line)


def statistics_line(before: EngineStats | None, now: EngineStats, seconds: float) -> str:
    """The line for the last interval; empty when nothing happened."""
    prompt = now.num_prompt_tokens - (before.num_prompt_tokens if before else 0)
    generated = now.num_generation_tokens - (before.num_generation_tokens if before else 0)
    if not (prompt or generated or now.num_running or now.num_waiting):
        return ""
    queries = now.prefix_query_tokens
    hit_rate = now.prefix_hit_tokens / queries if queries else 0.0
    return (
        f"prompt={prompt / seconds:.1f} tok/s generation={generated / seconds:.1f} tok/s "
        f"running={now.num_running} waiting={now.num_waiting} "
        f"kv={now.kv_cache_usage:.1%} prefix_hits={hit_rate:.1%} "
        f"preemptions={now.num_preemptions}"
    )
