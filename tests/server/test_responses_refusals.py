"""/v1/responses: what is refused, and how; and what is taken without effect."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.server.schemas.responses import ResponseRequest
from tests.server.test_responses import LOGPROBS, PATH, TOOLS, asks, tool_named
from tests.server.test_tools import HERMES, TEMPLATE
from tests.support.asgi import scripted_server
from tests.support.scripted_engine import says


def content(*parts: Any, role: str = "user") -> dict[str, Any]:
    return {"input": [{"role": role, "content": list(parts)}]}


DEEP: dict[str, Any] = {}
for _ in range(400):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": [3]}, "input[0]"),
        ({"input": [{}]}, "input[0].role"),
        ({"input": [{"role": "robot", "content": "a"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 3}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": "a", "x": 1}]}, "input[0].x"),
        ({"input": [{"role": "user", "content": "a", "id": 3}]}, "input[0].id"),
        ({"input": [{"role": "user", "content": "a", "status": 3}]}, "input[0].status"),
        ({"input": [{"type": ["message"], "role": "user"}]}, "input[0].type"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
        ({"input": [{"type": "item_reference", "id": "msg_" + "0" * 36}]}, "input[0].id"),
        ({"input": [{"type": "item_reference", "id": "msg_" + "0" * 9999}]}, "input[0].id"),
        ({"input": [{"type": "item_reference"}]}, "input[0].id"),
        ({"input": [{"type": "item_reference", "id": {}}]}, "input[0].id"),
        ({"input": [{"type": "function_call", "name": "a"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "a"}]}, "input[0].output"),
        ({"input": [{"type": "function_call_output", "call_id": "a", "output": ""}]}, "input"),
        ({"input": [{"type": "reasoning", "summary": 3}]}, "input[0].summary"),
        ({"input": [{"type": "reasoning", "content": [{}]}]}, "input[0].content[0].type"),
        (content({"type": "input_image", "image_url": "x"}), "input[0].content[0].type"),
        (content({"type": "input_file", "file_id": "x"}), "input[0].content[0].type"),
        (content({"type": "input_text"}), "input[0].content[0].text"),
        (content({"type": "input_text", "text": "a", "x": 1}), "input[0].content[0].x"),
        (content({"type": ["input_text"], "text": "a"}), "input[0].content[0].type"),
        (content("a"), "input[0].content[0].type"),
        (content({"type": "refusal", "refusal": "no"}), "input[0].content[0].type"),
        ({"model": 3}, "model"),
        ({"instructions": 3}, "instructions"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": 10**30}, "max_output_tokens"),
        ({"max_output_tokens": 9999}, "max_output_tokens"),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"top_logprobs": 21, "include": LOGPROBS["include"]}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"include": ["file_search_call.results"]}, "include[0]"),
        ({"include": "all"}, "include"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"metadata": {"a": "b" * 513}}, "metadata.a"),
        ({"truncation": "middle"}, "truncation"),
        ({"store": "maybe"}, "store"),
        ({"stream": "yes"}, "stream"),
        ({"background": True, "store": False}, "background"),
        ({"enable_response_messages": True}, "enable_response_messages"),
        ({"stream_options": {"include_obfuscation": True}, "stream": True}, "stream_options"),
        ({"stream_options": {}}, "stream_options"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"prompt_cache_retention": "24h"}, "prompt_cache_retention"),
        ({"prompt_cache_options": {"ttl": "12h"}}, "prompt_cache_options.ttl"),
        ({"previous_response_id": 3}, "previous_response_id"),
        ({"previous_response_id": "chatcmpl-1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"request_id": "resp_1"}, "request_id"),
        ({"conversation": 0}, "conversation"),
        ({"prompt": False}, "prompt"),
        ({"request_id": []}, "request_id"),
        ({"image": {}}, "image"),
        ({"n": 2}, "n"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": {}}]}, "tools[0].type"),
        ({"tools": [{"type": "custom", "name": "a"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "a", "x": 1}]}, "tools[0].x"),
        ({"tools": [TOOLS[0], TOOLS[0]]}, "tools[1].name"),
        ({"tools": [{**TOOLS[0], "parameters": 3}]}, "tools[0].parameters"),
        ({"tools": [{**TOOLS[0], "parameters": DEEP}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "always"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": tool_named("x")}, "tool_choice.name"),
        ({"tools": TOOLS, "tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "allowed_tools", "mode": "auto"}},
            "tool_choice.tools",
        ),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": 3}}, "text.format"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
        (
            {"text": {"format": {"type": "json_schema", "name": 3, "schema": {}}}},
            "text.format.name",
        ),
        (
            {"text": {"format": {"type": "json_schema", "schema": {"type": "robot"}}}},
            "text.format",
        ),
        ({"text": {"format": {"type": "json_schema", "schema": DEEP}}}, "text.format"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"text": {"x": 1}}, "text.x"),
        ({"reasoning": {"effort": ["low"]}}, "reasoning.effort"),
        ({"reasoning": {"summary": "concise"}}, "reasoning.summary"),
        ({"reasoning": {"summary": []}}, "reasoning.summary"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode"),
    ],
)
async def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], place: str) -> None:
    async with scripted_server(chat_template=HERMES) as client:
        reply = await client.post(PATH, asks(**fields))

    assert reply.status in (400, 404), reply.content
    assert place in reply.error["message"], reply.error
    assert (reply.error["param"] or "").startswith(place), reply.error
    assert len(reply.content) < 2000


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k"},
        {"service_tier": "auto", "max_tool_calls": 1, "prompt_cache_retention": "in_memory"},
        {"stream_options": {"include_obfuscation": False}, "stream": True},
        {"enable_response_messages": False},
        {"text": {"format": {"type": "text"}, "verbosity": "medium"}},
        {"tools": [], "conversation": None, "reasoning": {}},
        {"top_logprobs": 0, "include": []},
        {"reasoning": {"summary": "auto"}},
    ],
)
async def test_fields_that_change_no_answer_are_taken(fields: dict[str, Any]) -> None:
    async with scripted_server(says({"One": " two"}), chat_template=TEMPLATE) as client:
        reply = await client.post(PATH, asks(**fields))

    assert reply.status == 200, reply.content
    assert b" two" in reply.content


ODD: tuple[Any, ...] = (
    *(None, True, -1, 3.5, 10**40, "", "\0", "é" * 3000, [], {}, [None], [[1]], [{}]),
    *({"type": None}, {"type": ["a"]}, {"": ""}, DEEP, [DEEP], "resp_" + "9" * 10**5),
)


async def test_no_value_of_any_field_is_a_fault_of_the_server() -> None:
    """It is answered, or refused in a few words."""
    async with scripted_server(
        says({"One": " two"}),
        chat_template=HERMES,
        on_executor=lambda executor: executor.obey_masks(),
    ) as client:
        for name in ResponseRequest.__struct_fields__:
            for value in ODD:
                odd = {name: value} if name != "background" else {"metadata": value}
                reply = await client.post(PATH, asks(max_output_tokens=2) | odd)
                assert reply.status in (200, 400, 404), (name, reply.content[:300])
                assert reply.status == 200 or len(reply.content) < 5000, name
        for raw in (b"", b"[]", b'{"input":"\\ud800"}', b'{"input":' + b"[" * 50_000):
            assert (await client.post(PATH, raw)).status == 400
