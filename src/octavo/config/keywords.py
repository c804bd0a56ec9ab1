"""Keyword arguments of `LLM` and `AsyncLLM` -> EngineConfig.

One flat name per field of the config parts. A name that is not known is refused with the nearest
one; vLLM's further names pass or fail as `vllm_options.py` says.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, TypedDict, get_args, get_origin, get_type_hints

from octavo.config.engine import (
    AUTO_LENGTH,
    CacheConfig,
    EngineConfig,
    ModelConfig,
    ObservabilityConfig,
    SchedulerConfig,
)
from octavo.config.field import option_info
from octavo.config.speculative import SHORT_FORMS, join_short_forms
from octavo.errors import ConfigError
from octavo.foundation.nearest import nearest
from octavo.foundation.registry import Registry

logger = logging.getLogger(__name__)

PARTS: Mapping[str, type[Any]] = {
    "model": ModelConfig,
    "cache": CacheConfig,
    "scheduler": SchedulerConfig,
    "observability": ObservabilityConfig,
}

# A long table, for names that are not ours.
TABLES: Registry[Mapping[str, Any]] = Registry(
    "table of options", {"vllm": "octavo.config.vllm_options:FOREIGN"}
)
# vLLM's older `task` -> what it means
TASKS: Mapping[str, dict[str, Any]] = {
    "auto": {},
    "generate": {"runner": "generate"},
    "embed": {"runner": "pooling", "convert": "embed"},
    "embedding": {"runner": "pooling", "convert": "embed"},
    "classify": {"runner": "pooling", "convert": "classify"},
    "score": {"runner": "pooling", "convert": "classify"},
    "reward": {"runner": "pooling"},
}


class EngineOptions(TypedDict, total=False):
    """Every option of an engine but the model; `config/engine.py` documents them."""

    tokenizer: str | None
    revision: str | None
    dtype: str
    quantization: str | None
    activation_dtype: str
    runner: str
    convert: str
    pooler_config: str | Mapping[str, Any] | None
    hf_overrides: str | Mapping[str, Any] | None
    max_model_len: int | Literal["auto"] | None
    seed: int | None
    generation_config: str
    override_generation_config: str | Mapping[str, Any] | None
    max_logprobs: int
    model_impl: str
    trust_remote_code: bool
    backend: str
    threads: int | None
    logits_processors: Sequence[str | type[Any]] | None
    block_size: int
    kv_cache_dtype: str
    calculate_kv_scales: bool
    gpu_memory_utilization: float
    kv_cache_memory_bytes: int | None
    num_gpu_blocks_override: int | None
    enable_prefix_caching: bool
    swap_space: float
    swap_dir: str | None
    kv_offload_dir: str | None
    kv_offload_gb: float | None
    kv_events_config: str | None
    max_num_batched_tokens: int
    max_num_seqs: int
    scheduling_policy: str
    enable_chunked_prefill: bool
    preemption_mode: str
    priority_preemption: bool
    long_prefill_token_threshold: int
    max_num_partial_prefills: int | None
    max_decode_slowdown: float
    speculative_config: str | Mapping[str, Any] | None
    stream_interval: int
    otlp_traces_endpoint: str | None
    collect_detailed_traces: Sequence[str] | None


class LLMOptions(EngineOptions, total=False):
    """The same, and those options of vLLM's that scripts carry over most; all of them are taken."""

    compilation_config: object
    cpu_offload_gb: float
    data_parallel_size: int
    device: str | None
    disable_custom_all_reduce: bool
    disable_log_requests: bool
    disable_sliding_window: bool
    distributed_executor_backend: object
    enable_lora: bool
    enforce_eager: bool | None
    kv_transfer_config: object
    load_format: str
    max_seq_len_to_capture: int
    pipeline_parallel_size: int
    skip_tokenizer_init: bool
    task: str | None
    tensor_parallel_size: int
    tokenizer_mode: str
    use_v2_block_manager: bool


def engine_config(options: Mapping[str, Any]) -> EngineConfig:
    """The configuration for flat options by field name.

    Raises ConfigError for an unknown name, a wrong type, or a value out of range.
    """
    given: dict[str, dict[str, Any]] = {part: {} for part in PARTS}
    owner = {field.name: part for part, kind in PARTS.items() for field in fields(kind)}
    for name, value in _new_names(options).items():
        if name in owner:
            if value is None:
                continue  # "decide for me" is every option's default
            given[owner[name]][name] = _typed(PARTS[owner[name]], name, value)
        else:
            _accept_foreign(name, value, owner)
    return EngineConfig(**{part: kind(**given[part]) for part, kind in PARTS.items()})


def _typed(part: type[Any], name: str, value: Any) -> Any:
    """The value, if it is of the field's type. Whole numbers are floats too, booleans are not."""
    if name == "max_model_len" and value == "auto":
        return AUTO_LENGTH
    if isinstance(value, Mapping) and option_info(part.__dataclass_fields__[name]).is_json:
        return _json_of(name, value)
    hint = get_type_hints(part)[name]
    if get_origin(hint) is tuple and isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(value)
    allowed = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if type(value) in allowed:
        return value
    if float in allowed and type(value) is int:
        return float(value)
    names = " or ".join(kind.__name__ for kind in allowed if kind is not type(None))
    raise ConfigError(f"{name} must be of type {names}, got {value!r}")


def _new_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """`task`, which vLLM has taken apart into `runner` and `convert`; parts of one JSON object."""
    renamed = dict(options)
    parts = {name: renamed.pop(name) for name in SHORT_FORMS if name in renamed}
    joined = join_short_forms(parts)
    if joined is not None:
        if renamed.get("speculative_config") is not None:
            raise ConfigError(f"{', '.join(parts)}: say it in speculative_config, given too")
        renamed["speculative_config"] = joined
    task = renamed.pop("task", None)
    if task is None:
        return renamed
    if task not in TASKS:
        raise ConfigError(f"task={task!r} is not supported; only {', '.join(TASKS)} are")
    return TASKS[task] | renamed


def _json_of(name: str, value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(value))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must be an object of JSON: {error}") from None


def _accept_foreign(name: str, value: Any, known: Mapping[str, str]) -> None:
    """Let vLLM's harmless options pass, or say what is wrong."""
    foreign = TABLES.load("vllm")
    if name in foreign:
        told = foreign[name].check(value, name, "=")
        if told is not None:
            logger.warning("%s", told)
        return
    near = nearest(name, [*known, *foreign])
    hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known))}"
    raise ConfigError(f"unknown option {name!r}. {hint}")
