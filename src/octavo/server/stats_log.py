"""One statistics line every ten seconds while there is something to tell.

The words are vLLM's: tools look for them.
"""

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
    return ", ".join(
        (
            f"Engine 000: Avg prompt throughput: {prompt / seconds:.1f} tokens/s",
            f"Avg generation throughput: {generated / seconds:.1f} tokens/s",
            f"Running: {now.num_running} reqs",
            f"Waiting: {now.num_waiting} reqs",
            f"GPU KV cache usage: {100 * now.kv_cache_usage:.1f}%",
            f"Prefix cache hit rate: {100 * _hit_rate(before, now):.1f}%",
            f"Preemptions: {now.num_preemptions}",
        )
    )


def _hit_rate(before: EngineStats | None, now: EngineStats) -> float:
    """Share of the prompt tokens of the interval that were cached; of all where none came."""
    queries = now.prefix_query_tokens - (before.prefix_query_tokens if before else 0)
    if before is None or not queries:
        return now.prefix_hit_tokens / max(1, now.prefix_query_tokens)
    return (now.prefix_hit_tokens - before.prefix_hit_tokens) / queries
