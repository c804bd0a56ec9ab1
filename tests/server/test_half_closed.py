"""Clients that close their half of a connection and wait, and those that have gone."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from octavo.config.server import ServerConfig
from octavo.server.protocol import bounded_protocol
from octavo.server.tls import tls_options
from tests.support.asgi import Client, scripted_server
from tests.support.asgi_socket import listening_as, plain_config
from tests.support.certificates import make_certificate
from tests.support.scripted_engine import ENDLESS, ROOM_FOR_ENDLESS, says

PATH = "/v1/completions"
TIMEOUT_S = 20
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
on_each_loop = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])


def request(version: str = "1.1", **fields: object) -> bytes:
    body = json.dumps({"prompt": "hello", **fields}).encode()
    head = f"POST {PATH} HTTP/{version}\r\nhost: x\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


def endless(**fields: object) -> bytes:
    return request(max_tokens=ENDLESS, ignore_eos=True, **fields)


@asynccontextmanager
async def address_of(client: Client, **options: Any) -> AsyncIterator[int]:
    """The port of a client's application, behind the server's own protocol."""
    config = plain_config(client.app, http=bounded_protocol(2048), **options)
    async with listening_as(config) as url:
        yield int(url.rpartition(":")[2])


@asynccontextmanager
async def connected(client: Client) -> AsyncIterator[Streams]:
    async with address_of(client) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield reader, writer
        writer.close()


def run_on(loop: Callable[[], asyncio.AbstractEventLoop], test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(test, TIMEOUT_S))


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    while not await condition():
        await asyncio.sleep(0)


async def is_running(client: Client) -> bool:
    return bool((await client.state.engine.stats()).num_running)


async def check_aborted(client: Client, count: int) -> None:
    """So many requests are cut off, not one has come to its end, and nothing is held."""
    await client.state.open_answers.wait_closed()
    stats = await client.state.engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_used_blocks) == (0, 0, 0)
    assert {why: number for why, number in stats.num_finished.items() if number} == {"abort": count}


@pytest.mark.parametrize("streams", [False, True])
async def test_a_client_that_has_said_all_it_has_to_say_is_answered(streams: bool) -> None:
    """And the connection ends: nothing more can come on it."""
    async with (
        scripted_server(says({"hello": " my dear"})) as client,
        connected(client) as (reader, writer),
    ):
        writer.write(request(stream=streams))
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(-1), TIMEOUT_S)

    answer = answer.removeprefix(CONTINUE)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b" dear" in answer
    assert not streams or b"[DONE]" in answer


@on_each_loop
def test_each_of_several_requests_is_answered_before_the_end(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def test() -> None:
        async with (
            scripted_server(says({"hello": " my dear"})) as client,
            connected(client) as (reader, writer),
        ):
            writer.write(request() * 3)
            writer.write_eof()
            answer = await reader.read(-1)
        assert answer.count(b"HTTP/1.1 200") == 3

    run_on(loop, test())


async def test_no_question_is_put_into_the_middle_of_an_answer() -> None:
    """Not into that of the first of two requests: the second one's has not begun."""
    async with (
        scripted_server(says({"hello": " my dear"}, ends=False)) as client,
        connected(client) as (reader, writer),
    ):
        writer.write(request(max_tokens=200, ignore_eos=True, stream=True) + request())
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write_eof()
        answer = head + await asyncio.wait_for(reader.read(-1), TIMEOUT_S)

    first, _, second = answer.partition(b"0\r\n\r\n")
    assert b"[DONE]" in first
    assert b"100 Continue" not in first
    assert second.removeprefix(CONTINUE).startswith(b"HTTP/1.1 200")


@on_each_loop
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(endless(), id="whole answer"),
        pytest.param(endless(stream=True), id="stream"),
        pytest.param(endless() + request(), id="pipelined"),
        pytest.param(endless(stream=True) + request() * 2, id="pipelined behind a stream"),
        pytest.param(endless().replace(b"HTTP/1.1", b"HTTP/1.0"), id="HTTP/1.0"),
    ],
)
def test_a_client_that_has_closed_its_socket_ends_its_request(
    loop: Callable[[], asyncio.AbstractEventLoop], sent: bytes
) -> None:
    """Although the first that is seen of it is the same; it hears nothing and holds no block."""

    async def test() -> None:
        async with (
            scripted_server(**ROOM_FOR_ENDLESS) as client,
            connected(client) as (_, writer),
        ):
            writer.write(sent)
            await writer.drain()
            await until(lambda: is_running(client))
            writer.close()
            await check_aborted(client, 1)

    run_on(loop, test())


@on_each_loop
def test_a_client_that_leaves_the_queue_ends_its_request(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """While the one before it goes on."""

    async def test() -> None:
        async with (
            scripted_server(scheduler={"max_num_seqs": 1}, **ROOM_FOR_ENDLESS) as client,
            address_of(client) as port,
        ):

            async def is_at(num_running: int, num_waiting: int) -> bool:
                stats = await client.state.engine.stats()
                return (stats.num_running, stats.num_waiting) == (num_running, num_waiting)

            writers = []
            for num_waiting in range(2):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writers.append(writer)
                writer.write(endless())
                await until(lambda expected=num_waiting: is_at(1, expected))
            writers[1].close()
            await until(lambda: is_at(1, 0))
            writers[0].close()
            await check_aborted(client, 2)

    run_on(loop, test())


@on_each_loop
@pytest.mark.parametrize("sent", [endless(), endless() + request()], ids=["one", "pipelined"])
def test_with_tls_the_end_of_one_half_ends_the_request(
    loop: Callable[[], asyncio.AbstractEventLoop],
    sent: bytes,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """There is nothing to ask; nobody complains."""

    async def test() -> None:
        certificate, key = make_certificate(tmp_path, "first")
        config = ServerConfig(ssl_certfile=certificate, ssl_keyfile=key)
        context = ssl.create_default_context(cafile=certificate)
        context.check_hostname = False
        async with (
            scripted_server(config=config, **ROOM_FOR_ENDLESS) as client,
            address_of(client, **tls_options(config)) as port,
        ):
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            writer.write(sent)
            await until(lambda: is_running(client))
            writer.transport.close()
            await check_aborted(client, 1)

    run_on(loop, test())
    assert not [line for line in caplog.messages if "eof_received" in line]


async def test_half_a_request_ends_with_the_half_of_the_connection() -> None:
    """Its rest can never come."""
    async with scripted_server() as client, connected(client) as (reader, writer):
        writer.write(request()[:-3])
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(-1), TIMEOUT_S) == b""
