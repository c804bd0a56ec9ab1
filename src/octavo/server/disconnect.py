"""A client that goes away ends its work.

uvicorn does not fail a send to a closed connection, so somebody must listen for the disconnect
message while the answer is being made. `until_disconnect` is that somebody, for streams and whole
answers alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from starlette.types import Receive

R = TypeVar("R")


class ClientGoneError(Exception):
    """The client closed the connection before the answer was complete."""


async def until_disconnect(receive: Receive, work: Awaitable[R]) -> R:
    """The result of `work`, which is cancelled as soon as the client disconnects.

    The request's body must have been read. Raises ClientGoneError.
    """
    task: asyncio.Future[R] = asyncio.ensure_future(work)
    listener = asyncio.ensure_future(_disconnected(receive))
    waiting: set[asyncio.Future[Any]] = {task, listener}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
