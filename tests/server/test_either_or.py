"""Fields that exclude each other are refused by name, and a switch is one wherever it stands."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.conftest import MakeFolder
from tests.support.asgi import scripted_server
from tests.support.chat_templates import CHATML
from tests.support.tiny_pooling import pooling_server

HELLO = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {}}}
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"prompt": "Hi", "messages": HELLO}, "messages"),
        ("/tokenize", {"prompt": "Hi", "messages": []}, "messages"),
        ("/tokenize", {"prompt": "Hi", "tools": [TOOL]}, "tools"),
        ("/tokenize", {"prompt": "Hi", "continue_final_message": True}, "continue_final_message"),
        ("/tokenize", {"prompt": "Hi", "chat_template_kwargs": {"a": 1}}, "chat_template_kwargs"),
        ("/invocations", {"prompt": "Hi", "messages": HELLO}, "prompt"),
    ],
)
async def test_a_text_beside_a_chat_is_refused_by_name(
    path: str, body: dict[str, Any], param: str
) -> None:
    """Of both only one could be answered, and nobody would see which."""
    async with scripted_server(chat_template=CHATML) as client:
        reply = await client.post(path, body)
        alone = [
            await client.post("/tokenize", {"prompt": "Hi", "messages": None, "tools": []}),
            await client.post("/tokenize", {"prompt": None, "messages": HELLO}),
            await client.post("/invocations", {"prompt": None, "messages": HELLO}),
        ]

    assert (reply.status, reply.error["param"]) == (400, param)
    assert "prompt" in reply.error["message"]
    assert [one.status for one in alone] == [200, 200, 200]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/embeddings", {"input": "Hi", "messages": HELLO}, "messages"),
        ("/v1/embeddings", {"input": "Hi", "documents": [{"text": "a"}]}, "documents"),
        ("/pooling", {"input": "Hi", "tools": [TOOL]}, "tools"),
        ("/score", {"queries": "a", "documents": "b", "text_1": "c"}, "text_1"),
        ("/score", {"queries": "a", "documents": "b", "items": "c"}, "items"),
        ("/invocations", {"query": "a", "queries": "a", "documents": ["b"]}, "queries"),
    ],
)
async def test_two_kinds_of_input_of_vectors_are_refused_by_name(
    encoder_folder: MakeFolder, path: str, body: dict[str, Any], param: str
) -> None:
    async with pooling_server(encoder_folder("bert")) as client:
        reply = await client.post(path, body)

    assert (reply.status, reply.error["param"]) == (400, param)


OFF = [False, 0, "false", "0"]
ON = [True, 1, "true"]
PLACES = [
    (RESPONSES, {"stream": True, "stream_options": {"include_obfuscation": ...}}),
    (RESPONSES, {"prompt_cache_options": {"prewarm": ...}}),
    (RESPONSES, {"enable_response_messages": ...}),
    (CHAT, {"stream": True, "stream_options": {"include_obfuscation": ...}}),
    (CHAT, {"structured_outputs": {"choice": ["a"], "disable_any_whitespace": ...}}),
]


def filled(body: Any, value: object) -> Any:
    """A body with a value in the place of the ellipsis."""
    if body is ...:
        return value
    return {k: filled(v, value) for k, v in body.items()} if isinstance(body, dict) else body


@pytest.mark.parametrize(("path", "body"), PLACES)
async def test_a_switch_that_must_be_off_may_be_said_as_vllm_takes_it(
    path: str, body: dict[str, Any]
) -> None:
    """False, 0 and texts of them ask for nothing; what turns it on is refused by name."""
    start = {"input": "Hi"} if path == RESPONSES else {"messages": HELLO}
    start |= {"max_output_tokens": 2} if path == RESPONSES else {"max_tokens": 2}
    async with scripted_server(
        chat_template=CHATML, on_executor=lambda executor: executor.obey_masks()
    ) as client:
        off = [await client.post(path, start | filled(body, value)) for value in OFF]
        on = [await client.post(path, start | filled(body, value)) for value in ON]
        wrong = await client.post(path, start | filled(body, "maybe"))

    assert [one.status for one in off] == [200] * len(OFF), off[0].content
    assert [one.status for one in on] == [400] * len(ON)
    places = {".".join(_path_of(body)), _path_of(body)[0]}
    assert {one.error["param"] for one in on} <= places
    assert wrong.status == 400


def _path_of(body: dict[str, Any]) -> list[str]:
    """Names on the way to the ellipsis."""
    for name, value in body.items():
        if value is ...:
            return [name]
        if isinstance(value, dict):
            return [name, *_path_of(value)]
    return []


@pytest.mark.parametrize("value", [True, False, 0, 1, "true", "false"])
async def test_strict_is_a_switch_too(value: object) -> None:
    """Of a tool and of a schema."""
    tool = {"type": "function", "function": {"name": "add", "parameters": {}, "strict": value}}
    schema = {"name": "a", "schema": {"enum": [1]}, "strict": value}
    formed = {"type": "json_schema", "json_schema": schema}
    async with scripted_server(
        chat_template=CHATML, on_executor=lambda executor: executor.obey_masks()
    ) as client:
        replies = [
            await client.post(CHAT, {"messages": HELLO, "tools": [tool], "tool_choice": "none"}),
            await client.post(CHAT, {"messages": HELLO, "response_format": formed}),
        ]

    assert [one.status for one in replies] == [200, 200], [one.content for one in replies]
