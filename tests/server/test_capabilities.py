"""GET /v1/capabilities: it says what this very server does."""

from __future__ import annotations

from typing import Any

from octavo.config.server import ServerConfig
from octavo.engine.async_engine import AsyncLLM
from octavo.server.app import ROUTES, build_app
from octavo.server.openapi import shown_path
from octavo.server.state import ServerState
from tests.support.asgi import Client, scripted_server
from tests.support.chat_templates import CHATML
from tests.support.scripted_engine import scripted_async_llm

THINKING = CHATML + "{% if enable_thinking %}{{ '<think>' }}{% endif %}{# </think> <tool_call> #}"


async def capabilities(config: ServerConfig | None = None, **engine: Any) -> Any:
    async with scripted_server(config=config, **engine) as client:
        reply = await client.get("/v1/capabilities")
    assert reply.status == 200
    return reply.json


async def test_limits_are_those_of_this_server() -> None:
    """They come from its flags and its model."""
    config = ServerConfig(max_queued_requests=7, max_body_bytes=4096, served_model_name=("a", "b"))

    shown = await capabilities(
        config, chat_template=CHATML, model={"max_logprobs": 3}, scheduler={"max_num_seqs": 5}
    )

    limits = shown["limits"]
    assert (7, 4096, 3, 5, 256) == (
        limits["max_queued_requests"],
        limits["max_body_bytes"],
        limits["max_logprobs"],
        limits["max_num_seqs"],
        limits["max_model_len"],
    )
    assert ["a", "b"] == shown["models"]


async def test_a_model_without_a_template_has_no_chat() -> None:
    """And nothing that belongs to chats."""
    shown = await capabilities()

    assert shown["model"]["has_chat_template"] is False
    assert (None, None) == (shown["tools"]["parser"], shown["reasoning"]["parser"])
    assert "auto" not in shown["tools"]["choices"]


async def test_parsers_are_those_that_the_template_shows() -> None:
    """By the names of the flags."""
    shown = await capabilities(chat_template=THINKING)

    assert ("hermes", "qwen3") == (shown["tools"]["parser"], shown["reasoning"]["parser"])
    assert "auto" in shown["tools"]["choices"]
    assert ["none"] == shown["reasoning"]["efforts"]


async def test_a_flag_turns_the_choice_auto_off() -> None:
    """The parser is known all the same."""
    shown = await capabilities(ServerConfig(enable_auto_tool_choice=False), chat_template=THINKING)

    assert ("hermes", False) == (shown["tools"]["parser"], "auto" in shown["tools"]["choices"])


async def test_a_broken_template_does_not_hide_the_rest() -> None:
    """Whoever chats is told of it."""
    shown = await capabilities(chat_template="{% if %}")

    assert ([], ["text"]) == (shown["reasoning"]["efforts"], shown["modalities"]["output"])


async def test_every_route_is_listed_with_the_key_that_opens_it() -> None:
    """The table of routes, but for the files of the pages."""
    shown = await capabilities()

    listed = {(one["method"], one["path"]): one["scope"] for one in shown["endpoints"]}
    expected = {
        (method, shown_path(path)) for method, path, _ in ROUTES if not path.startswith("/ui/")
    }
    assert expected == set(listed)
    assert ("admin", "open", "inference") == (
        listed["GET", "/debug/kv"],
        listed["GET", "/health"],
        listed["POST", "/v1/completions"],
    )


async def test_keys_are_said_to_be_needed_where_they_are() -> None:
    """Only to those who have one."""
    async with scripted_server(config=ServerConfig(api_key=("k",))) as client:
        refused = await client.get("/v1/capabilities")
        shown = await client.get("/v1/capabilities", headers={"authorization": "Bearer k"})

    assert (401, True) == (refused.status, shown.json["auth"]["is_required"])


async def test_while_the_model_loads_the_answer_says_how_far_it_is() -> None:
    """The chat page shows it, and asks again."""
    llm: AsyncLLM = scripted_async_llm()
    state = ServerState(llm, "tiny", ServerConfig())
    try:
        await llm.ready()
        reply = await Client(build_app(state), state).get("/v1/capabilities")
    finally:
        await llm.shutdown()

    assert (503, "1") == (reply.status, reply.headers["retry-after"])
    assert "loading" in reply.error["message"]
