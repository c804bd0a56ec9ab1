"""Limits on what a client may send before a route looks at it: its address and its headers."""

from __future__ import annotations

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.closing import BODY_IS_READ, ClosingResponse
from octavo.server.error_shapes import shaped
from octavo.server.errors import error_body

MAX_HEADERS = 200


class HeaderLimit:
    """ASGI middleware: 431 for too many or too large headers, 414 for too long an address."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = self._fault(scope) if scope["type"] == "http" else None
        if fault is None:
            await self._app(scope, _noting(scope, receive), send)
            return
        status, message = fault
        body = msgspec.json.encode(shaped(scope, status, error_body(status, message)))
        answer = ClosingResponse(body, status_code=status, media_type="application/json")
        await answer(scope, receive, send)

    def _fault(self, scope: Scope) -> tuple[int, str] | None:
        headers, limit = scope["headers"], self._max_bytes
        size = sum(len(name) + len(value) for name, value in headers)
        if len(headers) > MAX_HEADERS or size > limit:
            return 431, (
                f"{len(headers)} headers of {size} bytes, at most {MAX_HEADERS} of {limit} bytes "
                "(--max-header-bytes)"
            )
        length = len(scope.get("raw_path", b"")) + len(scope["query_string"])
        if length > limit:
            return 414, f"an address of {length} bytes, at most {limit} (--max-header-bytes)"
        return None


def _noting(scope: Scope, receive: Receive) -> Receive:
    """The same messages; the end of the body is noted for an answer that closes."""

    async def noted() -> Message:
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            scope.setdefault("state", {})[BODY_IS_READ] = True
        return message

    return noted
