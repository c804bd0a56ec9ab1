"""Tools in /v1/chat/completions: what the model writes becomes calls, alike in both modes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.server.chat_format import ChatFormat
from tests.support.asgi import Client, scripted_server
from tests.support.chat_templates import CHATML
from tests.support.scripted_engine import says
from tests.support.thinking_tokenizer import tagged_tokenizer

PATH = "/v1/chat/completions"
# It could show tools, so that nobody tells of them in its place, and does not.
TEMPLATE = "{% if tools %}{% endif %}{% for message in messages %}{{ message.content }}{% endfor %}"
HERMES = TEMPLATE + "{# <tool_call> #}"
SHOWS_TOOLS = "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}" + TEMPLATE
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
NOW = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def tool(name: str, parameters: Any = None, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **more}}


TOOLS = [tool("weather", CITY), tool("now")]


def asks(**fields: Any) -> dict[str, Any]:
    """A greedy chat with tools."""
    messages = [{"role": "user", "content": "One"}]
    return {"messages": messages, "tools": TOOLS, "temperature": 0, "max_tokens": 200, **fields}


async def both(client: Client, **fields: Any) -> list[dict[str, Any]]:
    """The message and finish reason of the whole answer, and of the stream, joined."""
    whole = await client.post(PATH, asks(**fields))
    assert whole.status == 200, whole.content
    [choice] = whole.json["choices"]
    streamed = await client.post(PATH, asks(stream=True, **fields))
    assert streamed.status == 200, streamed.content
    return [
        {**choice["message"], "finish_reason": choice["finish_reason"]},
        joined(streamed.chunks),
    ]


def joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """One message out of the deltas of one choice."""
    message: dict[str, Any] = {"content": "", "reasoning": "", "tool_calls": []}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning"] += delta.get("reasoning") or ""
            for call in delta.get("tool_calls", []):
                assert call["index"] == len(message["tool_calls"])
                message["tool_calls"].append(call)
            message["finish_reason"] = choice["finish_reason"]
    return message


def calls_in(message: dict[str, Any]) -> list[tuple[str, Any]]:
    """(name, arguments) of each call."""
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls", [])
    ]


async def test_a_call_is_parsed_and_its_tags_are_no_content() -> None:
    """The id is one that vLLM's clients know, and the finish reason says what to do."""
    script = says({"One": "Let me see. " + CALL})
    async with scripted_server(script, chat_template=HERMES) as client:
        for message in await both(client):
            assert message["content"].strip() == "Let me see."
            assert calls_in(message) == [("weather", {"city": "Oslo"})]
            assert message["finish_reason"] == "tool_calls"
            [call] = message["tool_calls"]
            assert call["type"] == "function"
            assert call["id"].startswith("chatcmpl-tool-")


async def test_a_bare_call_has_no_content() -> None:
    """OpenAI's clients tell the two by null."""
    async with scripted_server(says({"One": CALL}), chat_template=HERMES) as client:
        whole, _ = await both(client)

    assert whole["content"] is None


async def test_two_calls_have_two_ids_and_one_is_dropped_on_request() -> None:
    """parallel_tool_calls false keeps the first."""
    async with scripted_server(says({"One": NOW + "\n" + CALL}), chat_template=HERMES) as client:
        for message in await both(client):
            assert [name for name, _ in calls_in(message)] == ["now", "weather"]
            assert len({call["id"] for call in message["tool_calls"]}) == 2
        for message in await both(client, parallel_tool_calls=False):
            assert calls_in(message) == [("now", {})]


async def test_an_end_tag_inside_an_argument_does_not_end_the_call() -> None:
    wanted = {"city": "write </tool_call> here"}
    text = f"<tool_call>{json.dumps({'name': 'weather', 'arguments': wanted})}</tool_call>"
    async with scripted_server(says({"One": text}), chat_template=HERMES) as client:
        for message in await both(client):
            assert calls_in(message) == [("weather", wanted)]
            assert not message["content"]


async def test_a_call_that_is_cut_is_text_and_ends_with_length() -> None:
    """Nobody gets half of an argument."""
    async with scripted_server(says({"One": CALL}), chat_template=HERMES) as client:
        for message in await both(client, max_tokens=8):
            assert not calls_in(message)
            assert message["finish_reason"] == "length"
            assert CALL.startswith(message["content"])


