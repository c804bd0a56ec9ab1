"""The small routes, keys, headers and errors."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.engine.async_engine import AsyncLLM
from octavo.errors import CorruptFileError
from octavo.server.app import ROUTES, build_app
from octavo.server.auth import OPEN_PATHS
from octavo.server.errors import NotReadyError
from octavo.server.state import ServerState
from tests.support.asgi import Client, scripted_server
from tests.support.scripted_engine import scripted_async_llm, scripted_engine

KEYS = ServerConfig(api_key=("key-of-ann", "key-of-ben"))


async def test_every_route_but_the_open_ones_wants_a_key() -> None:
    """A route that is added is closed by default; unknown paths too."""
    async with scripted_server(config=KEYS) as client:
        for method, path, _ in (*ROUTES, ("GET", "/v1/nope", None)):
            reply = await client.send(method, path.replace("{name:path}", "x"))
            assert (reply.status == 401) == (path not in OPEN_PATHS), path


@pytest.mark.parametrize("key", ["", "x", "key-of-an", "key-of-annx", "KEY-OF-ANN"])
async def test_a_wrong_key_gets_401(key: str) -> None:
    """Shorter, longer, other letters."""
    async with scripted_server(config=KEYS) as client:
        reply = await client.get("/v1/models", headers={"authorization": f"Bearer {key}"})

    assert reply.status == 401


async def test_each_right_key_opens() -> None:
    """Any of several keys."""
    async with scripted_server(config=KEYS) as client:
        for key in KEYS.api_key:
            headers = {"authorization": f"Bearer {key}"}
            assert (await client.get("/v1/models", headers=headers)).status == 200


async def test_prompts_of_different_keys_share_no_cached_tokens() -> None:
    """What one key sent is not found by another, and is found by itself."""
    config = ServerConfig(api_key=KEYS.api_key, enable_prompt_tokens_details=True)
    cached = []
    async with scripted_server(config=config) as client:
        for key in ("key-of-ann", "key-of-ben", "key-of-ann"):
            reply = await client.post(
                "/v1/completions",
                {"prompt": "a long prompt that fills more than one block", "max_tokens": 2},
                headers={"authorization": f"Bearer {key}"},
            )
            cached.append(reply.json["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert cached[:2] == [0, 0]
    assert cached[2] > 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/nope", 404), ("GET", "/v1/completions", 405), ("DELETE", "/v1/models", 405)],
)
async def test_unknown_paths_and_methods_get_small_json_errors(
    method: str, path: str, status: int
) -> None:
    """404 and 405 in the one error form."""
    async with scripted_server() as client:
        reply = await client.send(method, path)

    assert reply.status == status
    assert reply.error["code"] == status


async def test_models_are_listed_under_each_name() -> None:
    """In order, with the context length."""
    config = ServerConfig(served_model_name=("alpha", "beta"))
    async with scripted_server(config=config) as client:
        cards = (await client.get("/v1/models")).json["data"]
        one = await client.get("/v1/models/beta")
        none = await client.get("/v1/models/tiny")

    assert [card["id"] for card in cards] == ["alpha", "beta"]
    assert cards[0]["max_model_len"] == 256
    assert (one.status, none.status) == (200, 404)


async def test_a_request_id_comes_back_when_asked_for() -> None:
    """Only with the option."""
    config = ServerConfig(enable_request_id_headers=True)
    async with scripted_server(config=config) as client:
        reply = await client.post(
            "/v1/completions", {"prompt": "hi", "max_tokens": 1}, headers={"x-request-id": "my-7"}
        )
        unnamed = [await client.get(path) for path in ("/health", "/health", "/absent")]

    assert reply.headers["x-request-id"] == "my-7"
    assert len({one.headers["x-request-id"] for one in unnamed}) == 3


async def test_tokenize_and_detokenize_are_inverse() -> None:
    """The count, the strings on request, and the text back."""
    async with scripted_server() as client:
        tokens = (
            await client.post("/tokenize", {"prompt": "hello world", "return_token_strs": True})
        ).json
        text = (await client.post("/detokenize", {"tokens": tokens["tokens"]})).json["prompt"]
        wrong = await client.post("/detokenize", {"tokens": [10**9]})

    assert tokens["count"] == len(tokens["tokens"])
    assert "".join(tokens["token_strs"]) == "helloĠworld"
    assert text == "hello world"
    assert wrong.status == 400


async def test_too_many_headers_are_refused() -> None:
    """431 before any route."""
    async with scripted_server() as client:
        reply = await client.get("/health", headers={f"x-{n}": "a" for n in range(300)})

    assert reply.status == 431


async def test_while_loading_probes_say_so_and_requests_are_refused() -> None:
    """/health and /ready are 503, /version answers, a request gets 503 with Retry-After."""
    may_load = asyncio.Event()
    loop = asyncio.get_running_loop()

    def build(report: Any) -> Any:
        report("weights", 0.5)
        asyncio.run_coroutine_threadsafe(may_load.wait(), loop).result()
        return scripted_engine()

    llm = AsyncLLM(build)
    state = ServerState(llm, "tiny", ServerConfig())
    client = Client(build_app(state), state)
    try:
        replies = {path: await client.get(path) for path in ("/health", "/ready", "/version")}
        refused = await client.post("/v1/completions", {"prompt": "hi"})
        models = await client.get("/v1/models")
        may_load.set()
        state.set_loaded(await llm.ready())
        assert (await client.get("/health")).status == 200
        assert (await client.get("/ready")).json == {"status": "ready"}
    finally:
        await llm.shutdown()

    assert [reply.status for reply in replies.values()] == [503, 503, 200]
    assert replies["/ready"].json["status"] == "loading"
    assert refused.status == 503
    assert refused.headers["retry-after"] == "1"
    assert models.json["data"][0]["id"] == "tiny"


async def test_while_draining_new_requests_are_refused_and_ready_says_so() -> None:
    """A balancer sees 503 at /ready; an open answer is not touched."""
    async with scripted_server() as client:
        client.state.is_draining = True

        assert (await client.get("/ready")).json["status"] == "draining"
        assert (await client.post("/v1/completions", {"prompt": "hi"})).status == 503


async def test_a_proxys_prefix_changes_neither_keys_nor_labels() -> None:
    """With --root-path a probe needs no key, everything else does, and paths are counted."""
    async with scripted_server(config=KEYS) as client:
        probe = await client.get("/health", root_path="/llm")
        guarded = await client.get("/v1/models", root_path="/llm")
        key = {"authorization": f"Bearer {KEYS.api_key[0]}"}
        text = (await client.get("/metrics", headers=key)).content.decode()

    assert (probe.status, guarded.status) == (200, 401)
    assert 'handler="/health"' in text


async def test_invented_methods_share_one_label() -> None:
    """A label is never forgotten, so a stranger must not be able to make new ones."""
    async with scripted_server() as client:
        for number in range(20):
            await client.send(f"METHOD{number}", "/health")
        text = (await client.get("/metrics")).content.decode()

    assert "METHOD" not in text
    assert 'method="other"' in text


async def test_a_client_that_leaves_within_its_body_is_no_fault_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is logged, and the application raises nothing."""
    async with scripted_server() as client:
        await client.send("POST", "/v1/completions", b"{", leaves_within_body=True)

    assert caplog.records == []


async def test_a_request_that_comes_too_late_is_told_that_the_server_ends() -> None:
    """503, not 429: another server may take it."""
    async with scripted_server() as client:
        await client.state.engine.shutdown()

        with pytest.raises(NotReadyError), client.state.admitted(1):
            pass


async def test_a_template_of_the_configuration_that_is_none_ends_the_start() -> None:
    """Not each chat, hours later."""
    llm = scripted_async_llm()
    state = ServerState(llm, "tiny", ServerConfig(chat_template="{% for %}"))
    try:
        with pytest.raises(CorruptFileError, match="line 1"):
            state.set_loaded(await llm.ready())
    finally:
        await llm.shutdown()
