"""The memory plan: how much of the machine goes to the KV pool, or a refusal with numbers.

The sum: what this process may use (share of the machine's or container's memory, never more than
is available now) minus weights minus workspace minus host slots is cut into whole blocks. Host
slots in a file (`--swap-dir`) take no memory: the system may write their pages out. Flags override
it from the top: `--num-gpu-blocks-override`, then `--kv-cache-memory-bytes`, then the share.
"""

from __future__ import annotations

from octavo.config.engine import AUTO_LENGTH, CacheConfig, ModelConfig
from octavo.contracts.kv_plan import KVPlan, MemoryNeeds, MemoryPlan
from octavo.errors import ConfigError, DoesNotFitError
from octavo.foundation.machine import MemoryLimits, memory_limits
from octavo.foundation.quantities import format_bytes, format_count

# Host slots on the way to the disk tier: so many or so much memory, but never too few to move a
# block while others are being written.
_TIER_SLOTS, _TIER_BYTES, _FEWEST_TIER_SLOTS = 64, 64 * 2**20, 8


def plan_memory(
    *,
    model: ModelConfig,
    cache: CacheConfig,
    max_position: int,
    max_num_seqs: int,
    needs: MemoryNeeds,
    limits: MemoryLimits | None = None,
) -> MemoryPlan:
    """Divide the memory. `max_position` is the context that the checkpoint promises.

    Raises DoesNotFitError with the sum and the one flag to change, ConfigError when the context
    asked for is longer than the checkpoint's.
    """
    limits = limits or memory_limits()
    wanted_len = _wanted_context(model.max_model_len, max_position)
    usable = min(int(limits.total * cache.gpu_memory_utilization), limits.available)
    bytes_per_block = needs.bytes_per_block
    num_host_slots = _host_slots(cache, bytes_per_block)
    taken = needs.weights_bytes + needs.workspace_bytes
    taken += _host_bytes(cache, num_host_slots * bytes_per_block)
    num_blocks = _explicit_blocks(cache, bytes_per_block)
    if num_blocks is None:
        longest = wanted_len if wanted_len is not None else max_position
        # More than every running request at full length can never be in use at once.
        places = [group.written_places(0, longest, cache.block_size) for group in needs.kv_groups]
        most = max_num_seqs * sum(map(len, places))
        num_blocks = min((usable - taken) // bytes_per_block, most)
    else:
        host_bytes = _host_bytes(cache, num_host_slots * bytes_per_block)
        _check_available(num_blocks * bytes_per_block, limits.available - taken, host_bytes, cache)
    kv = KVPlan(
        num_blocks=max(0, num_blocks),
        block_size=cache.block_size,
        bytes_per_block=bytes_per_block,
        groups=needs.kv_groups,
        num_host_slots=num_host_slots,
    )
    plan = MemoryPlan(
        limit_bytes=limits.total,
        usable_bytes=usable,
        weights_bytes=needs.weights_bytes,
        workspace_bytes=needs.workspace_bytes,
        kv=kv,
        max_model_len=wanted_len or max(1, min(max_position, kv.num_tokens)),
    )
    if kv.num_blocks < kv.num_blocks_for(plan.max_model_len):
        raise DoesNotFitError(_refusal(plan, cache))
    return plan


def _wanted_context(max_model_len: int | None, max_position: int) -> int | None:
    """The context to provide for; None for "the largest that fits"."""
    if max_model_len is None:
        return max_position
    if max_model_len == AUTO_LENGTH:
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


def _host_slots(cache: CacheConfig, bytes_per_block: int) -> int:
    """Blocks of swap space, and beside it the slots through which blocks go to the disk tier.

    Raises DoesNotFitError for swap space that holds no block.
    """
    num_slots = int(cache.swap_space * 2**30) // bytes_per_block
    if cache.swap_space and not num_slots:
        raise DoesNotFitError(
            f"--swap-space {cache.swap_space:g} GiB holds no KV block, which has "
            f"{format_bytes(bytes_per_block)}; raise it, or leave it out"
        )
    if cache.kv_offload_dir is not None:
        num_slots += max(_FEWEST_TIER_SLOTS, min(_TIER_SLOTS, _TIER_BYTES // bytes_per_block))
    return num_slots


def _host_bytes(cache: CacheConfig, num_bytes: int) -> int:
    """Memory of so many bytes of host slots: none in a file."""
    return 0 if cache.swap_dir is not None else num_bytes


def _sizing_flag(cache: CacheConfig) -> str:
    """The flag that fixed the size of the pool; empty when the share did."""
    if cache.num_gpu_blocks_override is not None:
        return f"--num-gpu-blocks-override {cache.num_gpu_blocks_override}"
    if cache.kv_cache_memory_bytes is not None:
        return f"--kv-cache-memory-bytes {cache.kv_cache_memory_bytes}"
    return ""


def _check_available(pool_bytes: int, free_bytes: int, host_bytes: int, cache: CacheConfig) -> None:
    """A pool of fixed size must lie in memory that is free now: the host must never swap for us.

    `host_bytes` of swap space are not in `free_bytes` any more.
    """
    if pool_bytes <= free_bytes:
        return
    flag, beside = _sizing_flag(cache), "weights and workspace"
    if host_bytes:
        beside = f"weights, workspace and host slots of {format_bytes(host_bytes)}"
    to_lower = flag.partition(" ")[0]
    if pool_bytes <= free_bytes + host_bytes:
        to_lower = "--swap-space"
    raise DoesNotFitError(
        f"{flag} asks for a KV pool of {format_bytes(pool_bytes)}, but "
        f"{format_bytes(max(0, free_bytes))} of memory are available beside {beside}; "
        f"lower {to_lower}"
    )


def _refusal(plan: MemoryPlan, cache: CacheConfig) -> str:
    """The sum in one sentence, and what to change."""
    kv = plan.kv
    needed_blocks = kv.num_blocks_for(plan.max_model_len)
    host_bytes = _host_bytes(cache, kv.num_host_slots * kv.bytes_per_block)
    limit = _sizing_flag(cache)
    if not limit:
        limit = (
            f"{format_bytes(plan.usable_bytes)} usable (--gpu-memory-utilization "
            f"{cache.gpu_memory_utilization:g} of {format_bytes(plan.limit_bytes)}, or what is "
            f"free now) minus weights {format_bytes(plan.weights_bytes)} minus workspace "
            f"{format_bytes(plan.workspace_bytes)}"
        )
        if host_bytes:
            limit += (
                f" minus host slots {format_bytes(host_bytes)} (--swap-space, --kv-offload-dir)"
            )
    return (
        f"a context of {format_count(plan.max_model_len)} tokens needs {needed_blocks} KV blocks "
        f"of {kv.block_size} tokens ({format_bytes(needed_blocks * kv.bytes_per_block)}), but "
        f"only {kv.num_blocks} fit, which hold {kv.num_tokens} tokens: {limit}. "
        f"{_fix(plan, cache, host_bytes, needed_blocks * kv.bytes_per_block)}"
    )


def _fix(plan: MemoryPlan, cache: CacheConfig, host_bytes: int, needed_bytes: int) -> str:
    """What would make the longest context fit: the flag that stands in its way, or a shorter one.

    `needed_bytes` is the size of the pool that holds it.
    """
    kv, ways = plan.kv, []
    if kv.num_tokens >= 1:
        ways.append(f"use --max-model-len {kv.num_tokens} (or auto)")
    spare = plan.usable_bytes - needed_bytes - plan.weights_bytes
    if cache.num_gpu_blocks_override is not None:
        needed_blocks = needed_bytes // kv.bytes_per_block
        ways.append(f"raise --num-gpu-blocks-override to at least {needed_blocks}")
    elif cache.kv_cache_memory_bytes is not None:
        ways.append(f"raise --kv-cache-memory-bytes to at least {needed_bytes}")
    elif host_bytes and spare >= plan.workspace_bytes:
        flag = "--swap-space" if cache.swap_space else "--kv-offload-dir"
        ways.append(f"lower {flag}" if cache.swap_space else f"leave {flag} out")
    elif spare >= 0:
        ways.append("lower --max-num-batched-tokens, whose workspace it is, or --max-num-seqs")
    elif not ways:
        ways.append("use a smaller model, or give this process more memory")
    fix = ", or ".join(ways)
    return fix[0].upper() + fix[1:]
