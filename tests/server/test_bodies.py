"""Bodies that are read, or refused, before their fields mean anything."""

from __future__ import annotations

import pytest

from octavo.server.bodies import LARGE_BODY
from tests.support.asgi import scripted_server
from tests.support.scripted_engine import says

COMPLETIONS = "/v1/completions"


@pytest.mark.parametrize(
    "text",
    [
        rb"\ud800",
        rb"\uDBFF and more",
        rb"\ud800\u0041 and more",
        rb"\udc00 and more",
        rb"\ud800" + b"x" * LARGE_BODY,
        b"x" * LARGE_BODY + rb"\ud800",
    ],
    ids=[
        "last",
        "first",
        "with no half",
        "second half",
        "begin of a long one",
        "end of a long one",
    ],
)
async def test_half_of_a_pair_of_surrogates_is_called_that(text: bytes) -> None:
    async with scripted_server() as client:
        reply = await client.post(COMPLETIONS, b'{"prompt": "One", "user": "' + text + b'"}')

    assert reply.status == 400
    assert "lone surrogate" in reply.error["message"]


async def test_a_body_that_was_cut_is_not_called_that() -> None:
    async with scripted_server() as client:
        for body in (rb'{"user": "\ud8', rb'{"user": "\\ud800 is an escape", "prompt'):
            reply = await client.post(COMPLETIONS, body)
            assert "not valid JSON" in reply.error["message"]