async def test_tool_choice_none_parses_nothing() -> None:
    async with scripted_server(says({"One": CALL}), chat_template=HERMES) as client:
        for message in await both(client, tool_choice="none"):
            assert message["content"] == CALL
            assert message["finish_reason"] == "stop"


@pytest.mark.parametrize(("excludes", "name"), [(False, "weathernow"), (True, "")])
async def test_tools_that_may_not_be_called_are_in_the_prompt_unless_excluded(
    excludes: bool, name: str
) -> None:
    config = ServerConfig(exclude_tools_when_tool_choice_none=excludes)
    script = says({name + "One": " yes"})
    async with scripted_server(script, config, chat_template=SHOWS_TOOLS) as client:
        reply = await client.post(PATH, asks(tool_choice="none"))

    assert reply.json["choices"][0]["message"]["content"] == " yes"


async def test_a_model_whose_dialect_nobody_knows_is_refused_with_the_flag() -> None:
    """Unless the flag says it."""
    async with scripted_server(says({"One": CALL}), chat_template=TEMPLATE) as client:
        reply = await client.post(PATH, asks())
    config = ServerConfig(tool_call_parser="hermes")
    async with scripted_server(says({"One": CALL}), config, chat_template=TEMPLATE) as client:
        with_flag = await client.post(PATH, asks())

    assert (reply.status, reply.error["param"]) == (400, "tool_choice")
    assert "--tool-call-parser" in reply.error["message"]
    assert calls_in(with_flag.json["choices"][0]["message"]) == [("weather", {"city": "Oslo"})]


async def test_automatic_calls_can_be_turned_off() -> None:
    config = ServerConfig(enable_auto_tool_choice=False)
    async with scripted_server(config=config, chat_template=HERMES) as client:
        reply = await client.post(PATH, asks())

    assert (reply.status, reply.error["param"]) == (400, "tool_choice")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [tool("")]}, "tools[0].function.name"),
        ({"tools": [tool("a b")]}, "tools[0].function.name"),
        ({"tools": [tool("a"), tool("a")]}, "tools[1].function.name"),
        ({"tools": [tool("a", "text")]}, "tools[0].function.parameters"),
        ({"tools": [tool("a", {"type": "string"})]}, "tools[0].function.parameters.type"),
        ({"tools": [tool("a", strict="yes")]}, "tools[0].function.strict"),
        ({"tools": [tool("a")] * 257}, "tools"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.function.name"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "absent"}}},
            "tool_choice.function.name",
        ),
        ({"tools": None, "tool_choice": "required"}, "tool_choice"),
        (
            {"response_format": {"type": "json_object"}, "tool_choice": "required"},
            "response_format",
        ),
    ],
)
async def test_wrong_tools_are_refused_by_the_name_of_the_field(
    fields: dict[str, Any], param: str
) -> None:
    async with scripted_server(chat_template=HERMES) as client:
        reply = await client.post(PATH, asks(**fields))

    assert (reply.status, reply.error["param"]) == (400, param), reply.error
    assert len(reply.content) < 10_000


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"type": "strng"}}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
    ],
)
async def test_a_schema_that_cannot_be_kept_is_refused_before_anything_runs(
    schema: dict[str, Any],
) -> None:
    """The refusal speaks of tools."""
    async with scripted_server(chat_template=HERMES) as client:
        for choice in ("required", {"type": "function", "function": {"name": "a"}}):
            reply = await client.post(PATH, asks(tools=[tool("a", schema)], tool_choice=choice))

            assert (reply.status, reply.error["param"]) == (400, "tools")


NAMED = {"type": "function", "function": {"name": "weather"}}
ARGUMENTS = '{"city": "Oslo"}'


async def test_a_named_function_is_called_whatever_the_dialect() -> None:
    """The model writes the arguments alone. As with OpenAI, the finish reason is "stop"."""
    async with scripted_server(says({"One": ARGUMENTS}), chat_template=TEMPLATE) as client:
        for message in await both(client, tool_choice=NAMED):
            assert calls_in(message) == [("weather", {"city": "Oslo"})]
            assert message["finish_reason"] == "stop"
            assert not message["content"]


