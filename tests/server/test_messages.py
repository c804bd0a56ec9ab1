"""/v1/messages: Anthropic's shapes around the same chat."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from octavo.config.server import ServerConfig
from octavo.server.dialects.anthropic import chat_of
from octavo.server.schemas.messages import MessagesRequest
from tests.server.test_reasoning import ANSWER, EFFORT, OPENS, THINKS
from tests.server.test_tools import CALL, CITY, HERMES, NOW, TEMPLATE, tool
from tests.support.asgi import Client, Reply, scripted_server
from tests.support.scripted_engine import ENDLESS, ROOM_FOR_ENDLESS, says
from tests.support.thinking_tokenizer import thinking_tokenizer

PATH = "/v1/messages"
COUNT = PATH + "/count_tokens"
TOOLS = [
    {"name": "weather", "input_schema": CITY, "description": "of a city"},
    {"name": "now", "input_schema": {"type": "object"}},
]
SHOWS_ALL = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for m in messages %}[{{ m.role }}|{{ m.reasoning or '' }}|{{ m.content }}|"
    "{% for call in m.tool_calls or [] %}{{ call.id }} {{ call.function | tojson }}{% endfor %}|"
    "{{ m.name or '' }} {{ m.tool_call_id or '' }}]{% endfor %}"
    "{# <tool_call> #}{# </think> #}"
)
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


def asks(**fields: Any) -> dict[str, Any]:
    """A greedy message."""
    messages = [{"role": "user", "content": "One"}]
    return {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 200, **fields}


def events_of(reply: Reply) -> list[dict[str, Any]]:
    """The events of a stream; each is named as its type is."""
    assert reply.status == 200, reply.content
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in reply.content.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def joined(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events build; their order is checked on the way."""
    first, ping, *middle, last, stop = events
    assert (first["type"], ping["type"]) == ("message_start", "ping")
    assert (last["type"], stop["type"]) == ("message_delta", "message_stop")
    message = first["message"]
    assert message["content"] == []
    is_open = False
    for event in middle:
        content = message["content"]
        if event["type"] == "content_block_start":
            assert (is_open, event["index"]) == (False, len(content))
            content.append(event["content_block"] | {"json": ""})
            is_open = True
        elif event["type"] == "content_block_stop":
            assert is_open
            is_open = False
        else:
            assert (is_open, event["index"]) == (True, len(content) - 1)
            kind = event["delta"].pop("type")
            [(name, text)] = event["delta"].items()
            name = "json" if kind == "input_json_delta" else name
            content[-1][name] += text
    assert not is_open
    for block in message["content"]:
        text = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    return {**message, **last["delta"], "usage": {**message["usage"], **last["usage"]}}


async def both(client: Client, **fields: Any) -> list[dict[str, Any]]:
    """The whole message, and the streamed one joined; ids are their own."""
    whole = await client.post(PATH, asks(**fields))
    assert whole.status == 200, whole.content
    streamed = await client.post(PATH, asks(stream=True, **fields))
    return [whole.json, joined(events_of(streamed))]


async def test_a_message_has_anthropics_shape() -> None:
    async with scripted_server(says({"One": " two"}), chat_template=TEMPLATE) as client:
        reply = await client.post(PATH, asks())

    message = reply.json
    assert message.pop("id").startswith("msg_")
    assert reply.headers["request-id"].startswith("req_")
    num_prompt = message["usage"].pop("input_tokens")
    assert num_prompt > 0
    assert message == {
        "type": "message",
        "role": "assistant",
        "model": "tiny",
        "content": [{"type": "text", "text": " two"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "output_tokens": message["usage"]["output_tokens"],
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 0,
        },
    }


async def test_a_stream_builds_the_same_message() -> None:
    async with scripted_server(says({"One": " two three four"}), chat_template=TEMPLATE) as client:
        whole, streamed = await both(client)

    cached = (
        streamed["usage"]["cache_read_input_tokens"] - whole["usage"]["cache_read_input_tokens"]
    )
    streamed["usage"]["cache_read_input_tokens"] -= cached
    streamed["usage"]["input_tokens"] += cached
    assert {**streamed, "id": ""} == {**whole, "id": ""}
    assert whole["content"] == [{"type": "text", "text": " two three four"}]


async def test_cached_tokens_are_no_input_tokens() -> None:
    """The parts add up to the prompt, as Anthropic counts."""
    message = {"role": "user", "content": "One two three four five six seven eight nine ten"}
    async with scripted_server(chat_template=TEMPLATE) as client:
        first = (await client.post(PATH, asks(messages=[message], max_tokens=1))).json["usage"]
        second = (await client.post(PATH, asks(messages=[message], max_tokens=1))).json["usage"]

    assert (first["cache_read_input_tokens"], second["cache_read_input_tokens"] > 0) == (0, True)
    assert second["input_tokens"] + second["cache_read_input_tokens"] == first["input_tokens"]


async def test_the_reason_of_the_end_is_told() -> None:
    async with scripted_server(says({"One": " two three"}), chat_template=TEMPLATE) as client:
        for message in await both(client, stop_sequences=["thr"]):
            assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "thr")
            assert message["content"] == [{"type": "text", "text": " two "}]
        for message in await both(client, max_tokens=1):
            assert (message["stop_reason"], message["stop_sequence"]) == ("max_tokens", None)
            assert message["usage"]["output_tokens"] == 1


