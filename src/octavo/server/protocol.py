"""HTTP/1.1 on one connection: uvicorn's parser, with bounds that it does not have.

Owns what becomes of a client that sends no more, and what is said before a request is complete:
431 for a head that does not end, 408 for one that does not come, 400 for what is no HTTP. Each is
a whole answer in JSON that ends the connection, and none is written into the middle of another.
"""

from __future__ import annotations

import asyncio
import select
import socket
from http import HTTPStatus
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from octavo.server.errors import error_body

HEAD_TIMEOUT_S = 30.0
# Says nothing to a client that listens still; one that has closed its socket answers with a reset.
_ARE_YOU_THERE = b"HTTP/1.1 100 Continue\r\n\r\n"
LOOK_EVERY_S = 0.05  # at a connection of which nothing is read
_SENDS_NO_MORE = getattr(select, "POLLRDHUP", select.POLLHUP)


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
    _running: RequestResponseCycle | None = None  # that is answered now, or was the last
    _has_asked = False  # whether the client is there

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._look_timer is not None:
            self._look_timer.cancel()
        super().connection_lost(exc)
        running = self._running  # uvicorn tells the newest request only
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio asks whether to stay open
        """The client sends no more: it has gone, or it has closed its half and waits.

        Both look the same until something is sent. So requests are answered, and where the answer
        has not begun the client is asked whether it is there. Nobody can be asked in HTTP/1.0, and
        TLS knows no halves: there it has gone.
        """
        newest = self.cycle
        if newest is None or newest.response_complete or self._is_in_body:
            return False
        if not self._can_ask(newest):
            return False
        newest.keep_alive = False
        self._ask()
        self._look_later()
        return True

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _can_ask(self, cycle: RequestResponseCycle) -> bool:
        return self.scheme != "https" and cycle.scope["http_version"] != "1.0"

    def _ask(self) -> None:
        """Make a client that has gone say so. An answer that has begun does it by itself."""
        self._has_asked = True
        if self._running is not None and not self._running.response_started:
            self.transport.write(_ARE_YOU_THERE)

    def _look_later(self) -> None:
        if self._look_timer is None:
            self._look_timer = self.loop.call_later(LOOK_EVERY_S, self._look)

    def _look(self) -> None:
        """End the connection of a client that has gone; nobody else reads what it would tell."""
        self._look_timer = None
        connection = self.transport.get_extra_info("socket")
        if connection is None or self.transport.is_closing():
            return
        if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.transport.abort()
            return
        if not self._has_asked and _sends_no_more(connection):
            if not self._can_ask(self.cycle):
                self.transport.abort()
                return
            self._ask()
        if self._has_asked or self.pipeline:
            self._look_later()

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
        if self.pipeline:  # nothing is read while requests wait in it
            self._look_later()

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
        running = self._running
        if running is None or running.response_complete or not running.response_started:
            self.transport.write(_whole_answer(status, error_body(status, message)))
        self.transport.close()


def _sends_no_more(connection: socket.socket) -> bool:
    """Whether the end has come, be it behind bytes that nobody has read."""
    poll = select.poll()
    poll.register(connection.fileno(), _SENDS_NO_MORE)
    return bool(poll.poll(0))


def _whole_answer(status: int, content: dict[str, Any]) -> bytes:
    body = msgspec.json.encode(content)
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
