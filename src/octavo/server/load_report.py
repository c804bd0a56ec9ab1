"""The load of the engine in a header of the answer, for routers that ask for it (ORCA).

A request says `endpoint-load-metrics-format: TEXT` or `JSON`; its answer has
`endpoint-load-metrics`, with vLLM's names. Paths that want no key tell nothing, and answer while a
step runs; an engine that has ended has no load.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from octavo.errors import EngineDeadError
from octavo.server.paths import path_of
from octavo.server.state import ServerState

_FORMAT = b"endpoint-load-metrics-format"


class LoadReport:
    """ASGI middleware: writes the header where a request asks for it, but on `open_paths`."""

    def __init__(self, app: ASGIApp, state: ServerState, open_paths: Iterable[str]) -> None:
        self._app, self._state = app, state
        self._open_paths = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        form = _asked_form(scope)
        if form is None or path_of(scope) in self._open_paths:
            await self._app(scope, receive, send)
            return

        async def with_load(message: Message) -> None:
            if message["type"] == "http.response.start" and self._state.is_ready:
                with suppress(EngineDeadError):
                    header = (b"endpoint-load-metrics", await self._shown(form))
                    message["headers"] = [*message["headers"], header]
            await send(message)

        await self._app(scope, receive, with_load)

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


def _asked_form(scope: Scope) -> bytes | None:
    """TEXT, JSON, or None where no form that is known was asked for."""
    if scope["type"] != "http":
        return None
    asked = next((value for name, value in scope["headers"] if name == _FORMAT), b"")
    form: bytes = asked.strip().upper()
    return form if form in (b"TEXT", b"JSON") else None
