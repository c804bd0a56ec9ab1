"""Which kind of model an engine runs: one that makes text, or one that makes vectors.

Owns what --runner, --convert and --pooler-config mean for a checkpoint, and which other options an
encoder needs, or a model with states. Does not know files: the checkpoint has said what it was made
for.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from octavo.config.engine import (
    AUTO_LENGTH,
    DEFAULT_STEP_TOKENS,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
)
from octavo.config.json_option import json_option
from octavo.config.model_facts import ModelFacts, PoolingFacts, PoolingMethod
from octavo.engine.pooler import needs_whole_prompts
from octavo.errors import ConfigError
from octavo.logits_processors.loading import FLAG, with_plugins
from octavo.weights.checkpoint import Checkpoint, understood_as

logger = logging.getLogger(__name__)

_METHODS: dict[str, PoolingMethod] = {"CLS": "first", "LAST": "last", "MEAN": "mean"}
# Names of one thing over vLLM's versions.
_METHOD_KEYS = ("pooling_type", "seq_pooling_type")
_LENGTH_KEYS = ("use_activation", "normalize")


def with_kind(checkpoint: Checkpoint, model: ModelConfig) -> Checkpoint:
    """The checkpoint as the options want it used. Raises ConfigError for what it cannot be."""
    facts = checkpoint.facts
    changes = json_option("pooler_config", model.pooler_config)
    pooling = _pooling(facts, model, bool(changes))
    if pooling is not None:
        pooling = _changed(pooling, changes)
    elif changes:
        raise ConfigError("--pooler-config is for models that make vectors: use --runner pooling")
    return understood_as(checkpoint, replace(facts, pooling=pooling))


def config_for(config: EngineConfig, facts: ModelFacts) -> EngineConfig:
    """The configuration that the model needs: whole prompts, where they are seen, fit in a step.

    Raises ConfigError for options that do not go with the model.
    """
    if facts.state is not None:
        config = _without_past(config, facts.architecture)
    asked_len = config.model.max_model_len or 0
    longest = asked_len if asked_len > 0 else facts.max_position
    scheduler, cache = config.scheduler, config.cache
    if not needs_whole_prompts(facts):
        return replace(config, scheduler=_with_long_steps(scheduler, asked_len, longest))
    if cache.kv_offload_dir is not None:
        raise ConfigError(
            "--kv-offload-dir: this model keeps nothing in the KV cache; leave it out"
        )
    num_tokens = max(scheduler.max_num_batched_tokens, longest)
    num_blocks = cache.num_gpu_blocks_override
    if num_blocks is None and cache.kv_cache_memory_bytes is None:
        # What one step can fill: each request has a last block that is not full, and one block in a
        # hundred stays free.
        num_blocks = -(-num_tokens // cache.block_size) + scheduler.max_num_seqs
        num_blocks += 1 + num_blocks // 50
    return replace(
        config,
        scheduler=replace(
            scheduler,
            enable_chunked_prefill=False,
            max_num_batched_tokens=num_tokens,
            preemption_mode="recompute",  # a request ends with its first step
        ),
        cache=replace(
            cache,
            enable_prefix_caching=False,
            num_gpu_blocks_override=num_blocks,
            swap_space=0.0,
            swap_dir=None,
        ),
    )


def _with_long_steps(scheduler: SchedulerConfig, asked_len: int, longest: int) -> SchedulerConfig:
    """Without chunked prefill a step holds the longest prompt: by default; else it is refused.

    A context of `auto` ends where a step does, see `executor/inline.py`. Raises ConfigError.
    """
    num_tokens = scheduler.max_num_batched_tokens
    if scheduler.enable_chunked_prefill or num_tokens >= longest:
        return scheduler
    if num_tokens == DEFAULT_STEP_TOKENS:
        reason = "without chunked prefill a step holds the longest prompt"
        logger.info("--max-num-batched-tokens is %d: %s", longest, reason)
        return replace(scheduler, max_num_batched_tokens=longest)
    if asked_len == AUTO_LENGTH:
        return scheduler
    raise ConfigError(
        f"--max-num-batched-tokens {num_tokens} is less than the context of {longest} tokens "
        "(--max-model-len), and without chunked prefill a step must hold a whole prompt; use "
        f"--max-num-batched-tokens {longest} or --max-model-len {num_tokens}, or leave "
        "--no-enable-chunked-prefill out"
    )


def _without_past(config: EngineConfig, architecture: str) -> EngineConfig:
    """For a model whose layers carry a state, which is only ever that of the newest token."""
    why = f"{architecture} carries a state from token to token, which cannot go back to an earlier"
    for flag, value in (
        ("--speculative-config", config.scheduler.speculative_config),
        ("--kv-offload-dir", config.cache.kv_offload_dir),
    ):
        if value is not None:
            raise ConfigError(f"{flag}: {why} one; leave it out")
    if config.cache.enable_prefix_caching:
        logger.info("prefix caching is off: %s one", why)
    return replace(config, cache=replace(config.cache, enable_prefix_caching=False))


def with_processors(config: EngineConfig, facts: ModelFacts) -> EngineConfig:
    """The configuration with the logits processors of installed packages, as classes.

    Raises ConfigError for one that cannot be loaded, and for any with a model that makes vectors.
    """
    model = config.model
    if facts.pooling is None:
        classes = with_plugins(model.logits_processors)
        return replace(config, model=replace(model, logits_processors=classes))
    if model.logits_processors:
        raise ConfigError(f"{FLAG}: this model makes vectors and has no logits; leave it out")
    return config


def _pooling(facts: ModelFacts, model: ModelConfig, is_configured: bool) -> PoolingFacts | None:
    """What the model makes vectors by, None for text."""
    wanted, own = model.convert, facts.pooling
    if model.runner == "generate":
        if not facts.is_causal or (own is not None and own.task == "classify"):
            raise ConfigError(
                f"--runner generate: {facts.architecture} makes no text here; use --runner pooling"
            )
        return None
    if wanted == "classify" and (own is None or own.task != "classify"):
        raise ConfigError(
            "--convert classify: the checkpoint has no head for it. A reranker that answers with "
            'a word needs --hf-overrides \'{"architectures": ["Qwen3ForSequenceClassification"], '
            '"classifier_from_token": ["no", "yes"], "is_original_qwen3_reranker": true}\''
        )
    if own is not None and not (wanted == "embed" and own.task == "classify"):
        return own
    if model.runner == "auto" and wanted in ("auto", "none") and not is_configured:
        return own
    return PoolingFacts(method="last" if facts.is_causal else "first")


def _changed(pooling: PoolingFacts, changes: dict[str, Any]) -> PoolingFacts:
    """What --pooler-config says, on top of what the model says."""
    for key, value in changes.items():
        if key in _METHOD_KEYS and value in _METHODS:
            pooling = replace(pooling, method=_METHODS[value])
        elif key in _METHOD_KEYS:
            known = ", ".join(_METHODS)
            raise ConfigError(f"--pooler-config: {key} must be one of {known}, got {value!r}")
        elif key in _LENGTH_KEYS and isinstance(value, bool):
            pooling = _with_activation(pooling, value)
        elif key == "task" and value in (pooling.task, f"token_{pooling.task}"):
            pooling = replace(pooling, of_tokens=value != pooling.task)
        elif value is not None:
            known = ", ".join((*_METHOD_KEYS, *_LENGTH_KEYS, "task"))
            raise ConfigError(f"--pooler-config: {key}={value!r} is not supported; known: {known}")
    return pooling


def _with_activation(pooling: PoolingFacts, is_wanted: bool) -> PoolingFacts:
    if pooling.task == "embed":
        return replace(pooling, normalize=is_wanted)
    return pooling if is_wanted else replace(pooling, activation="none")
