"""Large bodies: decoded away from the loop, and refused where making their values would hold it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.server.bodies import LARGE_BODY, MAX_COSTLY_VALUES, MAX_VALUES
from octavo.structured.limits import MAX_SOURCE_CHARS
from octavo.text.stretches import STRETCH
from tests.support.asgi import Reply, scripted_server
from tests.support.chat_templates import CHATML
from tests.support.scripted_engine import says

COMPLETIONS = "/v1/completions"
WITHOUT_A_STORE = ("/v1/batches",)  # what such a server has not
TOO_MANY = f"more than {MAX_VALUES} values"
TOO_MANY_COSTLY = f"more than {MAX_COSTLY_VALUES} texts, fractions, lists and objects"


async def refusal(body: bytes) -> str:
    async with scripted_server(says({"One": " two"})) as client:
        reply = await client.post(COMPLETIONS, body)
    assert reply.status == 400, reply.content[:200]
    message: str = reply.error["message"]
    return message


async def test_a_large_body_is_read_like_a_small_one() -> None:
    filler = json.dumps({"user": "x" * LARGE_BODY})[1:]
    async with scripted_server(says({"One": " two"})) as client:
        reply = await client.post(COMPLETIONS, b'{"prompt": "One", ' + filler.encode())
        wrong = await client.post(COMPLETIONS, b'{"prompt": {"a": 1}, ' + filler.encode())

    assert reply.json["choices"][0]["text"] == " two"
    assert (wrong.status, wrong.error["param"]) == (400, "prompt")


async def test_a_large_text_is_answered_part_by_part_beside_the_loop() -> None:
    """Whose other work goes on meanwhile; no part is so long that it would be held up."""
    text = "One two " * (STRETCH // 2)
    num_turns, num_bytes = 0, []

    async def others() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    def note(reply: Reply) -> bool:
        num_bytes.append(len(reply.pieces[-1]))
        return False

    async with scripted_server() as client:
        turn = asyncio.create_task(others())
        reply = await client.post("/tokenize", {"prompt": text}, on_piece=note)
        turn.cancel()
        ids = client.state.tokenizer.encode(text)

    assert reply.json["tokens"] == ids
    assert reply.json["count"] == len(ids)
    assert int(reply.headers["content-length"]) == len(reply.content)
    assert max(num_bytes) < len(reply.content) // 2
    assert num_turns > 3


async def test_the_tokens_of_a_large_text_are_those_of_its_parts() -> None:
    """The answer is encoded in pieces."""
    async with scripted_server() as client:
        one = (
            await client.post("/tokenize", {"prompt": "One two", "return_token_strs": True})
        ).json
        many = await client.post(
            "/tokenize", {"prompt": "One two" * 20_000, "return_token_strs": True}
        )

    assert many.json["count"] == len(many.json["tokens"]) == len(many.json["token_strs"])
    assert many.json["tokens"][: one["count"]] == one["tokens"]
    assert many.json["token_strs"][: one["count"]] == one["token_strs"]


async def test_more_numbers_than_may_be_made_at_once_are_refused() -> None:
    values = b"[" + b"1," * MAX_VALUES + b"1]"
    assert TOO_MANY in await refusal(b'{"prompt": "One", "user": ' + values + b"}")


@pytest.mark.parametrize(
    "value",
    [b"[]", b"{}", b'"\\"\\\\"', b"0.5", b"1e9"],
    ids=["lists", "objects", "texts with escapes", "fractions", "powers of ten"],
)
async def test_fewer_of_what_costs_more_are_refused(value: bytes) -> None:
    values = b"[" + (value + b",") * MAX_COSTLY_VALUES + b"1]"
    assert TOO_MANY_COSTLY in await refusal(b'{"prompt": "One", "user": ' + values + b"}")


async def test_every_path_that_reads_a_body_counts_its_values() -> None:
    body = b'{"prompt": "One", "user": [' + b"1," * MAX_VALUES + b"1]}"
    async with scripted_server(says({"One": " two"})) as client:
        reply = await client.post("/invocations", body)

    assert TOO_MANY in reply.error["message"]


@pytest.mark.parametrize("text", ["[{,", ',\\"', "\\\\,"], ids=["signs", "quotes", "backslashes"])
async def test_signs_inside_a_text_are_no_values(text: str) -> None:
    """Wherever a piece of the body ends: the text is refused for what it is."""
    body = '{"prompt": "%s"}' % (text * (MAX_VALUES + 9))
    message = await refusal(body.encode())

    assert TOO_MANY not in message
    assert TOO_MANY_COSTLY not in message


async def test_a_prompt_of_too_many_ids_is_refused_for_its_length() -> None:
    """Before they are looked at one by one."""
    ids = b"[" + b"9999999," * 50_000 + b"-1]"
    assert "50001" in await refusal(b'{"prompt": ' + ids + b"}")


@pytest.mark.parametrize(
    "field",
    [
        {"structured_outputs": {"json": {"enum": ["a" * 99] * 9999}}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"schema": {"enum": [1] * 140_000, "a": {}}, "name": "a"},
            }
        },
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": {"enum": ["a" * 99] * 9999}},
                }
            ],
            "tool_choice": "required",
        },
    ],
    ids=["schema", "format", "tool"],
)
async def test_a_form_that_is_too_long_is_refused_before_its_text_is_made(
    field: dict[str, Any],
) -> None:
    """By the number of its characters at least."""
    body = {"messages": [{"role": "user", "content": "One"}]} | field
    async with scripted_server(chat_template=CHATML) as client:
        reply = await client.post("/v1/chat/completions", body)

    assert f"more than {MAX_SOURCE_CHARS} characters" in reply.error["message"]


async def test_every_route_with_a_body_refuses_too_much_before_it_is_read() -> None:
    """By what is announced, so not a byte of it is waited for."""
    config = ServerConfig(max_body_bytes=1024)
    statuses = {}
    async with scripted_server(config=config) as client:
        document = (await client.get("/openapi.json")).json
        for path, methods in document["paths"].items():
            body = methods.get("post", {}).get("requestBody", {"content": {}})
            if "application/json" in body["content"] and path not in WITHOUT_A_STORE:
                reply = await client.post(path, b"{", headers={"content-length": "1025"})
                statuses[path] = reply.status

    assert len(statuses) > 20
    assert {} == {path: status for path, status in statuses.items() if status != 413}
