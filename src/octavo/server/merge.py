"""Several streams as one: the choices of a request with several prompts, in the order they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeVar

T = TypeVar("T")
_MAX_WAITING = 64  # items between the streams and their reader
_STARTED_AT_ONCE = 64  # streams; then others on the loop have their turn


async def merge(streams: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[tuple[int, T], None]:
    """(number of the stream, item). Closing it closes every stream; an error of one ends all."""
    if len(streams) == 1:
        async with aclosing(streams[0]) as only:
            async for item in only:
                yield 0, item
        return
    queue: asyncio.Queue[tuple[int, T] | None] = asyncio.Queue(_MAX_WAITING)
    tasks: list[asyncio.Future[None]] = []
    try:
        for number, stream in enumerate(streams):
            tasks.append(asyncio.ensure_future(_forward(number, stream, queue)))
            if number % _STARTED_AT_ONCE == _STARTED_AT_ONCE - 1:
                await asyncio.sleep(0)
        tasks.append(asyncio.ensure_future(_end(tuple(tasks), queue)))
        while (entry := await queue.get()) is not None:
            yield entry
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(
    number: int, stream: AsyncGenerator[T, None], queue: asyncio.Queue[tuple[int, T] | None]
) -> None:
    async with aclosing(stream) as items:
        async for item in items:
            await queue.put((number, item))


async def _end(
    tasks: Sequence[asyncio.Future[None]], queue: asyncio.Queue[tuple[int, T] | None]
) -> None:
    """Tell the reader when all streams have ended, or one of them failed."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    await queue.put(None)
