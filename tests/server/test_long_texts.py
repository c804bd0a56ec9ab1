"""Long texts of a body are what they would be if it were decoded at once."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from octavo.errors import InvalidRequestError
from octavo.server.bodies import decoded
from octavo.server.schemas.chat import ChatCompletionRequest
from octavo.server.schemas.completions import CompletionRequest

SIZE = 1_200_000  # bytes: some pieces
UNITS = {
    "letters": "a",
    "escapes": "\\u00e9",
    "characters": "é中😀",
    "surrogates": "\\ud83d\\ude00",
    "pairs and letters": "a\\uD83D\\uDE00b",
    "backslashes": "\\\\",
    "quotes": '\\"',
    "mixed": '\\\\\\"\\n,é{\\u4e2d[',
}


def literal(unit: str, shift: int) -> bytes:
    encoded = unit.encode()
    return b'"%b"' % (b"x" * shift + encoded * (SIZE // len(encoded)))


@pytest.mark.parametrize("unit", UNITS.values(), ids=UNITS)
async def test_a_long_text_is_cut_within_nothing(unit: str) -> None:
    """Wherever the pieces end."""
    for shift in range(13):
        text = literal(unit, shift)
        body = b'{"prompt": %b, "suffix": "b"}' % text

        made = await decoded(body, CompletionRequest)

        assert made.prompt == msgspec.json.decode(text)
        assert made.suffix == "b"


async def test_texts_are_put_back_where_they_were() -> None:
    """In structs, lists and objects, beside short ones, several in one body."""
    long = ["a" * SIZE, "b" * SIZE, "c" * SIZE]
    parts = [{"type": "text", "text": "short"}, {"type": "text", "text": long[1]}]
    messages = [
        {"role": "system", "content": long[0]},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "d"},
    ]
    body = json.dumps({"messages": messages, "cache_salt": long[2]}).encode()

    made = await decoded(body, ChatCompletionRequest)

    assert made.messages == messages
    assert made.cache_salt == long[2]


async def test_a_body_may_be_a_text() -> None:
    text: Any = await decoded(literal("a", 0), str)

    assert len(text) == SIZE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a" * SIZE + b"\n", "not valid JSON"),
        (b"\xff" * SIZE, "not valid JSON"),
        (b"\\x" * SIZE, "not valid JSON"),
        (b"\\udc00" * SIZE, "lone surrogate"),
    ],
    ids=["line end", "no UTF-8", "unknown escape", "half of a pair"],
)
async def test_what_is_no_text_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        await decoded(b'{"prompt": "%b"}' % text, CompletionRequest)


async def test_a_text_without_an_end_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="not valid JSON"):
        await decoded(b'{"prompt": "' + b"a" * SIZE, CompletionRequest)


async def test_a_long_name_is_refused() -> None:
    """It is no field, and would be repeated in errors."""
    with pytest.raises(InvalidRequestError, match=f"a name in the body is {SIZE} bytes long"):
        await decoded(b'{"%b" : 1}' % (b"a" * SIZE), CompletionRequest)


async def test_a_long_text_of_the_wrong_type_is_refused_by_its_field() -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        await decoded(b'{"prompt": "a", "n": "%b"}' % (b"a" * SIZE), CompletionRequest)

    assert refusal.value.param == "n"
