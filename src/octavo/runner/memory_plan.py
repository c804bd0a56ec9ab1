"""The memory plan: how much of the machine goes to the KV pool, or a refusal with numbers.

The sum: what this process may use (share of the machine's or container's memory, never more than
is available now) minus weights minus workspace is cut into whole blocks. Flags override it from the
top: `--num-gpu-blocks-override`, then `--kv-cache-memory-bytes`, then the share.
"""

from __future__ import annotations

from octavo.config.engine import CacheConfig, ModelConfig
from octavo.contracts.kv_plan import KVPlan, MemoryPlan
from octavo.errors import ConfigError, DoesNotFitError
from octavo.foundation.machine import MemoryLimits, memory_limits
from octavo.foundation.quantities import format_bytes, format_count

AUTO = -1  # value of max_model_len for "the largest that fits"


def plan_memory(
    *,
    model: ModelConfig,
    cache: CacheConfig,
    max_position: int,
    max_num_seqs: int,
    weights_bytes: int,
    workspace_bytes: int,
    bytes_per_block: int,
    limits: MemoryLimits | None = None,
) -> MemoryPlan:
    """Divide the memory. `max_position` is the context that the checkpoint promises.

    Raises DoesNotFitError with the sum and the one flag to change, ConfigError when the context
    asked for is longer than the checkpoint's.
    """
    limits = limits or memory_limits()
    wanted_len = _wanted_context(model.max_model_len, max_position)
    usable = min(int(limits.total * cache.gpu_memory_utilization), limits.available)
    room = usable - weights_bytes - workspace_bytes
    num_blocks = _explicit_blocks(cache, bytes_per_block)
    if num_blocks is None:
        longest = wanted_len if wanted_len is not None else max_position
        # More than every running request at full length can never be in use at once.
        most = max_num_seqs * -(-longest // cache.block_size)
        num_blocks = min(room // bytes_per_block, most)
    else:
        free = max(0, limits.available - weights_bytes - workspace_bytes)
        _check_available(num_blocks * bytes_per_block, free, _sizing_flag(cache))
    plan = MemoryPlan(
        limit_bytes=limits.total,
        usable_bytes=usable,
        weights_bytes=weights_bytes,
        workspace_bytes=workspace_bytes,
        kv=KVPlan(
            num_blocks=max(0, num_blocks),
            block_size=cache.block_size,
            bytes_per_block=bytes_per_block,
        ),
        max_model_len=wanted_len or max(1, min(max_position, num_blocks * cache.block_size)),
    )
    if plan.kv.num_blocks < 1 or plan.kv.num_tokens < plan.max_model_len:
        raise DoesNotFitError(_refusal(plan, cache))
    return plan


def _wanted_context(max_model_len: int | None, max_position: int) -> int | None:
    """The context to provide for; None for "the largest that fits"."""
    if max_model_len is None:
        return max_position
    if max_model_len == AUTO:
        return None
    if max_model_len == 0:
        raise ConfigError("--max-model-len must be at least 1 or auto, got 0")
    if max_model_len > max_position:
        raise ConfigError(
            f"--max-model-len {max_model_len} is beyond the {max_position} tokens that this model "
            f"was made for; use at most --max-model-len {max_position}"
        )
    return max_model_len


def _explicit_blocks(cache: CacheConfig, bytes_per_block: int) -> int | None:
    if cache.num_gpu_blocks_override is not None:
        return cache.num_gpu_blocks_override
    if cache.kv_cache_memory_bytes is not None:
        return cache.kv_cache_memory_bytes // bytes_per_block
    return None


def _sizing_flag(cache: CacheConfig) -> str:
    """The flag that fixed the size of the pool; empty when the share did."""
    if cache.num_gpu_blocks_override is not None:
        return f"--num-gpu-blocks-override {cache.num_gpu_blocks_override}"
    if cache.kv_cache_memory_bytes is not None:
        return f"--kv-cache-memory-bytes {cache.kv_cache_memory_bytes}"
    return ""


def _check_available(pool_bytes: int, free_bytes: int, flag: str) -> None:
    """A pool of fixed size must lie in memory that is free now: the host must never swap for us."""
    if pool_bytes > free_bytes:
        raise DoesNotFitError(
            f"{flag} asks for a KV pool of {format_bytes(pool_bytes)}, but "
            f"{format_bytes(free_bytes)} of memory are available beside weights and workspace; "
            f"lower {flag.partition(' ')[0]}"
        )


def _refusal(plan: MemoryPlan, cache: CacheConfig) -> str:
    """The sum in one sentence, and what to change."""
    kv = plan.kv
    needed_blocks = -(-plan.max_model_len // kv.block_size)
    limit = _sizing_flag(cache)
    if not limit:
        limit = (
            f"{format_bytes(plan.usable_bytes)} usable (--gpu-memory-utilization "
            f"{cache.gpu_memory_utilization:g} of {format_bytes(plan.limit_bytes)}, or what is "
            f"free now) minus weights {format_bytes(plan.weights_bytes)} minus workspace "
            f"{format_bytes(plan.workspace_bytes)}"
        )
    fix = "Use a smaller model, or give this process more memory"
    if kv.num_tokens >= 1:
        fix = f"Use --max-model-len {kv.num_tokens} (or auto)"
    return (
        f"a context of {format_count(plan.max_model_len)} tokens needs {needed_blocks} KV blocks "
        f"of {kv.block_size} tokens ({format_bytes(needed_blocks * kv.bytes_per_block)}), but "
        f"only {kv.num_blocks} fit, which hold {kv.num_tokens} tokens: {limit}. {fix}"
    )
