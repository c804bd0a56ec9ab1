"""The `request-id` header of Anthropic's API: on every answer below /v1/messages, errors too."""

from __future__ import annotations

import secrets

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.error_shapes import MESSAGE_ID, speaks_anthropic
from octavo.server.paths import path_of


class MessageIds:
    """ASGI middleware; the id is also in `scope["state"]`, for the bodies of errors."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not speaks_anthropic(path_of(scope)):
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(12)}"
        scope.setdefault("state", {})[MESSAGE_ID] = request_id

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"request-id", request_id.encode())]
            await send(message)

        await self._app(scope, receive, with_id)
