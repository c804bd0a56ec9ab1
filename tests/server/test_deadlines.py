"""`timeout` in every API that makes text: how an answer ends when the time is up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.contracts.step import StepPlan
from octavo.foundation.clock import ManualClock
from tests.support.asgi import Client, Reply, scripted_server

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
OLLAMA_CHAT, OLLAMA_GENERATE = "/api/chat", "/api/generate"
MODEL = "tiny"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
SECONDS_PER_STEP = 1.0


def body(path: str, **fields: Any) -> dict[str, Any]:
    if path == RESPONSES:
        return {"input": "hello", "max_output_tokens": 50, "ignore_eos": True, **fields}
    prompt: dict[str, Any] = {"prompt": "hello"}
    if path in (CHATS, MESSAGES, OLLAMA_CHAT):
        prompt = {"messages": [{"role": "user", "content": "hello"}]}
    if path == MESSAGES:
        return {"model": MODEL, **prompt, "max_tokens": 50, **fields}
    if path in (OLLAMA_CHAT, OLLAMA_GENERATE):
        options = {"num_predict": 50}
        return {"model": MODEL, **prompt, "options": options, "stream": False, **fields}
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


def _events(reply: Reply) -> list[dict[str, Any]]:
    """Events that have a name."""
    lines = reply.content.decode().splitlines()
    return [json.loads(line[len("data: ") :]) for line in lines if line.startswith("data: ")]


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


async def test_a_message_ends_in_the_same_way() -> None:
    """Its stop reason is one that Anthropic's API does not have, like the field itself."""
    late = await ask(MESSAGES, timeout=5.5)
    stream = await ask(MESSAGES, timeout=5.5, stream=True)
    never = await ask(MESSAGES, timeout=5, first_step_s=60)

    assert (late.status, late.json["stop_reason"]) == (200, "timeout")
    assert late.json["content"][0]["text"]
    assert 1 <= late.json["usage"]["output_tokens"] < 10
    [delta] = [event for event in _events(stream) if event["type"] == "message_delta"]
    assert delta["delta"]["stop_reason"] == "timeout"
    assert (never.status, never.json["error"]["type"]) == (408, "timeout_error")
    assert "5 s" in never.json["error"]["message"]


@pytest.mark.parametrize("path", [OLLAMA_CHAT, OLLAMA_GENERATE])
async def test_ollamas_answers_end_in_the_same_way(path: str) -> None:
    """The word stands in `done_reason`."""
    late = await ask(path, timeout=5.5)
    stream = await ask(path, timeout=5.5, stream=True)
    never = await ask(path, timeout=5, first_step_s=60)

    assert (late.status, late.json["done_reason"]) == (200, "timeout")
    assert 1 <= late.json["eval_count"] < 10
    assert json.loads(stream.content.splitlines()[-1])["done_reason"] == "timeout"
    assert never.status == 408
    assert "5 s" in never.json["error"]


@pytest.mark.parametrize("path", [MESSAGES, OLLAMA_CHAT, OLLAMA_GENERATE])
@pytest.mark.parametrize("timeout", [0, "soon", 1e12])
async def test_there_too_a_timeout_that_is_no_time_is_refused(path: str, timeout: Any) -> None:
    reply = await ask(path, timeout=timeout)

    assert reply.status == 400
    assert b"timeout must be a number" in reply.content


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
