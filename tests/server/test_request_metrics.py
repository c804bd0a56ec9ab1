"""`metrics` in answers, with --enable-per-request-metrics."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.foundation.clock import ManualClock
from tests.support.asgi import Reply, scripted_server

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
ON = ServerConfig(enable_per_request_metrics=True)


async def ask(path: str, config: ServerConfig | None = ON, **fields: Any) -> Reply:
    """An answer of 4 tokens by an engine that takes a second for each step."""
    clock = ManualClock()
    prompt: dict[str, Any] = {"prompt": "hello"}
    if path == CHATS:
        prompt = {"messages": [{"role": "user", "content": "hello"}]}
    async with scripted_server(
        config=config,
        clock=clock,
        before_run=lambda plan: clock.advance(1.0),
        chat_template=TEMPLATE,
    ) as client:
        return await client.post(path, {**prompt, "max_tokens": 4, "ignore_eos": True, **fields})


def assert_times(metrics: dict[str, Any]) -> None:
    """Those of four steps of a second."""
    assert metrics["queue_time_ms"] >= 0
    assert metrics["time_to_first_token_ms"] >= 1000
    assert metrics["generation_time_ms"] >= 0
    assert metrics["tokens_per_second"] > 0
    assert metrics["arrival_time"] > 1e9
    assert metrics["num_cached_tokens"] == 0
    assert (metrics["num_preemptions"], metrics["num_swaps"]) == (0, 0)


@pytest.mark.parametrize("path", [COMPLETIONS, CHATS])
async def test_a_whole_answer_has_them(path: str) -> None:
    """With vLLM's names."""
    assert_times((await ask(path)).json["metrics"])


@pytest.mark.parametrize("path", [COMPLETIONS, CHATS])
@pytest.mark.parametrize("fields", [{}, {"n": 2}, {"stream_options": {"include_usage": True}}])
async def test_a_stream_has_them_in_its_last_chunk_only(path: str, fields: dict[str, Any]) -> None:
    """That of usage where there is one; no chunk is added."""
    plain = await ask(path, None, stream=True, **fields)
    reply = await ask(path, stream=True, **fields)

    *others, last = reply.chunks
    assert_times(last["metrics"])
    assert not any("metrics" in chunk for chunk in others)
    assert sum("usage" in chunk and not chunk["choices"] for chunk in reply.chunks) == sum(
        "usage" in chunk and not chunk["choices"] for chunk in plain.chunks
    )


async def test_without_the_option_there_are_none() -> None:
    """As before."""
    assert "metrics" not in (await ask(COMPLETIONS, None)).json
    assert not any(
        "metrics" in chunk for chunk in (await ask(COMPLETIONS, None, stream=True)).chunks
    )


async def test_cached_tokens_are_those_of_usage() -> None:
    """The second of two equal prompts finds the first one's blocks."""
    config = ServerConfig(enable_per_request_metrics=True, enable_prompt_tokens_details=True)
    async with scripted_server(config=config) as client:
        for _ in range(2):
            body = {"prompt": "a prompt that fills more than one block", "max_tokens": 1}
            answer = (await client.post(COMPLETIONS, body)).json

    cached = answer["metrics"]["num_cached_tokens"]
    assert cached == answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


async def test_a_preemption_shows() -> None:
    """Two answers in a pool that holds one of them whole."""
    async with scripted_server(config=ON, num_blocks=12, max_model_len=48) as client:
        body = {"prompt": ["one", "two"], "max_tokens": 40, "ignore_eos": True}
        answer = (await client.post(COMPLETIONS, body)).json

    assert answer["metrics"]["num_preemptions"] >= 1
