"""Logits processors on a real model, offline and in the server."""

from __future__ import annotations

import asyncio
from typing import Any

from octavo import LLM, SamplingParams
from octavo.config.keywords import engine_config
from octavo.engine.async_engine import AsyncLLM
from tests.support.asgi import server_on
from tests.support.data import smollm2_path
from tests.support.logits_processors import OnlyToken

PROMPT = "The capital of France is"
BODY = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "ignore_eos": True}


def options(processor: Any) -> dict[str, Any]:
    return {"model": str(smollm2_path()), "max_model_len": 128, "logits_processors": [processor]}


def test_offline_each_request_has_its_own_arguments() -> None:
    """Choices of one prompt and its neighbours too, in one batch."""
    drawn = SamplingParams(n=2, seed=5, max_tokens=3, ignore_eos=True)
    wanted = [drawn.replace(extra_args={"only_token": 300}), drawn]
    with LLM(**options(OnlyToken)) as llm:
        first, second = llm.generate([PROMPT] * 2, wanted, use_tqdm=False)
        [alone] = llm.generate(PROMPT, drawn, use_tqdm=False)

    assert [choice.token_ids for choice in first.outputs] == [[300] * 3] * 2
    assert [choice.token_ids for choice in second.outputs] == [
        choice.token_ids for choice in alone.outputs
    ]


async def test_in_the_server_a_fault_ends_its_request_alone() -> None:
    """The others of the batch are answered as ever."""
    config = engine_config(options("tests.support.logits_processors:OnlyToken"))
    async with server_on(AsyncLLM.start(config)) as client:
        replies = await asyncio.gather(
            client.post("/v1/completions", BODY),
            client.post("/v1/completions", {**BODY, "vllm_xargs": {"only_token": "late fault"}}),
            client.post("/v1/completions", {**BODY, "vllm_xargs": {"only_token": 260}}),
        )
        plain, _, processed = replies
        expected = client.state.tokenizer.decode([260] * 4)
        alone = await client.post("/v1/completions", BODY)

    assert [reply.status for reply in replies] == [200, 500, 200]
    assert processed.json["choices"][0]["text"] == expected
    assert plain.json["choices"][0]["text"] == alone.json["choices"][0]["text"]