@pytest.mark.parametrize("choice", [None, {"type": "auto"}])
async def test_calls_are_blocks_of_their_own(choice: dict[str, Any] | None) -> None:
    """With the text before them, and the input as an object."""
    script = says({"One": "Let me see. " + CALL + NOW})
    async with scripted_server(script, chat_template=HERMES) as client:
        for message in await both(client, tools=TOOLS, tool_choice=choice):
            text, weather, now = message["content"]
            assert text["text"].strip() == "Let me see."
            assert (weather["name"], weather["input"]) == ("weather", {"city": "Oslo"})
            assert (now["type"], now["name"], now["input"]) == ("tool_use", "now", {})
            assert weather["id"] != now["id"]
            assert message["stop_reason"] == "tool_use"


async def test_parallel_calls_can_be_turned_off() -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    async with scripted_server(says({"One": CALL + NOW}), chat_template=HERMES) as client:
        for message in await both(client, tools=TOOLS, tool_choice=choice):
            assert [block["name"] for block in message["content"]] == ["weather"]


async def test_a_demanded_call_is_made_and_ends_with_tool_use() -> None:
    """Held to the schema, whatever the model would like to write."""
    script = says({"One": '{"city": "Oslo"}'})
    listed = says({"One": '[{"name": "weather", "parameters": {"city": "Oslo"}}]'})
    for choice, plays in (({"type": "tool", "name": "weather"}, script), ({"type": "any"}, listed)):
        async with scripted_server(plays, chat_template=HERMES) as client:
            for message in await both(client, tools=TOOLS, tool_choice=choice):
                [call] = message["content"]
                assert (call["name"], call["input"]) == ("weather", {"city": "Oslo"})
                assert message["stop_reason"] == "tool_use"


async def test_tool_choice_none_parses_nothing() -> None:
    async with scripted_server(says({"One": CALL}), chat_template=HERMES) as client:
        for message in await both(client, tools=TOOLS, tool_choice={"type": "none"}):
            assert message["content"] == [{"type": "text", "text": CALL}]


async def test_thoughts_are_a_block_before_the_text() -> None:
    async with scripted_server(says({"One": ANSWER}), chat_template=THINKS) as client:
        for message in await both(client):
            assert message["content"] == [
                {"type": "thinking", "thinking": "Hm, hm.", "signature": ""},
                {"type": "text", "text": "Yes."},
            ]
        for message in await both(client, thinking={"type": "adaptive", "display": "omitted"}):
            assert message["content"] == [{"type": "text", "text": "Yes."}]


async def test_thinking_can_be_turned_off_by_the_template() -> None:
    script = says({"One<think></think>": "No thoughts.", "One<think>": "Hm.</think>Yes."})
    async with scripted_server(script, chat_template=OPENS) as client:
        for message in await both(client, thinking={"type": "disabled"}):
            assert message["content"] == [{"type": "text", "text": "No thoughts."}]
        for message in await both(client):
            assert [block["type"] for block in message["content"]] == ["thinking", "text"]


async def test_thoughts_beyond_their_budget_are_ended() -> None:
    tokenizer = thinking_tokenizer()
    async with scripted_server(
        says({"One": tokenizer.encode("<think>a b c d</think>yes")}),
        chat_template=THINKS,
        tokenizer=tokenizer,
        on_executor=lambda executor: executor.obey_masks(),
    ) as client:
        for message in await both(client, thinking={"type": "enabled", "budget_tokens": 2}):
            assert len(tokenizer.encode(message["content"][0]["thinking"])) == 2


