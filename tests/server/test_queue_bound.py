"""--max-queued-requests: who is refused, and when they are told to come back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.contracts.step import StepPlan
from octavo.foundation.clock import ManualClock
from tests.server.conftest import MakeFolder
from tests.support.asgi import Client, Reply, scripted_server
from tests.support.scripted_engine import BLOCK_SIZE, ENDLESS, ROOM_FOR_ENDLESS
from tests.support.serving import Gate
from tests.support.tiny_pooling import pooling_server

PATH = "/v1/completions"
SECONDS_PER_STEP = 3.0
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
MESSAGES = {"messages": [{"role": "user", "content": "One"}]}
BODIES: dict[str, dict[str, Any]] = {
    PATH: {"prompt": ["One", "Two"], "n": 2, "temperature": 1},
    "/v1/chat/completions": MESSAGES,
    "/api/chat": {"model": "tiny", **MESSAGES},
    "/api/generate": {"model": "tiny", "prompt": "One"},
    "/v1/messages": {"model": "tiny", "max_tokens": 9, **MESSAGES},
    "/v1/responses": {"input": "One"},
}


def two_blocks(number: int, **fields: Any) -> dict[str, Any]:
    """A request that needs two blocks, shares none with others, and makes one token."""
    return {"prompt": [5 + number] * 2 * BLOCK_SIZE, "max_tokens": 1, **fields}


class Held:
    """Requests that all come while the engine's first step is held."""

    def __init__(self, client: Client, gate: Gate) -> None:
        self._client, self._gate = client, gate
        self.replies: list[asyncio.Future[Reply]] = []

    async def post(self, body: dict[str, Any], num_choices: int = 1) -> None:
        """Send it; return when the engine's thread has it, or has to decide about it."""
        wanted = self._client.state.num_choices + num_choices
        self.replies.append(asyncio.ensure_future(self._client.post(PATH, body)))
        while self._client.state.num_choices < wanted:
            await asyncio.sleep(0)
        await asyncio.to_thread(self._gate.is_reached.wait, 30)

    async def statuses(self) -> list[int]:
        self._gate.open()
        return [reply.status for reply in await asyncio.gather(*self.replies)]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_burst_fills_the_pool_and_the_queue_and_the_rest_gets_429(stream: bool) -> None:
    """Sixteen blocks: of what comes in one step eight run, though rows are free for all, and six
    wait. A refusal is a status, also of a stream.
    """
    gate, config = Gate(), ServerConfig(max_queued_requests=6)
    async with scripted_server(config=config, num_blocks=16, before_run=gate.before_run) as client:
        held = Held(client, gate)
        for number in range(50):
            await held.post(two_blocks(number, stream=stream))
        statuses = await held.statuses()
        last = held.replies[-1].result()

    assert statuses == [200] * (1 + 8 + 6) + [429] * (50 - 15)
    assert last.error["type"] == "RateLimitError"
    assert "6 requests wait already, at most 6 may" in last.error["message"]
    assert int(last.headers["retry-after"]) >= 1


async def test_what_only_waits_for_its_turn_in_a_step_is_not_counted() -> None:
    """A step computes one of these prompts; there are rows and blocks for all of them."""
    gate, config = Gate(), ServerConfig(max_queued_requests=1)
    sizes = {"max_num_batched_tokens": 2 * BLOCK_SIZE, "max_num_seqs": 30}
    async with scripted_server(
        config=config, scheduler=sizes, before_run=gate.before_run
    ) as client:
        held = Held(client, gate)
        for number in range(8):
            await held.post(two_blocks(number))
        statuses = await held.statuses()

    assert statuses == [200] * 8


async def test_the_choices_of_a_request_come_in_together_or_not_at_all() -> None:
    """Four rows: of twenty choices sixteen wait, which is too many unless nobody else does."""
    config = ServerConfig(max_queued_requests=2)
    twenty = two_blocks(0, n=20, temperature=1)
    async with scripted_server(config=config, scheduler={"max_num_seqs": 4}) as client:
        alone = await client.post(PATH, twenty)
    gate = Gate()
    async with scripted_server(
        config=config, scheduler={"max_num_seqs": 4}, before_run=gate.before_run
    ) as client:
        held = Held(client, gate)
        for number in range(1, 7):  # one runs and ends, four run, one waits
            await held.post(two_blocks(number))
        await held.post(twenty, num_choices=20)
        await held.post({"prompt": [[7, 8], [9, 9]], "max_tokens": 1}, num_choices=2)
        await held.post(two_blocks(7))
        statuses = await held.statuses()

    assert alone.status == 200
    assert len(alone.json["choices"]) == 20
    assert statuses == [200] * 6 + [429, 429, 200]


async def test_who_waits_is_served_in_the_order_of_the_policy() -> None:
    gate, config = Gate(), ServerConfig(max_queued_requests=2)
    started: list[int] = []  # numbers in the order of arrival

    def before_run(plan: StepPlan) -> None:
        started.extend(int(row.request_id.rsplit("-", 1)[1]) for row in plan.new_rows)
        gate.before_run(plan)

    scheduler = {"max_num_seqs": 1, "scheduling_policy": "priority"}
    async with scripted_server(config=config, scheduler=scheduler, before_run=before_run) as client:
        held = Held(client, gate)
        for number, priority in enumerate((0, 9, 5, 1, 0)):
            await held.post(two_blocks(number, priority=priority))
        statuses = await held.statuses()

    assert statuses == [200, 429, 200, 200, 200]
    assert started == [0, 4, 3, 2]


