"""HTTP/1.1 on one connection: uvicorn's parser, with bounds that it does not have.

Owns what is said before a request is complete: 431 for a head that does not end, 408 for one that
does not come, 400 for what is no HTTP. Each is a whole answer in JSON that ends the connection, and
none is written into the middle of another answer.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from octavo.server.errors import error_body

HEAD_TIMEOUT_S = 30.0


def bounded_protocol(max_head_bytes: int) -> type[asyncio.Protocol]:
    """The protocol class for uvicorn, with a bound on the bytes of a request's head."""

    class Bounded(_BoundedHttp):
        max_head_bytes_ = max_head_bytes

    return Bounded


class _BoundedHttp(HttpToolsProtocol):
    max_head_bytes_ = 0
    _head_bytes = 0  # received of the head that is not complete
    _is_in_body = False
    _has_completed = False  # a request, in the piece of data at hand
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_in_body and self._head_timer is None:
            self._await_head()  # of the next request on this connection
        self._has_completed = False
        super().data_received(data)
        if self._is_in_body or self.transport.is_closing():
            return
        # Where a request ended in this piece, what follows is a part of one piece, and that small.
        self._head_bytes = 0 if self._has_completed else self._head_bytes + len(data)
        if self._head_bytes > self.max_head_bytes_:
            self._refuse(431, "the headers are too large (--max-header-bytes)")

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_body, self._has_completed = False, True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not valid HTTP/1.1")

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(
            HEAD_TIMEOUT_S, self._refuse, 408, "the request did not come in time"
        )

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int, message: str) -> None:
        """Answer and close. In the middle of an answer the connection just ends."""
        self._stop_timer()
        if self.transport.is_closing():
            return
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if not is_answering or not self.cycle.response_started:
            self.transport.write(_whole_answer(status, error_body(status, message)))
        self.transport.close()


def _whole_answer(status: int, content: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(content)
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
