"""`X-Request-Id` on every answer, errors too: the client's own, or a fresh one."""

from __future__ import annotations

import os

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_NAME = b"x-request-id"


class RequestIdHeader:
    """ASGI middleware of `--enable-request-id-headers`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = (value for name, value in scope["headers"] if name == _NAME)
        request_id = next(given, b"") or os.urandom(16).hex().encode()

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (_NAME, request_id)]
            await send(message)

        await self._app(scope, receive, with_id)
