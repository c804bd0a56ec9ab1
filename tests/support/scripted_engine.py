"""An engine without a model: a real tokenizer, a real core, and tokens from a script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.config.engine import (
    CacheConfig,
    EngineConfig,
    ModelConfig,
    ObservabilityConfig,
    SchedulerConfig,
)
from octavo.config.model_facts import ModelFacts, RopeFacts
from octavo.contracts.kv_plan import KVPlan
from octavo.contracts.step import StepPlan
from octavo.engine.async_engine import AsyncLLM
from octavo.engine.build import Engine, assemble, start_core
from octavo.executor.scripted import Script, ScriptedExecutor
from octavo.foundation.clock import Clock, SystemClock
from octavo.llm import LLM
from octavo.text.tokenizer import Tokenizer
from tests.support.tiny_tokenizer import tiny_tokenizer

BLOCK_SIZE = 4
MAX_MODEL_LEN = 256
ENDLESS = 15_000
"""Tokens of an answer that is still computed when the test has seen enough: some seconds."""
ROOM_FOR_ENDLESS = {"max_model_len": ENDLESS + 100, "num_blocks": ENDLESS // 2}


@dataclass(frozen=True, slots=True)
class DescribedTinyModel:
    """What a checkpoint says about the scripted model."""

    facts: ModelFacts
    name: str = "tiny"
    chat_template: str | None = None


def tiny_facts(tokenizer: Tokenizer, **changes: Any) -> ModelFacts:
    """Facts that fit the tokenizer; the shape of the layers is of no importance."""
    fields: dict[str, Any] = {
        "architecture": "LlamaForCausalLM",
        "vocab_size": tokenizer.vocab_size,
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_layers": 1,
        "num_heads": 1,
        "num_kv_heads": 1,
        "head_dim": 8,
        "max_position": MAX_MODEL_LEN,
        "norm_eps": 1e-5,
        "hidden_act": "silu",
        "rope": RopeFacts(rotary_dim=8),
        "attention_scale": 1.0,
    }
    return ModelFacts(**(fields | changes))


def says(answers: Mapping[str, str | Sequence[int]], *, ends: bool = True) -> Script:
    """A script by the prompt's text: the answer's tokens, then the end token for ever.

    A prompt that is not in `answers` is answered with a token that depends on everything before it.
    With `ends=False` the answer is repeated instead.
    """
    tokenizer = tiny_tokenizer()
    end = tokenizer.eos_token_id
    assert end is not None
    table = {
        tuple(tokenizer.encode(prompt)): (
            tokenizer.encode(answer) if isinstance(answer, str) else list(answer)
        )
        for prompt, answer in answers.items()
    }

    def next_token(_request_id: str, token_ids: Sequence[int], num_prompt_tokens: int) -> int:
        answer = table.get(tuple(token_ids[:num_prompt_tokens]))
        place = len(token_ids) - num_prompt_tokens
        if answer is None:
            return 5 + hash(tuple(token_ids)) % (tokenizer.vocab_size - 10)
        if place < len(answer):
            return answer[place]
        return end if ends else answer[place % len(answer)]

    return next_token


def scripted_engine(
    script: Script | None = None,
    *,
    num_blocks: int = 256,
    max_model_len: int = MAX_MODEL_LEN,
    tokenizer: Tokenizer | None = None,
    facts: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    scheduler: Mapping[str, Any] | None = None,
    observability: Mapping[str, Any] | None = None,
    executor_times: Mapping[str, float] | None = None,
    before_run: Callable[[StepPlan], None] | None = None,
    on_executor: Callable[[ScriptedExecutor], None] | None = None,
    chat_template: str | None = None,
    clock: Clock | None = None,
) -> Engine:
    """An engine that plays `script`. `on_executor` is shown the executor, to plan faults with."""
    clock = clock or SystemClock()
    tokenizer = tokenizer or tiny_tokenizer()
    config = EngineConfig(
        model=ModelConfig(**(model or {})),
        cache=CacheConfig(block_size=8),
        scheduler=SchedulerConfig(**(scheduler or {})),
        observability=ObservabilityConfig(**(observability or {})),
    )
    executor = ScriptedExecutor(
        script or says({}),
        KVPlan(num_blocks=num_blocks, block_size=BLOCK_SIZE, bytes_per_block=1024),
        max_model_len=max_model_len,
        before_run=before_run,
        **(executor_times or {}),
    )
    if on_executor is not None:
        on_executor(executor)
    core = start_core(config, executor, clock, lambda phase, share: None)
    described = DescribedTinyModel(
        tiny_facts(tokenizer, **(facts or {})), chat_template=chat_template
    )
    return assemble(config, core, described, tokenizer, clock)


def scripted_llm(
    script: Script | None = None, *, keeps_metrics: bool = False, **options: Any
) -> LLM:
    """An LLM on a scripted engine."""
    return LLM.from_engine(
        scripted_engine(script, **options), SystemClock(), keeps_metrics=keeps_metrics
    )


def scripted_async_llm(script: Script | None = None, **options: Any) -> AsyncLLM:
    """An AsyncLLM on a scripted engine. Needs a shutdown."""
    return AsyncLLM(lambda report: scripted_engine(script, **options), options.get("clock"))
