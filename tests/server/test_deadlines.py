"""`timeout` in completions and chats: how an answer ends when the time is up."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.contracts.step import StepPlan
from octavo.foundation.clock import ManualClock
from tests.support.asgi import Client, Reply, scripted_server

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
RESPONSES = "/v1/responses"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
SECONDS_PER_STEP = 1.0


def body(path: str, **fields: Any) -> dict[str, Any]:
    if path == RESPONSES:
        return {"input": "hello", "max_output_tokens": 50, "ignore_eos": True, **fields}
    prompt = {"prompt": "hello"}
    if path == CHATS:
        prompt = {"messages": [{"role": "user", "content": "hello"}]}  # type: ignore[dict-item]
    return {**prompt, "max_tokens": 50, "ignore_eos": True, **fields}


async def ask(path: str, *, first_step_s: float = SECONDS_PER_STEP, **fields: Any) -> Reply:
    """An answer of a server whose first step takes `first_step_s`, each later one a second.

    A step computes less than the prompt, so that the first one brings no token.
    """
    clock = ManualClock()

    def advance(plan: StepPlan) -> None:
        clock.advance(SECONDS_PER_STEP if plan.step_id else first_step_s)

    async with scripted_server(
        clock=clock,
        before_run=advance,
        chat_template=TEMPLATE,
        scheduler={"max_num_batched_tokens": 3},
    ) as client:
        reply = await client.post(path, body(path, **fields))
        await assert_idle(client)
    return reply


def _texts(reply: Reply) -> list[str]:
    """What a stream of either kind says."""
    choices = [choice for chunk in reply.chunks for choice in chunk["choices"]]
    return [choice.get("text") or choice.get("delta", {}).get("content", "") for choice in choices]


async def assert_idle(client: Client) -> None:
    stats = await client.state.engine.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_used_blocks) == (0, 0, 0)


@pytest.mark.parametrize("path", [COMPLETIONS, CHATS])
async def test_an_answer_that_takes_longer_ends_as_it_is(path: str) -> None:
    """200 with what there is, "abort" and the word that says why."""
    reply = await ask(path, timeout=5.5)

    choice = reply.json["choices"][0]
    assert reply.status == 200
    assert (choice["finish_reason"], choice["stop_reason"]) == ("abort", "timeout")
    assert 1 <= reply.json["usage"]["completion_tokens"] < 10


@pytest.mark.parametrize("path", [COMPLETIONS, CHATS])
async def test_a_stream_ends_in_the_same_way(path: str) -> None:
    """Its last chunk has the reason, then the end mark."""
    reply = await ask(path, timeout=5.5, stream=True)

    choice = reply.chunks[-1]["choices"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("abort", "timeout")
    assert "".join(_texts(reply))


async def test_a_response_ends_in_the_same_way() -> None:
    """As incomplete, with the reason in its own place; without any token it is 408."""
    late = await ask(RESPONSES, timeout=5.5)
    never = await ask(RESPONSES, timeout=5, first_step_s=60)

    assert (late.status, late.json["status"]) == (200, "incomplete")
    assert late.json["incomplete_details"] == {"reason": "timeout"}
    assert 1 <= late.json["usage"]["output_tokens"] < 10
    assert (never.status, never.error["code"]) == (408, "deadline_exceeded")


async def test_a_short_timeout_is_shown_as_it_is() -> None:
    """Not as 0.000 s."""
    reply = await ask(COMPLETIONS, timeout=0.0001, first_step_s=60)

    assert "within 0.0001 s" in reply.error["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [COMPLETIONS, CHATS])
@pytest.mark.parametrize("n", [1, 2])
async def test_an_answer_without_a_token_is_a_408(path: str, stream: bool, n: int) -> None:
    """An error in the usual form, with the numbers; clients are told not to repeat it."""
    reply = await ask(path, first_step_s=20.0, timeout=5.5, stream=stream, n=n)

    assert reply.status == 408
    assert reply.error["code"] == "deadline_exceeded"
    assert reply.error["param"] == "timeout"
    assert "5.5 s" in reply.error["message"]
    assert reply.headers["x-should-retry"] == "false"


async def test_one_prompt_with_tokens_makes_an_answer_of_several() -> None:
    """The other has none, and says why."""
    clock = ManualClock()
    async with scripted_server(
        clock=clock,
        before_run=lambda plan: clock.advance(SECONDS_PER_STEP),
        scheduler={"max_num_seqs": 1},
    ) as client:
        reply = await client.post(COMPLETIONS, body(COMPLETIONS, prompt=["one", "two"], timeout=9))

    first, second = reply.json["choices"]
    assert reply.status == 200
    assert first["text"]
    assert second["text"] == ""
    assert [one["stop_reason"] for one in (first, second)] == ["timeout"] * 2


async def test_an_answer_in_time_is_not_touched() -> None:
    """It has its own finish reason."""
    reply = await ask(COMPLETIONS, timeout=500, max_tokens=4)

    assert reply.json["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("timeout", [0, -1.5, "soon", True, 1e12])
async def test_a_timeout_that_is_no_time_is_refused_by_name(timeout: Any) -> None:
    """400, before anything starts."""
    reply = await ask(COMPLETIONS, timeout=timeout)

    assert (reply.status, reply.error["param"]) == (400, "timeout")
