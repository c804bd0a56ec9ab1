"""/debug/kv and /reset_prefix_cache: what they tell and do, and whom they answer."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.server.auth import ADMIN_PATHS
from tests.support.asgi import Client, scripted_server
from tests.support.scripted_engine import ROOM_FOR_ENDLESS

PATHS = (("GET", "/debug/kv"), ("POST", "/reset_prefix_cache"))
COMPLETIONS = "/v1/completions"
PROMPT = "a long prompt that fills more than one block"
USER_KEY, ADMIN_KEY = "key-of-ann", "key-of-the-operator"


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def ask_admin_paths(client: Client, **options: Any) -> list[int]:
    return [(await client.send(method, path, **options)).status for method, path in PATHS]


async def cached_tokens(client: Client, **options: Any) -> int:
    """Prompt tokens of a request that came from the cache."""
    reply = await client.post(COMPLETIONS, {"prompt": PROMPT, "max_tokens": 1}, **options)
    cached = reply.json["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert isinstance(cached, int)
    return cached


# ---- who may ask


def test_the_admin_paths_are_these() -> None:
    """A path that is added is a decision."""
    assert {path for _, path in PATHS} == ADMIN_PATHS


async def test_without_any_key_only_this_machine_is_answered() -> None:
    """The loopback and a Unix socket are private; an interface or a proxy is not."""
    private = (ServerConfig(), ServerConfig(host="::1"), ServerConfig(uds="/tmp/s"))
    public = (
        ServerConfig(host="0.0.0.0"),
        ServerConfig(host="example.org"),
        ServerConfig(root_path="/llm"),
    )
    for config in private:
        async with scripted_server(config=config) as client:
            assert await ask_admin_paths(client) == [200, 200]
    for config in public:
        async with scripted_server(config=config) as client:
            assert await ask_admin_paths(client) == [403, 403]


async def test_an_ordinary_key_does_not_open_admin_paths() -> None:
    """403 with it, 401 without; the message names the option."""
    config = ServerConfig(api_key=(USER_KEY,))
    async with scripted_server(config=config) as client:
        reply = await client.get("/debug/kv", headers=bearer(USER_KEY))

        assert await ask_admin_paths(client, headers=bearer(USER_KEY)) == [403, 403]
        assert await ask_admin_paths(client) == [401, 401]
        assert "--admin-api-key" in reply.error["message"]


@pytest.mark.parametrize("keys", [(), (USER_KEY,)])
async def test_an_admin_key_opens_everything(keys: tuple[str, ...]) -> None:
    """Any of several; and without ordinary keys the ordinary paths stay open."""
    config = ServerConfig(api_key=keys, admin_api_key=("another", ADMIN_KEY), host="0.0.0.0")
    async with scripted_server(config=config) as client:
        assert await ask_admin_paths(client, headers=bearer(ADMIN_KEY)) == [200, 200]
        assert await ask_admin_paths(client, headers=bearer("wrong")) == [401, 401]
        assert await ask_admin_paths(client) == [401, 401]
        models = [
            (await client.get("/v1/models", headers=headers)).status
            for headers in (bearer(ADMIN_KEY), {})
        ]

    assert models == [200, 401 if keys else 200]


def test_an_empty_admin_key_is_refused() -> None:
    """It would let everybody in who sends none."""
    with pytest.raises(ConfigError, match="--admin-api-key must not be empty"):
        ServerConfig(admin_api_key=("",))


# ---- the view


async def test_the_view_shows_requests_and_the_blocks_that_they_hold() -> None:
    """In the middle of a stream, and empty after it."""
    async with scripted_server(**ROOM_FOR_ENDLESS) as client:
        reply = await client.while_it_streams(
            COMPLETIONS, {"prompt": PROMPT}, lambda: client.get("/debug/kv")
        )
        during = reply.json
        after = (await client.get("/debug/kv")).json

    (shown,) = during["requests"]
    (table,) = during["kv"]["tables"].values()
    assert shown["state"] == "running"
    assert shown["computed_tokens"] == shown["prompt_tokens"] + shown["generated_tokens"] - 1
    assert shown["age_s"] >= 0
    assert table["num_computed_tokens"] == shown["computed_tokens"]
    assert during["kv"]["num_used_blocks"] == len(table["block_ids"][0])
    assert during["steps"]["count"] >= 3
    assert (after["requests"], after["kv"]["num_used_blocks"]) == ([], 0)
    assert after["kv"]["findable_blocks"]


async def test_the_view_holds_no_text_and_no_key() -> None:
    """A tenant is shown by a part of its key's hash."""
    config = ServerConfig(api_key=(USER_KEY,), admin_api_key=(ADMIN_KEY,))
    async with scripted_server(config=config, **ROOM_FOR_ENDLESS) as client:
        reply = await client.while_it_streams(
            COMPLETIONS,
            {"prompt": PROMPT},
            lambda: client.get("/debug/kv", headers=bearer(ADMIN_KEY)),
            headers=bearer(USER_KEY),
        )

    (shown,) = reply.json["requests"]
    assert len(shown["tenant"]) == 16
    assert USER_KEY.encode() not in reply.content
    assert b"long prompt" not in reply.content


# ---- an empty cache


async def test_a_reset_forgets_what_was_cached() -> None:
    """As vLLM's: 200 and an empty body."""
    config = ServerConfig(enable_prompt_tokens_details=True)
    async with scripted_server(config=config) as client:
        assert await cached_tokens(client) == 0
        assert await cached_tokens(client) > 0

        reply = await client.post("/reset_prefix_cache?reset_external=true")

        assert (reply.status, reply.content) == (200, b"")
        assert await cached_tokens(client) == 0


async def test_a_reset_while_requests_run_is_refused() -> None:
    """409, and the request goes on."""
    async with scripted_server(**ROOM_FOR_ENDLESS) as client:
        reply = await client.while_it_streams(
            COMPLETIONS, {"prompt": PROMPT}, lambda: client.post("/reset_prefix_cache")
        )

    assert reply.status == 409
    assert "in use" in reply.error["message"]


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("reset_external=perhaps", "reset_external"),
        ("reset_running_requests=true", "reset_running_requests"),
        ("foo=1", "foo"),
    ],
)
async def test_what_a_reset_cannot_do_is_refused_by_name(query: str, param: str) -> None:
    """And nothing is forgotten."""
    async with scripted_server() as client:
        reply = await client.post(f"/reset_prefix_cache?{query}")

    assert (reply.status, reply.error["param"]) == (400, param)
