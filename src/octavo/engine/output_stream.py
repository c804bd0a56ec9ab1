"""OutputStream: the outputs of one request, as an async iterator.

Owns the wait for news and the promise that leaving early aborts. Does not know threads: news is
announced on the event loop that reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from octavo.contracts.delta import FinishReason


class Taken(Protocol):
    """What a stream hands out."""

    finished: bool


O = TypeVar("O", bound=Taken)  # noqa: E741
S = TypeVar("S", bound="TakenStream[Any]")
O_co = TypeVar("O_co", bound=Taken, covariant=True)


class TakenStream(Protocol[O_co]):
    """Where the news of a request gathers."""

    request_id: str

    @property
    def is_finished(self) -> bool: ...
    @property
    def takes_long(self) -> bool: ...  # to take; not for an event loop
    def take(self) -> O_co | None: ...
    def end(self, reason: FinishReason, stop_reason: int | str | None = None) -> None: ...


class OutputStream(Generic[S, O]):
    """Yields outputs until the request is finished. Close it, or use it in `async with`.

    A reader that is slow gets the news of several steps in one output.
    """

    def __init__(
        self,
        open_stream: Callable[[Callable[[S], None]], S],
        close: Callable[[OutputStream[S, O]], None],
    ) -> None:
        """`open_stream` takes whom to call when there is news; `close` is called once."""
        self._waiter: asyncio.Future[None] | None = None
        self._is_over = False
        self._close = close
        self.stream = open_stream(self._wake)

    @property
    def request_id(self) -> str:
        """The request's name, as its caller gave it."""
        return self.stream.request_id

    def close(self) -> None:
        """Abort what still runs. May be called twice."""
        if not self._is_over:
            self._is_over = True
            self._close(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> O:
        if self._is_over:
            raise StopAsyncIteration
        while True:
            try:
                output: O | None = await self._taken()
            except BaseException:
                self.close()
                raise
            if output is not None:
                if output.finished:
                    self.close()
                return output
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def _taken(self) -> O | None:
        """The news, if there is any."""
        take: Callable[[], O | None] = self.stream.take
        return await asyncio.to_thread(take) if self.stream.takes_long else take()

    def _wake(self, _: S) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
