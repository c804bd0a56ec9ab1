"""Limits on what a client may send before a route looks at it: the size and number of headers."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.server.error_shapes import shaped
from octavo.server.errors import error_body
from octavo.server.sse import send_json

MAX_HEADERS = 200
MAX_HEADER_BYTES = 64 * 1024


class HeaderLimit:
    """ASGI middleware: answers 431 to a request with too many or too large headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = scope["headers"]
            size = sum(len(name) + len(value) for name, value in headers)
            if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
                message = (
                    f"{len(headers)} headers of {size} bytes, "
                    f"at most {MAX_HEADERS} of {MAX_HEADER_BYTES} bytes"
                )
                await send_json(send, 431, shaped(scope, 431, error_body(431, message)))
                return
        await self._app(scope, receive, send)