async def test_required_calls_are_a_list_that_ends_the_answer() -> None:
    """The script would go on; the grammar does not, and needs no end token."""
    text = '[{"name": "now", "parameters": {}}]'
    script = says({"One": text + "tail"})
    async with scripted_server(script, chat_template=TEMPLATE) as client:
        fields = {"tool_choice": "required", "parallel_tool_calls": False, "ignore_eos": True}
        for message in await both(client, **fields):
            assert calls_in(message) == [("now", {})]
            assert message["finish_reason"] == "tool_calls"


async def test_a_demanded_call_that_is_cut_is_none() -> None:
    async with scripted_server(says({"One": ARGUMENTS}), chat_template=TEMPLATE) as client:
        for message in await both(client, tool_choice=NAMED, max_tokens=3):
            assert not calls_in(message)
            assert message["finish_reason"] == "length"


async def test_a_strict_tool_is_kept_to_its_schema_when_the_model_calls_it() -> None:
    """Text before the call is free."""
    strict = [tool("weather", {**CITY, "additionalProperties": False}, strict=True)]
    script = says({"One": "Well. " + CALL})
    async with scripted_server(script, chat_template=HERMES) as client:
        for message in await both(client, tools=strict):
            assert calls_in(message) == [("weather", {"city": "Oslo"})]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [tool("a", CITY, strict=True)]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
async def test_a_form_that_this_dialect_cannot_keep_is_refused(
    fields: dict[str, Any], param: str
) -> None:
    """Nothing is accepted and ignored: Mistral's calls are not bound yet while it may choose."""
    config = ServerConfig(tool_call_parser="mistral")
    async with scripted_server(config=config, chat_template=TEMPLATE) as client:
        reply = await client.post(PATH, asks(**fields))

    assert (reply.status, reply.error["param"]) == (400, param)


FORM = {
    "type": "json_schema",
    "json_schema": {"name": "mood", "schema": {"enum": ["glad", "sad"]}},
}


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('"glad" and on', '"glad"', []),
        (CALL + " and on", "", [("weather", {"city": "Oslo"})]),
        (CALL + "\n" + CALL, "", [("weather", {"city": "Oslo"})] * 2),
    ],
)
async def test_an_answer_has_the_asked_form_or_is_calls(
    text: str, content: str, calls: list[Any]
) -> None:
    """As with OpenAI: the form is that of the last word, and tools come before it."""
    script = says({"One": text})
    async with scripted_server(
        script, chat_template=HERMES, on_executor=lambda executor: executor.obey_masks()
    ) as client:
        for message in await both(client, response_format=FORM):
            assert calls_in(message)[: len(calls)] == calls
            assert (message["content"] or "") == content


async def test_a_form_of_the_whole_text_holds_beside_tools_and_calls_in_it_are_found() -> None:
    """vLLM's structured_outputs is about the text, whatever it means."""
    async with scripted_server(says({"One": NOW}), chat_template=HERMES) as client:
        for message in await both(client, structured_outputs={"choice": [NOW]}):
            assert calls_in(message) == [("now", {})]
            assert message["finish_reason"] == "tool_calls"


async def test_each_choice_has_its_own_calls() -> None:
    """With a stream whose choices are interleaved."""
    async with scripted_server(says({"One": NOW}), chat_template=HERMES) as client:
        fields = asks(n=2, temperature=1, stream=True, stream_options={"include_usage": True})
        reply = await client.post(PATH, fields)

    chunks = reply.chunks
    for index in (0, 1):
        own = [
            {"choices": [one for one in chunk["choices"] if one["index"] == index]}
            for chunk in chunks
        ]
        assert calls_in(joined(own)) == [("now", {})]
    assert chunks[-1]["usage"]["completion_tokens"] > 2


async def test_log_probabilities_come_with_every_token_while_text_is_held_back() -> None:
    async with scripted_server(says({"One": NOW}), chat_template=HERMES) as client:
        fields = {"logprobs": True, "top_logprobs": 1}
        whole = await client.post(PATH, asks(**fields))
        streamed = await client.post(PATH, asks(stream=True, **fields))

    entries = whole.json["choices"][0]["logprobs"]["content"]
    pieces = [
        entry
        for chunk in streamed.chunks
        for choice in chunk["choices"]
        for entry in (choice["logprobs"] or {}).get("content", [])
    ]
    assert pieces == entries
    assert calls_in(joined(streamed.chunks)) == [("now", {})]