async def test_a_client_that_leaves_before_the_engine_decides_leaves_nothing_behind() -> None:
    gate, config = Gate(), ServerConfig(max_queued_requests=1)
    async with scripted_server(config=config, before_run=gate.before_run) as client:
        held = Held(client, gate)
        for number in range(3):
            await held.post(two_blocks(number))
        held.replies.pop().cancel()
        assert await held.statuses() == [200, 200]
        stats = await client.state.engine.stats()
        assert (stats.num_running, stats.num_waiting, client.state.num_choices) == (0, 0, 0)
        assert len(client.state.engine.open_requests) == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_every_api_refuses_with_a_status_and_the_seconds(path: str, stream: bool) -> None:
    reply = await refused(path, BODIES[path] | {"stream": stream})
    assert reply.status == 429, reply.content
    assert b"1 requests wait already, at most 1 may" in reply.content
    assert int(reply.headers["retry-after"]) >= 1


async def test_several_chats_are_refused_as_one() -> None:
    conversations = [MESSAGES["messages"]] * 3
    reply = await refused("/v1/chat/completions/batch", {"messages": conversations})
    assert reply.status == 429, reply.content


async def test_several_chats_are_taken_as_one() -> None:
    """The first of them runs; the others wait, more than may wait of several requests."""
    body = {"messages": [MESSAGES["messages"]] * 4, "max_tokens": 3}
    async with scripted_server(
        config=ServerConfig(max_queued_requests=1),
        scheduler={"max_num_seqs": 1},
        chat_template=TEMPLATE,
    ) as client:
        reply = await client.post("/v1/chat/completions/batch", body)
    assert reply.status == 200, reply.content
    assert len(reply.json["choices"]) == 4


async def test_a_response_in_the_background_is_refused_before_it_is_kept() -> None:
    reply = await refused("/v1/responses", {"input": "One", "background": True})
    assert reply.status == 429, reply.content


async def test_a_response_in_the_background_that_is_taken_ends_as_ever() -> None:
    async with scripted_server(
        config=ServerConfig(max_queued_requests=1), chat_template=TEMPLATE
    ) as client:
        body = {"input": "One", "background": True, "max_output_tokens": 16}
        made = (await client.post("/v1/responses", body)).json
        while made["status"] in ("queued", "in_progress"):
            await asyncio.sleep(0)
            made = (await client.get(f"/v1/responses/{made['id']}")).json
        await client.state.open_answers.wait_closed()
        assert client.state.num_choices == 0

    assert made["status"] in ("completed", "incomplete")


async def refused(path: str, body: dict[str, Any]) -> Reply:
    """What a request gets where one runs and one waits, which is as many as may."""
    async with scripted_server(
        config=ServerConfig(max_queued_requests=1),
        scheduler={"max_num_seqs": 1},
        chat_template=TEMPLATE,
        **ROOM_FOR_ENDLESS,
    ) as client:
        reply = await client.while_it_streams(
            PATH, {"prompt": ["one", "two"]}, lambda: client.post(path, body)
        )
        assert not client.state.background._running
        return reply


async def test_vectors_are_refused_too(encoder_folder: MakeFolder) -> None:
    """A hundred inputs come in where nobody waits; the next request is one too many then."""
    config = ServerConfig(max_queued_requests=1)
    async with pooling_server(encoder_folder("bert"), config, max_num_seqs=1) as client:
        body = {"input": [[0, 17, 44, 2]] * 100}
        asking = asyncio.ensure_future(client.post("/v1/embeddings", body))
        await client.state.engine.open_requests.wait_busy()
        late = await client.post("/v1/embeddings", {"input": [[0, 17, 44, 2]] * 2})
        first = await asking
        again = await client.post("/v1/embeddings", {"input": [[0, 17, 44, 2]] * 2})

    assert (first.status, late.status, again.status) == (200, 429, 200)
    assert int(late.headers["retry-after"]) >= 1


async def test_without_blocks_a_free_row_is_no_room() -> None:
    """Two requests are too large for one pool: a third one is one too many, unless it is so small
    that it passes the second.
    """
    config = ServerConfig(max_queued_requests=1)
    pool = {"max_model_len": 8_000 + ENDLESS, "num_blocks": (8_000 + ENDLESS) // BLOCK_SIZE}
    async with scripted_server(config=config, **pool) as client:

        async def three_more() -> list[int]:
            large = {"prompt": [6] * 20_000, "max_tokens": 1}
            second = asyncio.ensure_future(client.post(PATH, large))
            while (await client.state.engine.stats()).num_waiting == 0:
                pass
            third = await client.post(PATH, large)
            small = await client.post(PATH, {"prompt": "hi", "max_tokens": 1})
            assert not second.done()
            second.cancel()
            return [third.status, small.status]

        statuses = await client.while_it_streams(PATH, {"prompt": [5] * 8_000}, three_more)

    assert statuses == [429, 200]


async def test_a_refused_client_is_told_when_a_place_will_be_free() -> None:
    """By the rate at which requests have ended lately."""
    clock = ManualClock()
    config = ServerConfig(max_queued_requests=1)
    async with scripted_server(
        config=config,
        clock=clock,
        before_run=lambda plan: clock.advance(SECONDS_PER_STEP),
        scheduler={"max_num_seqs": 1},
        **ROOM_FOR_ENDLESS,
    ) as client:
        for _ in range(6):
            await client.post(PATH, {"prompt": "hi", "max_tokens": 1})
        reply = await client.while_it_streams(
            PATH, {"prompt": ["one", "two"]}, lambda: client.post(PATH, {"prompt": "hi"})
        )

    assert reply.status == 429
    assert int(reply.headers["retry-after"]) >= SECONDS_PER_STEP
