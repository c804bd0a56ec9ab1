"""Servers with files and batches, and the forms and lines that they are given."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from octavo.config.server import ServerConfig
from octavo.server.app import bare_app
from octavo.server.batches.service import batches_at_work, open_store
from tests.support.asgi import Client, Reply, scripted_server

COMPLETIONS = "/v1/completions"
BOUNDARY = "the-boundary"
FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
ENDED = ("completed", "failed", "cancelled", "expired")
MAX_LOOKS = 3000


@asynccontextmanager
async def batch_server(
    store: Path,
    script: Any = None,
    *,
    config: dict[str, Any] | None = None,
    wall_s: Callable[[], float] = time.time,
    **engine: Any,
) -> AsyncIterator[Client]:
    """A server whose batches are at work."""
    options = ServerConfig(batch_store=str(store), **(config or {}))
    async with (
        open_store(options.batch_store) as database,
        scripted_server(script, options, **engine) as client,
        batches_at_work(client.state, bare_app(client.state), database, wall_s),
    ):
        yield client


def form(content: bytes, filename: str = "in.jsonl", **fields: str) -> bytes:
    """The body of an upload."""
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode()
        for name, text in {"purpose": "batch", **fields}.items()
    ]
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"'
    parts.append(head.encode() + b"\r\nContent-Type: application/jsonl\r\n\r\n" + content)
    return b"".join(parts) + f"\r\n--{BOUNDARY}--\r\n".encode()


async def upload(client: Client, content: bytes, **options: Any) -> Reply:
    """POST /v1/files."""
    headers = FORM | options.pop("headers", {})
    return await client.post("/v1/files", form(content, **options), headers=headers)


def line(custom_id: str, url: str = COMPLETIONS, **body: Any) -> bytes:
    """One request, `prompt` and the like by keyword."""
    request = {"custom_id": custom_id, "method": "POST", "url": url, "body": body}
    return json.dumps(request).encode() + b"\n"


async def begin(client: Client, content: bytes, **more: Any) -> dict[str, Any]:
    """Upload lines and make a batch of them."""
    headers = more.pop("headers", {})
    file = (await upload(client, content, headers=headers)).json
    body = {
        "input_file_id": file["id"],
        "endpoint": COMPLETIONS,
        "completion_window": "24h",
    } | more
    reply = await client.post("/v1/batches", body, headers=headers)
    assert reply.status == 200, reply.content
    return dict(reply.json)


async def look_until(
    client: Client,
    batch_id: str,
    is_so: Callable[[dict[str, Any]], bool],
    headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The batch, as soon as it is as wanted. Each look lets the server go on."""
    for _ in range(MAX_LOOKS):
        shown = (await client.get(f"/v1/batches/{batch_id}", headers=headers)).json
        if is_so(shown):
            return dict(shown)
        await asyncio.sleep(0.002)
    raise AssertionError(f"the batch does not get there: {shown}")


async def wait_ended(client: Client, batch_id: str, **options: Any) -> dict[str, Any]:
    """The batch at its end."""
    return await look_until(client, batch_id, lambda shown: shown["status"] in ENDED, **options)


async def results(client: Client, file_id: str | None, **options: Any) -> list[dict[str, Any]]:
    """The lines of an output file."""
    assert file_id is not None
    reply = await client.get(f"/v1/files/{file_id}/content", **options)
    assert reply.status == 200
    return [json.loads(text) for text in reply.content.decode().splitlines()]
