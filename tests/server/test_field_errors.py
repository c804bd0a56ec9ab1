"""Values of the wrong type or size in bodies: the field, what was got, what is right."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import InvalidRequestError
from octavo.server.batches.lines import read_line
from tests.support.asgi import scripted_server

LINE = b'{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {}}'


@pytest.mark.parametrize(
    ("path", "body", "told", "param"),
    [
        (
            "/v1/completions",
            {"prompt": "One", "max_tokens": [4]},
            "max_tokens must be a whole number, got a list; correct it, or leave it out",
            "max_tokens",
        ),
        (
            "/detokenize",
            {"tokens": ["a"]},
            "tokens[0] must be a whole number, got a text",
            "tokens[0]",
        ),
    ],
)
async def test_a_body_is_refused_by_the_field(
    path: str, body: dict[str, Any], told: str, param: str
) -> None:
    async with scripted_server() as client:
        reply = await client.post(path, body)

    assert reply.status == 400
    assert (reply.error["message"], reply.error["param"]) == (told, param)


@pytest.mark.parametrize(
    ("line", "told", "param"),
    [
        (LINE.replace(b'"a"', b"7"), "custom_id must be a text, got a whole number", "custom_id"),
        (LINE.replace(b"{}", b"[]"), "body must be an object, got a list", "body"),
        (LINE.replace(b'"url"', b'"uri"'), "url is missing", "url"),
        (b"[]", "line must be an object, got a list", "line"),
    ],
)
def test_a_line_of_a_batch_is_refused_by_the_field(line: bytes, told: str, param: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_line(line)

    assert (caught.value.message, caught.value.param) == (told, param)