async def test_a_model_without_thoughts_refuses_a_budget_and_takes_disabled() -> None:
    async with scripted_server(says({"One": " two"}), chat_template=TEMPLATE) as client:
        thinking = {"type": "enabled", "budget_tokens": 5}
        refused = await client.post(PATH, asks(thinking=thinking))
        off = await client.post(PATH, asks(thinking={"type": "disabled"}))

    assert refused.status == 400
    assert "thinking.budget_tokens" in refused.error["message"]
    assert off.status == 200


async def test_an_effort_reaches_the_template_and_a_form_the_answer() -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    script = says({"Onelow": " two", "One": '{"a": 1}'})
    async with scripted_server(script, chat_template=EFFORT) as client:
        low = await client.post(PATH, asks(output_config={"effort": "low"}))
        form = {"format": {"type": "json_schema", "schema": schema}}
        held = await client.post(PATH, asks(output_config=form))

    assert low.json["content"][0]["text"] == " two"
    assert json.loads(held.json["content"][0]["text"]) == {"a": 1}


CALLED = {"id": "call_1", "name": "weather", "input": {"city": "Oslo"}}
CONVERSATION = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "Is it"}, {"type": "text", "text": "hot?"}],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
            {"type": "text", "text": "I look.", "cache_control": {"type": "ephemeral"}},
            {"type": "tool_use", **CALLED},
        ],
    },
    {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "call_1",
                "content": "no network",
                "is_error": True,
            },
            {"type": "text", "text": "Again."},
        ],
    },
]
AS_CHAT = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Is it\nhot?"},
    {
        "role": "assistant",
        "reasoning": "Hm.",
        "content": "I look.",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "name": "weather", "content": "Error: no network"},
    {"role": "user", "content": "Again."},
]


@pytest.mark.parametrize("system", ["Be short.", [{"type": "text", "text": "Be short."}]])
async def test_a_conversation_is_the_same_prompt_as_in_a_chat(system: Any) -> None:
    """The scripted model answers each prompt otherwise, so equal answers are equal prompts."""
    message = {"system": system, "messages": CONVERSATION, "tools": TOOLS, "max_tokens": 8}
    chat_tools = [tool("weather", CITY, description="of a city"), tool("now", {"type": "object"})]
    chat = {"messages": AS_CHAT, "tools": chat_tools, "temperature": 0, "max_tokens": 8}
    async with scripted_server(
        chat_template=SHOWS_ALL, max_model_len=1024, num_blocks=1024
    ) as client:
        ours = await client.post(PATH, asks(**message))
        theirs = await client.post("/v1/chat/completions", chat)
        prompt = {name: message[name] for name in ("system", "messages", "tools")}
        count = await client.post(COUNT, {"model": "tiny", **prompt})

    assert theirs.status == 200, theirs.content
    text = "".join(block["text"] for block in ours.json["content"])
    assert text == theirs.json["choices"][0]["message"]["content"]
    assert text
    assert count.json == {"input_tokens": theirs.json["usage"]["prompt_tokens"]}


async def test_a_last_message_of_the_assistant_is_continued() -> None:
    messages = [{"role": "user", "content": "One"}, {"role": "assistant", "content": " two"}]
    async with scripted_server(says({"One two": " three"}), chat_template=TEMPLATE) as client:
        for message in await both(client, messages=messages):
            assert message["content"] == [{"type": "text", "text": " three"}]


def content(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(blocks)}]}


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 9999}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        (content(IMAGE), "messages[0].content[0].type"),
        (content({"type": "document"}), "messages[0].content[0].type"),
        (content({"type": "text"}), "messages[0].content[0].text"),
        (content({"type": "text", "text": "a", "x": 1}), "messages[0].content[0].x"),
        (content({"type": "thinking", "thinking": "a"}), "messages[0].content[0].type"),
        (
            content({"type": "tool_result", "tool_use_id": "absent"}),
            "messages[0].content[0].tool_use_id",
        ),
        (content({"type": "tool_use", **CALLED}, role="assistant"), "messages[0]"),
        ({"system": [IMAGE]}, "system[0].type"),
        ({"temperature": 3}, "temperature"),
        ({"top_k": -5}, "top_k"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 200}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "between_tools"}}, "thinking.type"),
        ({"thinking": {"type": "adaptive", "display": "summarized"}}, "thinking.display"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        (
            {"tools": [{"name": "a", "input_schema": {"type": "array"}}]},
            "tools[0].input_schema.type",
        ),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice.name"),
        ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"output_config": {"effort": "lowest"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"service_tier": "best"}, "service_tier"),
        ({"mcp_servers": []}, "mcp_servers"),
        ({"container": "x"}, "container"),
        ({"n": 2}, "n"),
    ],
)
async def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], place: str) -> None:
    """In Anthropic's error object, whose message names the place."""
    body = asks(**fields)
    if body["max_tokens"] is None:
        del body["max_tokens"]
    async with scripted_server(chat_template=HERMES) as client:
        reply = await client.post(PATH, body)

    assert reply.status == 400, reply.content
    assert reply.json["type"] == "error"
    assert reply.error["type"] == "invalid_request_error"
    assert place in reply.error["message"], reply.error
    assert reply.json["request_id"] == reply.headers["request-id"]


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"user_id": "u"}},
        {"service_tier": "auto"},
        {"cache_control": {"type": "ephemeral"}},
        {"top_k": 5, "top_p": 0.9},
    ],
)
async def test_fields_that_change_no_answer_are_taken(fields: dict[str, Any]) -> None:
    async with scripted_server(says({"One": " two"}), chat_template=TEMPLATE) as client:
        reply = await client.post(PATH, asks(**fields))

    assert reply.json["content"] == [{"type": "text", "text": " two"}]


