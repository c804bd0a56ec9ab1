"""What --batch-store turns on: the open file, what is in it, and the runner at work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Route

from octavo.server.batches.batch_store import BatchStore
from octavo.server.batches.database import open_database
from octavo.server.batches.file_store import FileStore
from octavo.server.batches.runner import BatchRunner
from octavo.server.sqlite_thread import SqliteThread
from octavo.server.state import ServerState

BATCH_ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")


@dataclass(frozen=True, slots=True)
class BatchService:
    """The parts, for the routes."""

    files: FileStore
    batches: BatchStore
    runner: BatchRunner
    endpoints: tuple[str, ...]  # that a batch may ask for


@asynccontextmanager
async def open_store(path: str | None) -> AsyncIterator[SqliteThread | None]:
    """The database while the block runs. Raises ConfigError; None without a path."""
    if path is None:
        yield None
        return
    database = await open_database(Path(path))
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def batches_at_work(
    state: ServerState,
    app: Starlette,
    database: SqliteThread | None,
    wall_s: Callable[[], float] = time.time,
) -> AsyncIterator[None]:
    """Serve and compute batches while the block runs. The model must be loaded."""
    if database is None:
        yield
        return
    files = FileStore(database, state.config.max_stored_bytes)
    await files.remove_leftovers(int(wall_s()), with_unfinished=True)
    batches = BatchStore(database)
    runner = BatchRunner(state, app, files, batches, wall_s)
    state.batches = BatchService(files, batches, runner, served(app, BATCH_ENDPOINTS))
    task = asyncio.ensure_future(runner.run())
    try:
        yield
    finally:
        state.batches = None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def served(app: Starlette, paths: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `paths` that the application answers a POST on."""
    known = {
        route.path
        for route in app.routes
        if isinstance(route, Route) and "POST" in (route.methods or ())
    }
    return tuple(path for path in paths if path in known)
