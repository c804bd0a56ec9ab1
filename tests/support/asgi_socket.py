"""An application behind a real socket of the loopback, in the test's own event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from starlette.types import ASGIApp


def plain_config(app: ASGIApp, **options: Any) -> uvicorn.Config:
    """uvicorn as the server runs it, silent; further options by keyword."""
    return uvicorn.Config(app, lifespan="off", log_config=None, access_log=False, **options)


@asynccontextmanager
async def listening(app: ASGIApp) -> AsyncIterator[str]:
    """The URL of `app`."""
    async with listening_as(plain_config(app)) as url:
        yield url


@asynccontextmanager
async def listening_as(config: uvicorn.Config) -> AsyncIterator[str]:
    """The URL of the application of a configuration."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(config)
    server.capture_signals = _nothing  # type: ignore[method-assign]  # signals are pytest's
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        scheme = "https" if config.is_ssl else "http"
        yield f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listener.close()


class _nothing:  # noqa: N801 - stands for a method
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...
