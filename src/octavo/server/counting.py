"""Counts answers by path and status for the metrics.

Whatever a client may invent, a path or a method, shares one label: labels are never forgotten.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.errors import log_fault, response_of
from octavo.server.metrics import ServerMetrics
from octavo.server.paths import path_of

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class AnswerCounter:
    """ASGI middleware, the outermost: it sees every status that goes out, and every fault.

    A fault that has got its answer has been logged, with what may be told of it.
    """

    def __init__(self, app: ASGIApp, metrics: ServerMetrics, paths: AbstractSet[str]) -> None:
        self._app, self._metrics, self._paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, method = path_of(scope), scope["method"]
        handler = path if path in self._paths else "other"
        method = method if method in METHODS else "other"

        has_begun = is_whole = False

        async def counted(message: Message) -> None:
            nonlocal has_begun, is_whole
            if message["type"] == "http.response.start":
                has_begun = True
                self._metrics.count_answer(method, handler, message["status"])
            else:
                is_whole = not message.get("more_body", False)
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except Exception as error:  # noqa: BLE001 - border: the HTTP server would log its text
            if not has_begun:
                await response_of(error, scope)(scope, receive, counted)
            elif not is_whole:
                log_fault(error)
