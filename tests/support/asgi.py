"""A client that calls an ASGI application in the test's own event loop: no sockets, no threads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.types import ASGIApp, Message

from octavo.config.server import ServerConfig
from octavo.engine.async_engine import AsyncLLM
from octavo.server.app import build_app
from octavo.server.state import ServerState
from tests.support.scripted_engine import ENDLESS, scripted_async_llm

T = TypeVar("T")


@dataclass
class Reply:
    """One answer, read to its end."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)

    @property
    def content(self) -> bytes:
        return b"".join(self.pieces)

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def error(self) -> dict[str, Any]:
        """The error object."""
        error = self.json["error"]
        assert isinstance(error, dict)
        return error

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """The events of a stream without the end mark, which must be there."""
        events = self.content.decode().split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""], events[-2:]
        return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


class Client:
    """Sends requests to one application."""

    def __init__(self, app: ASGIApp, state: ServerState) -> None:
        self.app, self.state = app, state

    async def get(self, path: str, **options: Any) -> Reply:
        return await self.send("GET", path, **options)

    async def post(self, path: str, body: Any = None, **options: Any) -> Reply:
        return await self.send("POST", path, body, **options)

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        root_path: str = "",
        leaves_within_body: bool = False,
        on_piece: Callable[[Reply], bool] | None = None,
    ) -> Reply:
        """One request. The client goes away when `on_piece` says so after a piece of the answer."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        if body is None:
            raw = b""
        all_headers = {"content-type": "application/json", **(headers or {})}
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": root_path + path,
            "raw_path": (root_path + path).encode(),
            "query_string": query.encode(),
            "root_path": root_path,
            "scheme": "http",
            "headers": [(k.lower().encode(), v.encode()) for k, v in all_headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        reply, gone = Reply(), asyncio.Event()
        incoming: list[Message] = [
            {"type": "http.request", "body": raw, "more_body": leaves_within_body}
        ]
        if leaves_within_body:
            gone.set()

        async def receive() -> Message:
            if incoming:
                return incoming.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                reply.headers = {k.decode(): v.decode() for k, v in message["headers"]}
                return
            reply.pieces.append(message.get("body", b""))
            if on_piece is not None and on_piece(reply):
                gone.set()

        await self.app(scope, receive, send)
        return reply

    async def while_it_streams(
        self, path: str, body: dict[str, Any], action: Callable[[], Awaitable[T]], **options: Any
    ) -> T:
        """What `action` gives in the middle of an endless stream, whose client leaves then.

        The server needs `ROOM_FOR_ENDLESS`.
        """
        tasks: list[asyncio.Future[T]] = []

        def note(reply: Reply) -> bool:
            if len(reply.pieces) == 3:
                tasks.append(asyncio.ensure_future(action()))
            return bool(tasks) and tasks[0].done()

        endless = {"max_tokens": ENDLESS, "ignore_eos": True, "stream": True}
        await self.post(path, body | endless, on_piece=note, **options)
        return await tasks[0]


@asynccontextmanager
async def scripted_server(
    script: Any = None, config: ServerConfig | None = None, **engine: Any
) -> AsyncIterator[Client]:
    """A server on a scripted engine, loaded, and shut down at the end."""
    async with server_on(scripted_async_llm(script, **engine), config) as client:
        yield client


@asynccontextmanager
async def server_on(llm: AsyncLLM, config: ServerConfig | None = None) -> AsyncIterator[Client]:
    """A server on any engine, loaded, and shut down at the end."""
    state = ServerState(llm, "tiny", config or ServerConfig())
    try:
        state.set_loaded(await llm.ready())
        endpoint = state.loaded.config.observability.otlp_traces_endpoint
        yield Client(build_app(state, is_traced=endpoint is not None), state)
        assert state.open_answers.count == 0
    finally:
        await llm.shutdown()
        await state.close_responses()
