"""Answers that end the connection: whoever sends too much is not listened to any longer.

A connection that is closed with unread bytes is reset, and the reset may overtake the answer. So
the answer goes out whole, then a bounded amount is read and thrown away, then the end.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

CLOSING = frozenset({413, 414, 431})
BODY_IS_READ = "body_is_read"  # in scope["state"]
LINGER_S = 2.0
LINGER_BYTES = 32 * 2**20


class ClosingResponse(Response):
    """A whole answer with `Connection: close`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def held(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "more_body": True}
            await send(message)

        if not any(name == b"connection" for name, _ in self.raw_headers):
            self.raw_headers.append((b"connection", b"close"))
        await super().__call__(scope, receive, held)
        if not scope.get("state", {}).get(BODY_IS_READ):
            with suppress(TimeoutError):
                await asyncio.wait_for(_throw_away(receive), LINGER_S)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _throw_away(receive: Receive) -> None:
    """Read the rest of a body, up to a bound."""
    num_bytes = 0
    while num_bytes < LINGER_BYTES:
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return