async def test_every_way_to_sample_reaches_the_chat() -> None:
    fields = {"max_tokens": 9, "temperature": 0.5, "top_k": 50, "top_p": 0.9}
    async with scripted_server(chat_template=TEMPLATE) as client:
        body = msgspec.convert(asks(stop_sequences=["x"], **fields), MessagesRequest)
        chat = chat_of(client.state, body)

    assert {name: getattr(chat, name) for name in fields} == fields
    assert chat.stop == ["x"]


async def test_either_header_may_carry_the_key() -> None:
    config = ServerConfig(api_key=("secret",))
    async with scripted_server(says({"One": " two"}), config, chat_template=TEMPLATE) as client:
        for headers, status in (
            ({"x-api-key": "secret"}, 200),
            ({"authorization": "Bearer secret"}, 200),
            ({"x-api-key": "wrong", "authorization": "Bearer secret"}, 200),
            ({"x-api-key": "secret", "authorization": "Bearer wrong"}, 200),
            ({"x-api-key": "wrong"}, 401),
            ({}, 401),
        ):
            reply = await client.post(PATH, asks(), headers=headers)
            assert reply.status == status, headers
            assert reply.headers["request-id"].startswith("req_")
    assert reply.error["type"] == "authentication_error"


async def test_both_headers_count_as_one_tenant() -> None:
    """The same key reaches the same cached blocks, however it comes."""
    config = ServerConfig(api_key=("secret",))
    message = [{"role": "user", "content": "One two three four five six seven eight nine"}]
    async with scripted_server(None, config, chat_template=TEMPLATE) as client:
        body = asks(messages=message, max_tokens=1)
        await client.post(PATH, body, headers={"authorization": "Bearer secret"})
        reply = await client.post(PATH, body, headers={"x-api-key": "secret"})

    assert reply.json["usage"]["cache_read_input_tokens"] > 0


async def test_other_errors_have_anthropics_shape_too() -> None:
    async with scripted_server(chat_template=TEMPLATE) as client:
        absent = await client.post(PATH, asks(model="other"))
        method = await client.get(PATH)
        syntax = await client.post(PATH, b"{")
        client.state.is_draining = True
        draining = await client.post(PATH, asks())
        elsewhere = await client.post("/v1/chat/completions", {})

    assert (absent.status, absent.error["type"]) == (404, "not_found_error")
    assert (method.status, method.json["type"]) == (405, "error")
    assert (syntax.status, syntax.error["type"]) == (400, "invalid_request_error")
    assert (draining.status, draining.error["type"]) == (503, "overloaded_error")
    assert "retry-after" in draining.headers
    assert "code" in elsewhere.error
    assert "request-id" not in elsewhere.headers


async def test_a_failure_after_the_first_event_is_the_last_event() -> None:
    """Such as the end of the engine."""
    script = says({"One": " two"}, ends=False)
    async with scripted_server(script, chat_template=TEMPLATE, **ROOM_FOR_ENDLESS) as client:
        has_begun = asyncio.Event()

        def note(_: Reply) -> bool:
            has_begun.set()
            return False

        body = asks(stream=True, max_tokens=ENDLESS)
        reading = asyncio.ensure_future(client.post(PATH, body, on_piece=note))
        await has_begun.wait()
        await client.state.engine.shutdown()
        *_, last = events_of(await reading)

    assert (last["type"], last["error"]["type"]) == ("error", "overloaded_error")
