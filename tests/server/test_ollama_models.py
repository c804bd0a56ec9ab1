"""What Ollama's clients ask about models, and what they may not do to them."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.server.routes.ollama import REFUSED
from octavo.version import version
from tests.server.test_tools import HERMES
from tests.support.asgi import scripted_server
from tests.support.scripted_engine import says


async def test_every_served_name_is_listed_with_a_tag() -> None:
    config = ServerConfig(served_model_name=("smol", "smol:135m"))
    async with scripted_server(None, config) as client:
        tags = (await client.get("/api/tags")).json["models"]
        running = (await client.get("/api/ps")).json["models"]

    assert [model["name"] for model in tags] == ["smol:latest", "smol:135m"]
    assert [model["model"] for model in running] == ["smol:latest", "smol:135m"]
    for model in tags:
        assert len(model["digest"]) == 64
        assert model["details"]["family"] == "llama"
    assert running[0]["context_length"] == 256


@pytest.mark.parametrize(
    ("served", "asked", "status"),
    [
        ("smol", "smol", 200),
        ("smol", "smol:latest", 200),
        ("smol:latest", "smol", 200),
        ("smol:135m", "smol:135m", 200),
        ("smol:135m", "smol", 404),
        ("smol", "other:latest", 404),
    ],
)
async def test_latest_is_the_tag_of_a_name_without_one(
    served: str, asked: str, status: int
) -> None:
    """The answer has the name that was asked for."""
    config = ServerConfig(served_model_name=(served,))
    body = {"model": asked, "prompt": "One", "raw": True, "stream": False}
    async with scripted_server(says({"One": " two"}), config) as client:
        reply = await client.post("/api/generate", body)
        shown = await client.post("/api/show", {"model": asked})

    assert (reply.status, shown.status) == (status, status)
    assert status != 200 or reply.json["model"] == asked


async def test_a_model_is_shown_with_what_it_can() -> None:
    async with scripted_server(chat_template=HERMES) as client:
        shown = (await client.post("/api/show", {"model": "tiny"})).json
        by_name = (await client.post("/api/show", {"name": "tiny"})).json
        nameless = await client.post("/api/show", {})

    assert shown["capabilities"] == ["completion", "tools"]
    assert shown["template"] == HERMES
    assert shown["model_info"]["llama.context_length"] == 256
    assert by_name == shown
    assert (nameless.status, "model" in nameless.json["error"]) == (400, True)


async def test_the_server_says_that_it_is_there() -> None:
    async with scripted_server() as client:
        head = await client.send("HEAD", "/")
        told = await client.get("/api/version")

    assert (head.status, head.content) == (200, b"")
    assert told.json == {"version": version()}


@pytest.mark.parametrize(("method", "path"), REFUSED)
async def test_the_store_of_models_is_out_of_reach(method: str, path: str) -> None:
    """With a sentence, not with a path that does not exist."""
    async with scripted_server() as client:
        reply = await client.send(method, path, {"model": "tiny"})

    assert reply.status == 400
    assert reply.json == {"error": REFUSED[method, path]}


@pytest.mark.parametrize("path", ["/api/chat", "/v1/messages", "/v1/messages/count_tokens"])
async def test_each_path_has_a_label_of_its_own_in_the_metrics(path: str) -> None:
    async with scripted_server() as client:
        await client.post(path, {})
        text = (await client.get("/metrics")).content.decode()

    assert _count(text, path) == 1.0


def _count(text: str, path: str) -> Any:
    label = f'http_requests_total{{handler="{path}",method="POST",status="4xx"}} '
    [line] = [line for line in text.splitlines() if line.startswith(label)]
    return float(line.removeprefix(label))
