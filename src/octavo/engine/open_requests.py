"""OpenRequests: the streams whose readers have not seen the end, and waiting for none or for some.

Belongs to one event loop. Does not know the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, TypeAlias

from octavo.engine.output_stream import OutputStream

_Stream: TypeAlias = OutputStream[Any, Any]


class OpenRequests:
    """In the order in which they came."""

    def __init__(self) -> None:
        self._streams: dict[_Stream, None] = {}
        self._idle, self._busy = asyncio.Event(), asyncio.Event()  # one of them is set
        self._idle.set()

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[_Stream]:
        """Those that are open now, however many close meanwhile."""
        return iter(list(self._streams))

    def add(self, stream: _Stream) -> None:
        """It has been opened."""
        self._streams[stream] = None
        self._idle.clear()
        self._busy.set()

    def discard(self, stream: _Stream) -> None:
        """It has been closed, if it was open."""
        self._streams.pop(stream, None)
        if not self._streams:
            self._busy.clear()
            self._idle.set()

    async def wait_idle(self) -> None:
        """Return when none is open."""
        await self._idle.wait()

    async def wait_busy(self) -> None:
        """Return when one is open, or was for a moment while this waited."""
        await self._busy.wait()
