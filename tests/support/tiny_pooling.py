"""Real tiny models that make vectors, in folders, and engines on them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from octavo.config.keywords import engine_config
from octavo.config.server import ServerConfig
from octavo.engine.async_engine import AsyncLLM
from tests.support.asgi import Client, server_on

SMALL: dict[str, Any] = {"max_num_seqs": 4, "num_gpu_blocks_override": 64, "threads": 1}


@asynccontextmanager
async def pooling_server(
    folder: Path, config: ServerConfig | None = None, **options: Any
) -> AsyncIterator[Client]:
    """A server on a model of a folder."""
    llm = AsyncLLM.start(engine_config({"model": str(folder), **SMALL, **options}))
    async with server_on(llm, config) as client:
        yield client
