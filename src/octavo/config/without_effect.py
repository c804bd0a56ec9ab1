"""Options of engines that change nothing in the company of others: which, and why.

Owns the combinations that vLLM accepts, so that its launch scripts start here: each is told by
name. A combination of Octavo's own options that does nothing is an error, see `config/engine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from octavo.config.engine import CacheConfig, EngineConfig
from octavo.config.kv_events import KVEventsConfig, parse_kv_events

_SHARE = CacheConfig.__dataclass_fields__["gpu_memory_utilization"].default


def without_idle_swap(config: EngineConfig) -> EngineConfig:
    """The configuration without swap space that nobody would use: it takes memory of the pool."""
    if config.scheduler.preemption_mode != "recompute":
        return config
    return replace(config, cache=replace(config.cache, swap_space=0.0, swap_dir=None))


def without_effect(asked: EngineConfig, used: EngineConfig, longest: int) -> list[str]:
    """What has to be said of options that are taken and change nothing, one line each.

    `asked` is what the user wrote, `used` what the model made of it; no request has more than
    `longest` tokens.
    """
    return [*_of_sizes(asked.cache), *_of_prompts(used, longest), *_of_cache(asked, used)]


def _of_sizes(cache: CacheConfig) -> Iterator[str]:
    if cache.num_gpu_blocks_override is not None:
        winner = "--num-gpu-blocks-override"
    elif cache.kv_cache_memory_bytes is not None:
        winner = "--kv-cache-memory-bytes"
    else:
        return
    reason = f"has no effect: {winner} sets the size of the KV pool"
    if cache.kv_cache_memory_bytes is not None and winner != "--kv-cache-memory-bytes":
        yield f"--kv-cache-memory-bytes {reason}"
    if cache.gpu_memory_utilization != _SHARE:
        yield f"--gpu-memory-utilization {reason}"


def _of_prompts(used: EngineConfig, longest: int) -> Iterator[str]:
    scheduler = used.scheduler
    threshold = scheduler.long_prefill_token_threshold
    if not scheduler.enable_chunked_prefill:
        for flag, value in (
            ("--long-prefill-token-threshold", threshold),
            ("--max-num-partial-prefills", scheduler.max_num_partial_prefills),
        ):
            if value:
                yield f"{flag} has no effect: without chunked prefill prompts are computed whole"
        return
    name = f"--long-prefill-token-threshold {threshold} has no effect:"
    if threshold >= longest:
        yield f"{name} no request has more than {longest} tokens (--max-model-len)"
    elif threshold >= scheduler.max_num_batched_tokens:
        most = scheduler.max_num_batched_tokens
        yield f"{name} no step computes more than {most} tokens (--max-num-batched-tokens)"


def _of_cache(asked: EngineConfig, used: EngineConfig) -> Iterator[str]:
    cache, mode = asked.cache, asked.scheduler.preemption_mode
    if cache.swap_space and (mode == "recompute" or not used.cache.swap_space):
        flags = "--swap-space has" if cache.swap_dir is None else "--swap-space and --swap-dir have"
        why = f"--preemption-mode {mode} moves no blocks"
        if mode != "recompute":
            why = "requests of this model end with their first step, so none is preempted"
        yield f"{flags} no effect: {why}"
    if cache.calculate_kv_scales:
        why = "int8 and int4 always find them, other types have none"
        yield f"--calculate-kv-scales has no effect with --kv-cache-dtype: {why}"
    events = parse_kv_events(cache.kv_events_config)
    if events.is_on and not used.cache.enable_prefix_caching:
        why = "prefix caching is off"
        if cache.enable_prefix_caching:
            why += " with this model"
        yield f"--kv-events-config publishes nothing: {why}"
    is_left_off = not events.enable_kv_cache_events and events.publisher != "null"
    if is_left_off and events != KVEventsConfig():
        yield "--kv-events-config publishes nothing: set enable_kv_cache_events in it to true"
