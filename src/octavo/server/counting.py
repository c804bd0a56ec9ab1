"""Counts answers by path and status for the metrics. Unknown paths share one label."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.metrics import ServerMetrics


class AnswerCounter:
    """ASGI middleware, the outermost: it sees every status that goes out."""

    def __init__(self, app: ASGIApp, metrics: ServerMetrics, paths: AbstractSet[str]) -> None:
        self._app, self._metrics, self._paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        handler = scope["path"] if scope["path"] in self._paths else "other"

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.count_answer(scope["method"], handler, message["status"])
            await send(message)

        await self._app(scope, receive, counted)
