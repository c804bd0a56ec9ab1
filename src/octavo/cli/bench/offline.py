"""What `octavo bench latency` and `throughput` share: an LLM in this process, and shares of roofs.

Owns: how a model is loaded for a measurement, what its steps could have taken at best.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from octavo.cli.bench.roofs import Roofs, measure_roofs, step_ops
from octavo.cli.engine_flags import engine_config
from octavo.config.sources import sources_of
from octavo.engine.build import Engine, build_engine
from octavo.errors import ConfigError, RequestFailedError
from octavo.foundation.clock import SystemClock
from octavo.foundation.machine import cpu_count
from octavo.llm import LLM
from octavo.outputs import RequestOutput
from octavo.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Work:
    """What an engine had done at one moment: two of them tell what lies between."""

    num_steps: int
    num_tokens: int
    num_logit_rows: int


class EngineCounter:
    """A `TokenCounter` on the engine's own tokenizer."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """See `TokenCounter`."""
        return self._tokenizer.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        """See `TokenCounter`."""
        return self._tokenizer.decode(token_ids, skip_special_tokens=False)


def load_engine(parsed: argparse.Namespace) -> Engine:
    """The engine of the options; the prefix cache is off unless it was asked for.

    A benchmark that repeats its prompts would measure the cache otherwise.
    """
    config = engine_config(parsed)
    name = "enable_prefix_caching"
    if getattr(parsed, name) is None and sources_of(parsed).find(name) is None:
        config = replace(config, cache=replace(config.cache, enable_prefix_caching=False))
    return build_engine(config, SystemClock(), lambda phase, share: None)


def counter_of(engine: Engine) -> EngineCounter:
    """The engine's tokenizer."""
    return EngineCounter(
        engine.tokenizer, min(engine.facts.vocab_size, engine.tokenizer.vocab_size)
    )


def work_of(engine: Engine) -> Work:
    """What it has done so far."""
    stats = engine.core.stats()
    return Work(stats.num_steps, stats.num_step_tokens, stats.num_generation_tokens)


def roofs_of(engine: Engine) -> Roofs:
    """Of this machine, with the engine's threads."""
    return measure_roofs(engine.config.model.threads or cpu_count())


def reached(engine: Engine, roofs: Roofs, before: Work, seconds: float) -> dict[str, float]:
    """How near the work since `before` came to the roofs.

    Every step reads all weights once; every token takes the operations of the model's products.
    The cache of the processor may hold the weights: then more than the read bandwidth is possible.
    """
    now = work_of(engine)
    num_steps, num_tokens = now.num_steps - before.num_steps, now.num_tokens - before.num_tokens
    read_gb_s = num_steps * engine.memory_plan.weights_bytes / seconds / 1e9
    num_logit_rows = now.num_logit_rows - before.num_logit_rows
    gop_s = step_ops(engine.facts, num_tokens, num_logit_rows) / seconds / 1e9
    roof = roofs.fp32_gop_s
    for activations, rate in (("int8", roofs.int8_gop_s), ("bfloat16", roofs.bf16_gop_s)):
        if f"activations {activations}" in engine.hardware:
            roof = rate
    return {
        "roof_read_gb_s": roofs.read_gb_s,
        "roof_gop_s": roof,
        "read_gb_s": read_gb_s,
        "gop_s": gop_s,
        "read_share": read_gb_s / roofs.read_gb_s,
        "gop_share": gop_s / roof,
    }


def print_reached(found: dict[str, float]) -> None:
    """One line."""
    print(
        f"Reached: weights {found['read_gb_s']:.1f} GB/s ({found['read_share']:.0%} of the roof), "
        f"products {found['gop_s']:.0f} Gop/s ({found['gop_share']:.0%})"
    )


def checked(llm: LLM, outputs: Sequence[RequestOutput]) -> Sequence[RequestOutput]:
    """The outputs. Raises RequestFailedError: tokens that were never made have no rate."""
    for output in outputs:
        for choice in output.outputs:
            if choice.finish_reason == "error":
                raise RequestFailedError(f"request {output.request_id} of the benchmark failed")
    return outputs


def require_room(engine: Engine, longest: int) -> None:
    """Raises ConfigError when a request would not fit into the context."""
    if longest > engine.max_model_len:
        raise ConfigError(
            f"a prompt and its answer of {longest} tokens are longer than the context of "
            f"{engine.max_model_len}; lower the lengths or raise --max-model-len"
        )


def write_json(path: str, document: dict[str, Any]) -> None:
    """Write a results file and say so."""
    Path(path).write_text(json.dumps(document, indent=4) + "\n", encoding="utf-8")
    print(f"written to {path}")
