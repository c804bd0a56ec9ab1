"""Bodies that are read, or refused, before their fields mean anything."""

from __future__ import annotations

import codecs
import gzip

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


@pytest.mark.parametrize("path", [COMPLETIONS, "/invocations", "/api/generate"])
async def test_a_compressed_body_is_refused_as_that(path: str) -> None:
    body = gzip.compress(b'{"prompt": "One"}')
    async with scripted_server() as client:
        reply = await client.post(path, body, headers={"content-encoding": "gzip"})

    assert reply.status == 415
    assert b"compression of bodies is not supported" in reply.content
    assert b"gzip" in reply.content


@pytest.mark.parametrize("path", [COMPLETIONS, "/invocations"])
async def test_a_byte_order_mark_is_skipped(path: str) -> None:
    """And a body that says it is not compressed is read."""
    body = codecs.BOM_UTF8 + b'{"prompt": "One", "temperature": 0}'
    async with scripted_server(says({"One": " two"})) as client:
        reply = await client.post(path, body, headers={"content-encoding": "identity"})

    assert reply.json["choices"][0]["text"] == " two"
