"""Waiting for an engine to load while somebody is told how far it is."""

from __future__ import annotations

import asyncio

from octavo.contracts.progress import ReportProgress
from octavo.engine.async_engine import AsyncLLM
from octavo.engine.build import Engine

REPORT_EVERY_S = 0.1


async def loaded(llm: AsyncLLM, report: ReportProgress) -> Engine:
    """`llm.ready()`, with a report now and then and at the end. Raises what loading raises."""
    watcher = asyncio.ensure_future(_watch(llm, report))
    try:
        engine = await llm.ready()
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
    report(llm.load_progress.phase, llm.load_progress.share)
    return engine


async def _watch(llm: AsyncLLM, report: ReportProgress) -> None:
    """Runs until it is cancelled."""
    while True:
        report(llm.load_progress.phase, llm.load_progress.share)
        await asyncio.sleep(REPORT_EVERY_S)