async def test_mistral_has_short_ids_and_special_tags() -> None:
    """Tags that are special tokens are seen, and other special tokens stay hidden."""
    text = '[TOOL_CALLS][{"name": "now", "arguments": {}}]'
    config = ServerConfig(tool_call_parser="mistral")
    async with scripted_server(says({"One": text}), config, chat_template=TEMPLATE) as client:
        for message in await both(client):
            [call] = message["tool_calls"]
            assert len(call["id"]) == 9
            assert call["id"].isalnum()
        hidden = await client.post(PATH, asks(messages=[{"role": "user", "content": "Two"}]))

    assert "<|" not in hidden.json["choices"][0]["message"]["content"]


async def test_a_tag_that_is_an_end_token_ends_the_call() -> None:
    """As in gpt-oss: the token that ends an answer has no text, and its tag is needed."""
    tags = ("<|channel|>", "<|message|>", "<|call|>")
    tokenizer = tagged_tokenizer(*tags, are_special=True)
    text = "<|channel|>commentary to=functions.now<|message|>{}<|call|>"
    call_id = tokenizer.id_of("<|call|>")
    async with scripted_server(
        says({"One": tokenizer.encode(text)}),
        ServerConfig(tool_call_parser="openai"),
        chat_template=TEMPLATE,
        tokenizer=tokenizer,
        facts={"eos_token_ids": (call_id,)},
    ) as client:
        for message in await both(client):
            assert calls_in(message) == [("now", {})]
            assert not message["content"]
            assert message["finish_reason"] == "tool_calls"


def test_an_unknown_parser_is_refused_with_the_known_names() -> None:
    for option in ("tool_call_parser", "reasoning_parser"):
        with pytest.raises(ConfigError, match=rf"--{option.replace('_', '-')} must be one of"):
            ChatFormat.of(ServerConfig(**{option: "nobodys"}), None)


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "Oslo?"}],
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Oslo?"}],
        [{"role": "user", "content": [{"type": "text", "text": "Oslo?"}]}],
    ],
    ids=["user", "system", "parts"],
)
async def test_a_template_without_tools_tells_of_those_that_must_be_called(
    messages: list[dict[str, Any]],
) -> None:
    """All of them, or the one that is named; what the chat says stays. No call, no word of them."""
    tools = [tool("weather", CITY), tool("clock", {"type": "object"})]
    texts = {}
    async with scripted_server(
        chat_template=CHATML,
        max_model_len=1024,
        num_blocks=256,
        on_executor=lambda executor: executor.obey_masks(),
    ) as client:
        for name, choice in {"required": "required", "named": NAMED, "none": "none"}.items():
            fields = {"messages": messages, "tools": tools, "tool_choice": choice}
            fields |= {"max_tokens": 40, "return_token_ids": True}
            reply = await client.post("/v1/chat/completions", fields)
            assert reply.status == 200, reply.content
            ids = reply.json["prompt_token_ids"]
            texts[name] = client.state.tokenizer.decode(ids, skip_special_tokens=False)

    assert '"city"' in texts["required"]
    assert "clock" in texts["required"]
    assert '"city"' in texts["named"]
    assert "clock" not in texts["named"]
    assert "city" not in texts["none"]
    assert all("Oslo?" in text for text in texts.values())
    assert len(messages) == 1 or "Be brief.\n\nFunctions:" in texts["required"]


async def test_a_template_with_tools_tells_of_them_alone() -> None:
    """In its own words, once."""
    fields: dict[str, Any] = {"tools": [tool("weather", CITY)], "tool_choice": "required"}
    fields |= {"messages": [{"role": "user", "content": "Oslo?"}], "return_token_ids": True}
    async with scripted_server(
        chat_template=SHOWS_TOOLS, on_executor=lambda executor: executor.obey_masks()
    ) as client:
        reply = await client.post("/v1/chat/completions", fields)
        text = client.state.tokenizer.decode(
            reply.json["prompt_token_ids"], skip_special_tokens=False
        )

    assert text == "weatherOslo?"
