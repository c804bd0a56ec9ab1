"""Large bodies: decoded away from the loop, and refused where making their values would hold it."""

from __future__ import annotations

import json

import pytest

from octavo.server.bodies import LARGE_BODY, MAX_VALUES
from tests.support.asgi import scripted_server
from tests.support.scripted_engine import says

COMPLETIONS = "/v1/completions"
TOO_MANY = f"more than {MAX_VALUES} values"


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


@pytest.mark.parametrize(
    "values",
    [
        b"[" + b"1," * MAX_VALUES + b"1]",
        b"[" + b"[]," * (MAX_VALUES // 2 + 1) + b"[]]",
        b'["a\\\\",' + b'"\\"",' * MAX_VALUES + b'"b"]',
    ],
    ids=["numbers", "lists", "texts with escapes"],
)
async def test_more_values_than_may_be_made_at_once_are_refused(values: bytes) -> None:
    assert TOO_MANY in await refusal(b'{"prompt": "One", "user": ' + values + b"}")


@pytest.mark.parametrize("text", ["[{,", ',\\"', "\\\\,"], ids=["signs", "quotes", "backslashes"])
async def test_signs_inside_a_text_are_no_values(text: str) -> None:
    """Wherever a piece of the body ends: the text is refused for what it is."""
    body = '{"prompt": "%s"}' % (text * (MAX_VALUES + 9))
    assert TOO_MANY not in await refusal(body.encode())


async def test_a_prompt_of_too_many_ids_is_refused_for_its_length() -> None:
    """Before they are looked at one by one."""
    ids = b"[" + b"9999999," * 50_000 + b"-1]"
    assert "50001" in await refusal(b'{"prompt": ' + ids + b"}")
