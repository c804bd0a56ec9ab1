"""Responses that are made while nobody waits, and the log of events that anybody may follow.

Owns: which ones are being made, and their end in the store. Does not know what an event says.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from octavo.errors import OverloadedError
from octavo.server.response_store import Item, ResponseStore, StoredResponse

logger = logging.getLogger(__name__)
MAX_RUNNING = 1024
_END = b"\n\n"  # of each event


class BackgroundWork(Protocol):
    """A response while it is made; see `dialects/responses_answer.py`."""

    @property
    def shown(self) -> dict[str, Any]: ...
    def begin(self) -> list[bytes]: ...
    async def in_background(self, tell: Callable[[bytes], None]) -> None: ...
    def cancel(self) -> list[bytes]: ...


class EventLog:
    """The events of one response, in order; event number n has sequence number n."""

    def __init__(self) -> None:
        self._events: list[bytes] = []
        self._news = asyncio.Event()
        self._has_ended = False

    def append(self, event: bytes) -> None:
        """One more."""
        self._events.append(event)
        self._wake()

    def close(self) -> None:
        """No more."""
        self._has_ended = True
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def follow(self, starting_after: int = -1) -> AsyncGenerator[bytes, None]:
        """Events with a larger number, as they come, to the last one."""
        place = starting_after + 1
        while True:
            while place < len(self._events):
                yield self._events[place]
                place += 1
            if self._has_ended:
                return
            await self._news.wait()

    def packed(self) -> bytes:
        """All of them in a form for the store."""
        return zlib.compress(b"".join(self._events))


def unpacked(packed: bytes, starting_after: int = -1) -> Iterable[bytes]:
    """Events of `EventLog.packed` with a larger number."""
    events = zlib.decompress(packed).split(_END)[:-1]
    return [event + _END for event in events[starting_after + 1 :]]


class RunningResponse:
    """One response that is being made."""

    def __init__(self, tenant: str, work: BackgroundWork) -> None:
        self.tenant = tenant
        self.log = EventLog()
        self._work = work
        for event in work.begin():
            self.log.append(event)
        self._making = asyncio.ensure_future(work.in_background(self.log.append))
        self.ending: asyncio.Future[None]  # done when the store has it; set by its owner

    @property
    def shown(self) -> dict[str, Any]:
        """The response as it is now."""
        return self._work.shown

    def cancel(self) -> None:
        """End it; `ending` tells when it has."""
        self._making.cancel()

    async def made(self) -> None:
        """Return when all events are in the log."""
        await asyncio.wait({self._making})
        if self._making.cancelled():
            for event in self._work.cancel():
                self.log.append(event)
        else:
            self._making.result()


class BackgroundResponses:
    """All that are being made."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store
        self._running: dict[str, RunningResponse] = {}

    def find(self, tenant: str, response_id: str) -> RunningResponse | None:
        """The one with this id; None where there is none, or it is another tenant's."""
        running = self._running.get(response_id)
        return running if running is not None and running.tenant == tenant else None

    def forget(self, response_id: str) -> None:
        """Drop one that has ended and could not be stored."""
        self._running.pop(response_id, None)

    def require_room(self) -> None:
        """Raises OverloadedError when too many are being made."""
        if len(self._running) >= MAX_RUNNING:
            message = f"{MAX_RUNNING} background responses are being made; try again later"
            raise OverloadedError(message, retry_after_s=10)

    def start(
        self,
        tenant: str,
        work: BackgroundWork,
        inputs: list[Item],
        counted: AbstractContextManager[None],
    ) -> RunningResponse:
        """Begin to make a response that the store has as running. `counted` is open meanwhile."""
        running = RunningResponse(tenant, work)
        self._running[work.shown["id"]] = running
        running.ending = asyncio.ensure_future(self._complete(running, inputs, counted))
        return running

    async def _complete(
        self,
        running: RunningResponse,
        inputs: list[Item],
        counted: AbstractContextManager[None],
    ) -> None:
        try:
            with counted:
                await running.made()
                response = running.shown
                events = await asyncio.to_thread(running.log.packed)
                items = inputs + response["output"]
                stored = StoredResponse(response, items, len(inputs), events=events)
                await self._store.finish(running.tenant, stored)
                self.forget(response["id"])
        except Exception:  # border: it stays among the running, so that its client can still ask
            logger.exception("a background response could not be stored")
        finally:
            running.log.close()

    async def close(self) -> None:
        """Wait until all have ended, which they do when the engine has; those that do not within a
        second end as cancelled."""
        endings = {running.ending for running in self._running.values()}
        if not endings:
            return
        _, late = await asyncio.wait(endings, timeout=1.0)
        for running in self._running.values():
            running.cancel()
        if late:
            await asyncio.wait(late)
