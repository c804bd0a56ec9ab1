"""--max-queued-requests: who is refused, and when they are told to come back."""

from __future__ import annotations

import asyncio

from octavo.config.server import ServerConfig
from octavo.foundation.clock import ManualClock
from tests.support.asgi import Reply, scripted_server
from tests.support.scripted_engine import BLOCK_SIZE, ENDLESS, ROOM_FOR_ENDLESS

PATH = "/v1/completions"
SECONDS_PER_STEP = 3.0


async def test_beyond_the_bound_a_request_gets_429() -> None:
    """The bound counts what waits beside the requests that can run."""
    config = ServerConfig(max_queued_requests=2)
    async with scripted_server(config=config, scheduler={"max_num_seqs": 1}) as client:
        with client.state.admitted(1), client.state.admitted(1):
            taken = await client.post(PATH, {"prompt": "hi"})
            with client.state.admitted(1):
                refused = await client.post(PATH, {"prompt": "hi", "stream": True})
        again = await client.post(PATH, {"prompt": "hi"})

    assert (taken.status, refused.status, again.status) == (200, 429, 200)
    assert refused.error["type"] == "RateLimitError"
    assert "at most 2 may" in refused.error["message"]


async def test_without_blocks_a_free_row_is_no_room() -> None:
    """Two requests are too large for one pool: a third one is one too many."""
    config = ServerConfig(max_queued_requests=1)
    pool = {"max_model_len": 8_000 + ENDLESS, "num_blocks": (8_000 + ENDLESS) // BLOCK_SIZE}
    async with scripted_server(config=config, **pool) as client:

        async def two_more() -> Reply:
            large = {"prompt": [6] * 20_000, "max_tokens": 1}
            second = asyncio.ensure_future(client.post(PATH, large))
            while (await client.state.engine.stats()).num_waiting == 0:
                pass
            third = await client.post(PATH, {"prompt": "hi"})
            assert not second.done()
            second.cancel()
            return third

        third = await client.while_it_streams(PATH, {"prompt": [5] * 8_000}, two_more)

    assert third.status == 429


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
