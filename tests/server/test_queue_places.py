"""A full queue: who leaves it for an arrival that comes before them, and what they are told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from octavo.config.api_keys import hash_of
from octavo.config.server import ServerConfig
from tests.server.test_queue_bound import BODIES, MESSAGES, PATH, TEMPLATE
from tests.support.asgi import Client, Reply, scripted_server
from tests.support.scripted_engine import ROOM_FOR_ENDLESS

BY_PRIORITY = {
    "max_num_seqs": 1,
    "scheduling_policy": "priority",
    "priority_preemption": False,
}
SHORT = {"prompt": "hi", "max_tokens": 1}
GAVE_WAY = b"the place of this request went to one that comes before it"


def bearer(key: str) -> dict[str, dict[str, str]]:
    return {"headers": {"authorization": f"Bearer {key}"}}


async def queued(client: Client, path: str, body: Any, **options: Any) -> asyncio.Task[Reply]:
    """A request that waits in the engine."""
    before = (await client.state.engine.stats()).num_waiting
    asking = asyncio.ensure_future(client.post(path, body, **options))
    while (await client.state.engine.stats()).num_waiting == before:
        assert not asking.done(), asking.result().content
    return asking


async def gave_way(path: str, body: dict[str, Any], **options: Any) -> Reply:
    """What one that waits is told when a better one comes, and one may wait."""
    config = options.pop("config", ServerConfig(max_queued_requests=1))
    async with scripted_server(
        config=config, scheduler=BY_PRIORITY, chat_template=TEMPLATE, **ROOM_FOR_ENDLESS
    ) as client:

        async def crowd() -> Reply:
            waiting = await queued(client, path, body, **options)
            better = asyncio.ensure_future(client.post(PATH, SHORT | {"priority": -1}, **options))
            reply = await waiting
            assert (await client.state.engine.stats()).num_waiting == 1
            better.cancel()
            return reply

        return await client.while_it_streams(PATH, {"prompt": "one"}, crowd, **options)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [path for path in BODIES if path != "/v1/responses"])
async def test_every_api_tells_one_that_gave_way_by_a_status(path: str, stream: bool) -> None:
    """Of a stream nothing has been sent yet. All choices of all prompts leave together."""
    reply = await gave_way(path, BODIES[path] | {"stream": stream})

    assert reply.status == 429, reply.content
    assert GAVE_WAY in reply.content
    assert int(reply.headers["retry-after"]) >= 1


async def test_a_response_that_gave_way_is_told_so_too() -> None:
    reply = await gave_way("/v1/responses", BODIES["/v1/responses"])

    assert reply.status == 429, reply.content
    assert int(reply.headers["retry-after"]) >= 1


async def test_several_chats_leave_as_one() -> None:
    body = {"messages": [MESSAGES["messages"]] * 3}
    reply = await gave_way("/v1/chat/completions/batch", body)

    assert reply.status == 429, reply.content


@pytest.mark.parametrize(("policy", "priority"), [("priority", 5), ("priority", 6), ("fcfs", 0)])
async def test_who_does_not_come_before_takes_no_place(policy: str, priority: int) -> None:
    """Of equal ones who came first stays."""
    scheduler = {"max_num_seqs": 1, "scheduling_policy": policy}
    fields = {"priority": 5} if policy == "priority" else {}
    async with scripted_server(
        config=ServerConfig(max_queued_requests=1), scheduler=scheduler, **ROOM_FOR_ENDLESS
    ) as client:

        async def crowd() -> int:
            waiting = await queued(client, PATH, SHORT | fields)
            late = await client.post(PATH, SHORT | ({"priority": priority} if fields else {}))
            assert not waiting.done()
            waiting.cancel()
            return late.status

        assert await client.while_it_streams(PATH, {"prompt": "one"}, crowd) == 429


async def test_what_has_begun_keeps_all_its_places() -> None:
    """One of two prompts runs, so the other one stays, however bad its priority is."""
    async with scripted_server(
        config=ServerConfig(max_queued_requests=1), scheduler=BY_PRIORITY, **ROOM_FOR_ENDLESS
    ) as client:
        reply = await client.while_it_streams(
            PATH,
            {"prompt": ["one", "two"], "priority": 9},
            lambda: client.post(PATH, SHORT | {"priority": 0}),
        )

    assert reply.status == 429
    assert b"1 requests wait already" in reply.content


async def test_one_key_does_not_shut_another_out() -> None:
    """By the policy fair: the newest of the key that has most gives way, down to equal shares."""
    config = ServerConfig(api_key=("ann", "ben"), max_queued_requests=4)
    scheduler = {"max_num_seqs": 1, "scheduling_policy": "fair"}
    async with scripted_server(config=config, scheduler=scheduler, **ROOM_FOR_ENDLESS) as client:

        async def crowd() -> tuple[list[int], int, int]:
            full = [await queued(client, PATH, SHORT, **bearer("ann")) for _ in range(4)]
            own = await client.post(PATH, SHORT, **bearer("ann"))
            asking = [
                asyncio.ensure_future(client.post(PATH, SHORT, **bearer("ben"))) for _ in range(2)
            ]
            left = [(await full[place]).status for place in (3, 2)]
            third = await client.post(PATH, SHORT, **bearer("ben"))
            for one in (*full, *asking):
                one.cancel()
            return left, own.status, third.status

        left, own, third = await client.while_it_streams(
            PATH, {"prompt": "one"}, crowd, **bearer("ann")
        )

    assert left == [429, 429]
    assert own == 429
    assert third == 429


async def test_a_request_that_gave_way_costs_nothing(tmp_path: Path) -> None:
    """Its prompt is longer than the budget of its key, which can still be used."""
    path = tmp_path / "keys.json"
    record = {"name": "ann", "sha256": hash_of("ann"), "tokens_per_day": 20}
    path.write_text(json.dumps({"keys": [record, {"name": "ben", "sha256": hash_of("ben")}]}))
    async with scripted_server(
        config=ServerConfig(max_queued_requests=2, api_keys_file=str(path)),
        scheduler=BY_PRIORITY,
        **ROOM_FOR_ENDLESS,
    ) as client:

        async def crowd() -> Reply:
            long = SHORT | {"prompt": [5] * 1000, "priority": 5}
            waiting = await queued(client, PATH, long, **bearer("ann"))
            better = [
                asyncio.ensure_future(client.post(PATH, SHORT | {"priority": 1}, **bearer("ben")))
                for _ in range(2)
            ]
            reply = await waiting
            for one in better:
                one.cancel()
            return reply

        reply = await client.while_it_streams(PATH, {"prompt": "one"}, crowd, **bearer("ben"))
        again = await client.post(PATH, SHORT, **bearer("ann"))

    assert (reply.status, again.status) == (429, 200)
