"""HTTP/1.1 on one connection: uvicorn's parser, with bounds that it does not have.

Owns what becomes of a client that sends no more, and what is said before a request is complete:
431 for a head that does not end, 408 for one that does not come, 400 for what is no HTTP. Each is
a whole answer in JSON that ends the connection, and none is written into the middle of another.
"""

from __future__ import annotations

import asyncio
import socket
from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from octavo.server.errors import error_body

HEAD_TIMEOUT_S = 30.0
# Says nothing to a client that listens still; one that has closed its socket answers with a reset.
_ARE_YOU_THERE = b"HTTP/1.1 100 Continue\r\n\r\n"
FIRST_LOOK_S, LONGEST_LOOK_S = 0.05, 1.0  # whether the reset has come


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
    _look_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._look_timer is not None:
            self._look_timer.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio asks whether to stay open
        """The client sends no more: it has gone, or it has closed its half and waits.

        Both look the same until something is sent. So the request is answered, and where the answer
        has not begun the client is asked whether it is there, as far as HTTP/1.0 allows it.
        """
        cycle = self.cycle
        if cycle is None or cycle.response_complete or self._is_in_body:
            return False
        newest = self.pipeline[0][0] if self.pipeline else cycle
        newest.keep_alive = False
        if not cycle.response_started and cycle.scope["http_version"] != "1.0":
            self.transport.write(_ARE_YOU_THERE)
        self._look_later(FIRST_LOOK_S)
        return True

    def _look_later(self, delay_s: float) -> None:
        self._look_timer = self.loop.call_later(delay_s, self._look, delay_s)

    def _look(self, delay_s: float) -> None:
        """End the connection of a client that has gone; nobody else reads what it would tell."""
        connection = self.transport.get_extra_info("socket")
        if connection is not None and connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
        else:
            self._look_later(min(2 * delay_s, LONGEST_LOOK_S))

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
