"""A request to one of our routes without a socket, for callers inside the process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message

from octavo.server.closing import BODY_IS_READ


@dataclass(slots=True)
class InsideReply:
    """A whole answer."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""

    @property
    def retry_after_s(self) -> float:
        """When to ask again."""
        text = self.headers.get(b"retry-after", b"")
        return float(text) if text.isdigit() else 1.0


async def post_inside(app: ASGIApp, path: str, body: bytes, tenant: str) -> InsideReply:
    """POST a JSON body as a tenant. Ending the task that waits ends the work, as for any client."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ],
        "client": None,
        "server": None,
        "state": {"tenant": tenant, BODY_IS_READ: True},
    }
    reply, pieces, is_sent = InsideReply(), [], False

    async def receive() -> Message:
        nonlocal is_sent
        if not is_sent:
            is_sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.Event().wait()  # this client stays until its task is ended
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = dict(message["headers"])
        else:
            pieces.append(message.get("body", b""))

    try:
        await app(scope, receive, send)
    except Exception:  # border: Starlette raises again what it has answered with 500
        if not reply.status:
            raise
    reply.body = b"".join(pieces)
    return reply
