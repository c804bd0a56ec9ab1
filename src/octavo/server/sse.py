"""Bytes on the wire: one JSON answer, or a stream of server-sent events.

Streams are written as plain ASGI messages: one prepared chunk, one send.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

import msgspec
from starlette.types import Receive, Scope, Send

from octavo.server.disconnect import ClientGoneError, until_disconnect

Headers = Sequence[tuple[bytes, bytes]]
EVENTS = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


def event(data: bytes) -> bytes:
    """One event."""
    return b"data: " + data + b"\n\n"


def named_event(name: str, data: bytes) -> bytes:
    """One event with a name of its own."""
    return b"event: " + name.encode() + b"\n" + event(data)


async def send_json(send: Send, status: int, content: object, headers: Headers = ()) -> None:
    """A whole JSON answer."""
    body = msgspec.json.encode(content)
    head = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        *headers,
    ]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


class ByteStream:
    """An ASGI answer that sends the byte chunks of an iterator, and closes it whatever happens.

    The caller has taken the `first` chunk already, so that errors before it become a plain error
    answer; `rest` has begun and holds what the answer holds.
    """

    def __init__(
        self,
        first: bytes,
        rest: AsyncGenerator[bytes, None],
        *,
        media_type: str = EVENTS,
    ) -> None:
        self._first = first
        self._rest = rest
        self._media_type = media_type

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = [
            (b"content-type", self._media_type.encode("latin-1")),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]
        async with aclosing(self._rest):
            await send({"type": "http.response.start", "status": 200, "headers": head})
            with suppress(ClientGoneError):  # nobody is left to tell
                await until_disconnect(receive, self._send_all(send))

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        async for chunk in self._rest:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
