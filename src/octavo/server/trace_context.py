"""The W3C trace context of the HTTP request that is being answered.

A variable of the task, because it belongs to the whole of a request: routes and shapes of answers
need not know it. The middleware is in the application only where traces are collected.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar

from starlette.types import ASGIApp, Receive, Scope, Send

from octavo.engine.tracing import trace_headers

_headers: ContextVar[Mapping[str, str] | None] = ContextVar("trace_headers", default=None)


def current_trace_headers() -> Mapping[str, str] | None:
    """`traceparent` and `tracestate` of the request; None where traces are not collected."""
    return _headers.get()


class TraceContext:
    """ASGI middleware: keeps the caller's trace for as long as the request is answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = {
                name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
            }
            _headers.set(trace_headers(given))
        await self._app(scope, receive, send)
