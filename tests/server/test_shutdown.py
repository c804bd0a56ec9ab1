"""The end of the server while requests are open: what got no token may be tried elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.server.conftest import MakeFolder
from tests.support.asgi import Client, Reply, scripted_server
from tests.support.scripted_engine import ENDLESS, ROOM_FOR_ENDLESS, says
from tests.support.serving import Gate
from tests.support.tiny_pooling import pooling_server

TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
MESSAGES = {"messages": [{"role": "user", "content": "One"}]}
COMPLETIONS = "/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    COMPLETIONS: {"prompt": ["One", "Two"], "n": 2, "temperature": 1},
    "/v1/chat/completions": MESSAGES,
    "/api/chat": {"model": "tiny", **MESSAGES},
    "/api/generate": {"model": "tiny", "prompt": "One"},
    "/v1/messages": {"model": "tiny", "max_tokens": 9, **MESSAGES},
    "/v1/responses": {"input": "One"},
}


def assert_may_be_tried_elsewhere(reply: Reply) -> None:
    assert reply.status == 503, reply.content
    assert b"the server is shutting down" in reply.content
    assert int(reply.headers["retry-after"]) >= 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_what_has_no_token_yet_is_refused_at_the_end_of_the_server(
    path: str, stream: bool
) -> None:
    """In every API, streamed or whole: an answer without a word would not be tried again."""
    gate = Gate()
    async with scripted_server(
        says({"One": " two"}), chat_template=TEMPLATE, before_run=gate.before_run
    ) as client:
        asking = asyncio.ensure_future(client.post(path, BODIES[path] | {"stream": stream}))
        await asyncio.to_thread(gate.is_reached.wait, 30)
        ending = asyncio.ensure_future(client.state.engine.shutdown())
        reply = await asking
        gate.open()
        await ending

    assert_may_be_tried_elsewhere(reply)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_has_tokens_ends_as_it_is_while_what_waits_behind_it_is_refused(
    stream: bool,
) -> None:
    waiting: list[asyncio.Future[Reply]] = []

    async def end(client: Client) -> None:
        body = {"prompt": "Two", "stream": stream}
        waiting.append(asyncio.ensure_future(client.post(COMPLETIONS, body)))
        while (await client.state.engine.stats()).num_waiting == 0:
            pass
        await client.state.engine.shutdown()

    async with scripted_server(
        says({"One": " two"}, ends=False), scheduler={"max_num_seqs": 1}, **ROOM_FOR_ENDLESS
    ) as client:
        ending: list[asyncio.Future[None]] = []

        def note(_: Reply) -> bool:
            if not ending:
                ending.append(asyncio.ensure_future(end(client)))
            return False

        body = {"prompt": "One", "max_tokens": ENDLESS, "ignore_eos": True, "stream": True}
        running = await client.post(COMPLETIONS, body, on_piece=note)
        await ending[0]
        waited = await waiting[0]

    assert running.status == 200
    assert running.chunks[-1]["choices"][0]["finish_reason"] == "abort"
    assert_may_be_tried_elsewhere(waited)


async def test_vectors_that_are_not_made_any_more_are_refused_too(
    encoder_folder: MakeFolder,
) -> None:
    async with pooling_server(encoder_folder("bert")) as client:
        body = {"input": [[0, 17, 44, 2]] * 100}
        asking = asyncio.ensure_future(client.post("/v1/embeddings", body))
        await client.state.engine.open_requests.wait_busy()
        await client.state.engine.shutdown()
        reply = await asking

    assert_may_be_tried_elsewhere(reply)
