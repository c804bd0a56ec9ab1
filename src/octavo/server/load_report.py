"""The load of the engine in a header of the answer, for routers that ask for it (ORCA).

A request says `endpoint-load-metrics-format: TEXT` or `JSON`; its answer has
`endpoint-load-metrics`, with vLLM's names.
"""

from __future__ import annotations

import json

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.server.state import ServerState

_FORMAT = b"endpoint-load-metrics-format"


class LoadReport:
    """ASGI middleware: writes the header where a request asks for it."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self._app, self._state = app, state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = next((value for name, value in scope.get("headers", ()) if name == _FORMAT), b"")
        form = asked.strip().upper()
        if scope["type"] != "http" or form not in (b"TEXT", b"JSON"):
            await self._app(scope, receive, send)
            return

        async def with_load(message: Message) -> None:
            if message["type"] == "http.response.start" and self._is_alive:
                header = (b"endpoint-load-metrics", await self._shown(form))
                message["headers"] = [*message["headers"], header]
            await send(message)

        await self._app(scope, receive, with_load)

    @property
    def _is_alive(self) -> bool:
        return self._state.is_ready and not self._state.engine.errored

    async def _shown(self, form: bytes) -> bytes:
        stats = await self._state.engine.stats()
        named = {
            "kv_cache_usage_perc": stats.kv_cache_usage,
            "num_requests_waiting": float(stats.num_waiting),
        }
        if form == b"JSON":
            return b"JSON " + json.dumps({"named_metrics": named}).encode()
        pairs = (f"named_metrics.{name}={value}" for name, value in named.items())
        return b"TEXT " + ", ".join(pairs).encode()
