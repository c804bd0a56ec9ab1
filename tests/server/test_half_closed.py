"""Clients that close their half of a connection and wait, and those that have gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from octavo.server.protocol import bounded_protocol
from tests.support.asgi import Client, scripted_server
from tests.support.asgi_socket import listening_as, plain_config
from tests.support.scripted_engine import ENDLESS, ROOM_FOR_ENDLESS, says

PATH = "/v1/completions"
TIMEOUT_S = 20


def request(version: str = "1.1", **fields: object) -> bytes:
    body = json.dumps({"prompt": "hello", **fields}).encode()
    head = f"POST {PATH} HTTP/{version}\r\nhost: x\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


@asynccontextmanager
async def connected(
    client: Client,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    protocol = bounded_protocol(2048)
    async with listening_as(plain_config(client.app, http=protocol)) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        yield reader, writer
        writer.close()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_has_said_all_it_has_to_say_is_answered(
    version: str, streams: bool
) -> None:
    """And the connection ends: nothing more can come on it."""
    async with (
        scripted_server(says({"hello": " my dear"})) as client,
        connected(client) as (reader, writer),
    ):
        writer.write(request(version, stream=streams))
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(-1), TIMEOUT_S)

    answer = answer.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert b" dear" in answer
    assert not streams or b"[DONE]" in answer


async def test_each_of_several_requests_is_answered_before_the_end() -> None:
    async with (
        scripted_server(says({"hello": " my dear"})) as client,
        connected(client) as (reader, writer),
    ):
        writer.write(request() * 3)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(-1), TIMEOUT_S)

    assert answer.count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_has_closed_its_socket_ends_its_request(streams: bool) -> None:
    """Although the first that is seen of it is the same; it hears nothing and holds no block."""
    async with (
        scripted_server(**ROOM_FOR_ENDLESS) as client,
        connected(client) as (_, writer),
    ):
        writer.write(request(max_tokens=ENDLESS, ignore_eos=True, stream=streams))
        await writer.drain()
        async with asyncio.timeout(TIMEOUT_S):
            while not client.state.open_answers.count:
                await asyncio.sleep(0)
            writer.close()
            await client.state.open_answers.wait_closed()
        stats = await client.state.engine.stats()

    assert (stats.num_running, stats.num_waiting, stats.num_used_blocks) == (0, 0, 0)


async def test_half_a_request_ends_with_the_half_of_the_connection() -> None:
    """Its rest can never come."""
    async with scripted_server() as client, connected(client) as (reader, writer):
        writer.write(request()[:-3])
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(-1), TIMEOUT_S) == b""
