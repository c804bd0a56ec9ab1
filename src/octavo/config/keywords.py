"""Keyword arguments of `LLM` and `AsyncLLM` -> EngineConfig.

One flat name per field of the config parts. A name that is not known is refused with the nearest
one; vLLM's names that mean nothing here are accepted as long as their value would change nothing.
"""

from __future__ import annotations

import difflib
import json
import logging
from collections.abc import Mapping
from dataclasses import fields
from types import UnionType
from typing import Any, Literal, TypedDict, get_args, get_type_hints

from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.errors import ConfigError

logger = logging.getLogger(__name__)

PARTS: Mapping[str, type[Any]] = {
    "model": ModelConfig,
    "cache": CacheConfig,
    "scheduler": SchedulerConfig,
}
AUTO_LENGTH = -1  # `max_model_len` as a number for "auto"

# vLLM's name -> why its value has no effect
NO_EFFECT: Mapping[str, str] = {
    "compilation_config": "nothing is compiled at start",
    "disable_custom_all_reduce": "there is one rank",
    "disable_log_requests": "requests are never logged",
    "distributed_executor_backend": "there is one rank",
    "enforce_eager": "nothing is compiled at start",
    "load_format": "the format is recognised from the files",
    "max_seq_len_to_capture": "there are no graphs to capture",
    "tokenizer_mode": "there is one kind of tokenizer",
    "trust_remote_code": "no code from a model's repository is ever run",
    "use_v2_block_manager": "there is one block manager",
}
# vLLM's name -> the values that ask for nothing which is not here
ONLY: Mapping[str, tuple[object, ...]] = {
    "cpu_offload_gb": (0,),
    "data_parallel_size": (1,),
    "device": (None, "auto", "cpu"),
    "disable_sliding_window": (False,),
    "enable_lora": (False,),
    "kv_transfer_config": (None,),
    "pipeline_parallel_size": (1,),
    "quantization": (None, "auto", "gguf"),
    "skip_tokenizer_init": (False,),
    "tensor_parallel_size": (1,),
}
# Options that are JSON on the command line, and may be dicts in Python
JSON_OBJECTS = (
    "hf_overrides",
    "override_generation_config",
    "pooler_config",
    "speculative_config",
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
    backend: str
    threads: int | None
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
    kv_offload_gb: float
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


class LLMOptions(EngineOptions, total=False):
    """The same, and those options of vLLM's that a script may carry over."""

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
    quantization: str | None
    skip_tokenizer_init: bool
    task: str | None
    tensor_parallel_size: int
    tokenizer_mode: str
    trust_remote_code: bool
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
    if name in JSON_OBJECTS and isinstance(value, Mapping):
        return _json_of(name, value)
    hint = get_type_hints(part)[name]
    allowed = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if type(value) in allowed:
        return value
    if float in allowed and type(value) is int:
        return float(value)
    names = " or ".join(kind.__name__ for kind in allowed if kind is not type(None))
    raise ConfigError(f"{name} must be of type {names}, got {value!r}")


def _new_names(options: Mapping[str, Any]) -> dict[str, Any]:
    """`task`, which vLLM has taken apart into `runner` and `convert`."""
    renamed = dict(options)
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
    if name in NO_EFFECT:
        if value:
            logger.info("%s has no effect: %s", name, NO_EFFECT[name])
        return
    if name in ONLY:
        if value not in ONLY[name]:
            supported = " or ".join(repr(allowed) for allowed in ONLY[name])
            raise ConfigError(f"{name}={value!r} is not supported; only {supported} is")
        return
    near = difflib.get_close_matches(name, [*known, *NO_EFFECT, *ONLY], n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(sorted(known))}"
    raise ConfigError(f"unknown option {name!r}. {hint}")
