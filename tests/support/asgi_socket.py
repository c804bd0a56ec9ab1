"""An application behind a real socket of the loopback, in the test's own event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def listening(app: ASGIApp) -> AsyncIterator[str]:
    """The URL of `app`."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    server.capture_signals = _nothing  # type: ignore[method-assign]  # signals are pytest's
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listener.close()


class _nothing:  # noqa: N801 - stands for a method
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...
