"""Entrance: checked requests become streams, and go to the engine's thread.

Belongs to one event loop.
Owns: that requests go in together or not at all, and that no stream is left of those that do not.
Does not know: steps, what becomes of a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

from octavo.contracts.request import EngineRequest, RequestParty
from octavo.engine.checked import CheckedPooling, CheckedRequest
from octavo.engine.detached import EngineThread
from octavo.engine.fan_out import RequestStream
from octavo.engine.open_requests import OpenRequests
from octavo.engine.output import OutputProcessor
from octavo.engine.output_stream import OutputStream, Taken, TakenStream
from octavo.engine.pooled_stream import PooledStream
from octavo.engine.pooler import Pooler
from octavo.outputs import PoolingRequestOutput, RequestOutput

_OPENED_AT_ONCE = 64  # streams; then others on the loop have their turn

TextStream: TypeAlias = OutputStream[RequestStream, RequestOutput]
VectorStream: TypeAlias = OutputStream[PooledStream, PoolingRequestOutput]
TraceHeaders = Mapping[str, str] | None

C = TypeVar("C")
S = TypeVar("S", bound=TakenStream[Any])
O = TypeVar("O", bound=Taken)  # noqa: E741


class Entrance:
    """Where requests come in. Every call raises what `require_open` raises."""

    def __init__(
        self,
        thread: EngineThread,
        outputs: OutputProcessor,
        open_requests: OpenRequests,
        *,
        pooler: Pooler | None,
        require_open: Callable[[], None],
        close: Callable[[OutputStream[Any, Any]], None],
    ) -> None:
        """`close` is called once for each stream; `pooler` is that of a model for vectors."""
        self._thread, self._outputs, self._open_requests = thread, outputs, open_requests
        self._pooler = pooler
        self._require_open, self._close = require_open, close

    def submit(self, checked: CheckedRequest, trace_headers: TraceHeaders = None) -> TextStream:
        """Queue a request. It runs until its stream is read to the end or closed."""
        stream = self._open_text(checked, trace_headers)
        self._thread.add(checked.requests)
        return stream

    def submit_pooling(
        self, checked: CheckedPooling, trace_headers: TraceHeaders = None
    ) -> VectorStream:
        """The same for a vector."""
        stream = self._open_vector(checked, trace_headers)
        self._thread.add([checked.request])
        return stream

    async def submit_together(
        self,
        checked: Sequence[CheckedRequest],
        trace_headers: TraceHeaders = None,
        *,
        max_waiting: int | None = None,
    ) -> list[TextStream]:
        """Queue requests as one, all of them or none. Their streams must be read or closed.

        With `max_waiting` this returns when the engine has them. It refuses them where more choices
        than that would wait for rows or blocks, see `EngineCore.require_room`. Those that it took
        may have to give way before they run; then reading their streams raises the same error.
        Raises OverloadedError with the seconds after which there should be room.
        """
        requests = [request for one in checked for request in one.requests]
        return await self._all(self._open_text, checked, trace_headers, requests, max_waiting)

    async def submit_pooling_together(
        self,
        checked: Sequence[CheckedPooling],
        trace_headers: TraceHeaders = None,
        *,
        max_waiting: int | None = None,
    ) -> list[VectorStream]:
        """The same for vectors."""
        requests = [one.request for one in checked]
        return await self._all(self._open_vector, checked, trace_headers, requests, max_waiting)

    def _open_text(self, checked: CheckedRequest, trace_headers: TraceHeaders) -> TextStream:
        parts = (checked.request_id, checked.prompt, checked.params, checked.requests)
        self._require_open()
        open_stream = partial(self._outputs.open, *parts, trace_headers=trace_headers)
        stream: TextStream = OutputStream(open_stream, self._close)
        self._open_requests.add(stream)
        return stream

    def _open_vector(self, checked: CheckedPooling, trace_headers: TraceHeaders) -> VectorStream:
        assert self._pooler is not None, "a checked request comes from a model that makes vectors"
        parts = (checked.request_id, checked.prompt, checked.params, checked.request)
        self._require_open()
        open_stream = partial(
            self._outputs.open_pooled, *parts, self._pooler, trace_headers=trace_headers
        )
        stream: VectorStream = OutputStream(open_stream, self._close)
        self._open_requests.add(stream)
        return stream

    async def _all(
        self,
        open_one: Callable[[C, TraceHeaders], OutputStream[S, O]],
        checked: Sequence[C],
        trace_headers: TraceHeaders,
        requests: Sequence[EngineRequest],
        max_waiting: int | None,
    ) -> list[OutputStream[S, O]]:
        streams: list[OutputStream[S, O]] = []
        try:
            for number, one in enumerate(checked, 1):
                streams.append(open_one(one, trace_headers))
                if number % _OPENED_AT_ONCE == 0:
                    await asyncio.sleep(0)
            self._require_open()
            if max_waiting is None:
                self._thread.add(requests)
            else:
                party = RequestParty(requests[0].request_id, len(requests))
                for request in requests:
                    request.party = party
                await asyncio.wrap_future(self._thread.add_if_few_wait(requests, max_waiting))
        except BaseException:
            for stream in streams:
                stream.close()
            raise
        return streams
