"""The memory plan: the sum, its overrides, its refusals."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.engine import CacheConfig, ModelConfig
from octavo.contracts.kv_plan import KVGroup, MemoryNeeds, MemoryPlan
from octavo.errors import ConfigError, DoesNotFitError
from octavo.foundation.machine import MemoryLimits
from octavo.runner.memory_plan import plan_memory

MIB = 2**20


def plan(
    *, cache: dict[str, Any] | None = None, max_model_len: int | None = None, **given: Any
) -> MemoryPlan:
    """100 MiB in all, half of it usable, 10 MiB of weights, 1 MiB of workspace, 64 KiB a block."""
    sizes: dict[str, Any] = {
        "weights_bytes": 10 * MIB,
        "workspace_bytes": MIB,
        "bytes_per_block": 64 * 1024,
    }
    names = ("weights_bytes", "workspace_bytes", "bytes_per_block", "kv_groups")
    sizes |= {name: given.pop(name) for name in names if name in given}
    terms: dict[str, Any] = {
        "max_position": 1024,
        "max_num_seqs": 64,
        "needs": MemoryNeeds(**sizes),
        "limits": MemoryLimits(total=100 * MIB, available=90 * MIB),
    }
    return plan_memory(
        model=ModelConfig(max_model_len=max_model_len),
        cache=CacheConfig(block_size=16, **(cache or {})),
        **(terms | given),
    )


def test_what_is_left_of_the_share_becomes_blocks() -> None:
    """50 MiB usable minus 11 MiB is 39 MiB, which is 624 blocks of 64 KiB."""
    made = plan()

    assert made.kv.num_blocks == 624
    assert made.max_model_len == 1024


def test_the_pool_never_exceeds_what_all_requests_can_use() -> None:
    """Two requests of 1,024 tokens in blocks of 16 cannot hold more than 128 blocks."""
    assert plan(max_num_seqs=2).kv.num_blocks == 128


def test_memory_that_others_hold_is_not_planned_with() -> None:
    """Available memory beats the share."""
    limits = MemoryLimits(total=100 * MIB, available=21 * MIB)

    assert plan(limits=limits, max_model_len=128).kv.num_blocks == 160


@pytest.mark.parametrize(
    ("cache", "num_blocks"),
    [({"num_gpu_blocks_override": 70}, 70), ({"kv_cache_memory_bytes": 5 * MIB}, 80)],
)
def test_an_explicit_size_overrides_the_share(cache: dict[str, Any], num_blocks: int) -> None:
    """Blocks and bytes may be given outright."""
    assert plan(cache=cache).kv.num_blocks == num_blocks


def test_auto_takes_the_longest_context_that_fits() -> None:
    """A pool of 32 blocks of 16 tokens gives a context of 512."""
    assert plan(cache={"num_gpu_blocks_override": 32}, max_model_len=-1).max_model_len == 512


def test_auto_never_exceeds_the_checkpoint() -> None:
    """A large pool does not stretch the context."""
    assert plan(max_model_len=-1).max_model_len == 1024


def test_a_context_that_does_not_fit_is_refused_with_the_largest_that_does() -> None:
    """The message has the sum, and the flag with its value."""
    with pytest.raises(
        DoesNotFitError, match=r"600 tokens.*32 fit.*--max-model-len 512 \(or auto\)"
    ):
        plan(cache={"num_gpu_blocks_override": 32}, max_model_len=600)


def test_a_model_larger_than_the_memory_is_refused() -> None:
    """No context fits beside the weights."""
    with pytest.raises(DoesNotFitError, match="smaller model"):
        plan(weights_bytes=80 * MIB)


def test_a_fixed_pool_larger_than_the_free_memory_is_refused() -> None:
    """The host must never swap for us."""
    with pytest.raises(DoesNotFitError, match="lower --num-gpu-blocks-override"):
        plan(cache={"num_gpu_blocks_override": 10_000})


@pytest.mark.parametrize("length", [0, 1025])
def test_a_context_outside_the_checkpoints_range_is_refused(length: int) -> None:
    """Zero tokens hold nothing, and the model was not made for more than its own context."""
    with pytest.raises(ConfigError, match="--max-model-len"):
        plan(max_model_len=length)


WINDOWS = (KVGroup(layers=(0,)), KVGroup(layers=(1,), window=65), KVGroup(layers=(2,), window=65))


def test_a_window_group_needs_blocks_for_its_window_only() -> None:
    """1,024 tokens: 64 blocks, and twice 5 for the windows of 65 tokens in blocks of 16."""
    assert plan(cache={"num_gpu_blocks_override": 74}, kv_groups=WINDOWS).max_model_len == 1024
    with pytest.raises(DoesNotFitError, match=r"needs 74 KV blocks .*only 73 fit.*len 1008"):
        plan(cache={"num_gpu_blocks_override": 73}, kv_groups=WINDOWS)


def test_auto_counts_what_windows_leave() -> None:
    """40 blocks: 5 for each window leave 30, which are 480 tokens."""
    cache = {"num_gpu_blocks_override": 40}

    assert plan(cache=cache, kv_groups=WINDOWS, max_model_len=-1).max_model_len == 480


def test_a_pool_smaller_than_the_only_window_holds_shorter_requests() -> None:
    """Three blocks of 16 for a window of 65."""
    cache = {"num_gpu_blocks_override": 3}
    groups = (KVGroup(layers=(0,), window=65),)

    assert plan(cache=cache, kv_groups=groups, max_model_len=-1).max_model_len == 48


def test_swap_space_is_taken_from_the_memory_of_the_pool() -> None:
    """1/128 GiB are 8 MiB: 128 slots, and as many blocks fewer."""
    made = plan(cache={"swap_space": 1 / 128})

    assert (made.kv.num_host_slots, made.kv.num_blocks) == (128, 624 - 128)


def test_swap_space_in_a_file_takes_no_memory() -> None:
    """The slots are there, and all blocks too."""
    made = plan(cache={"swap_space": 1 / 128, "swap_dir": "/somewhere"})

    assert (made.kv.num_host_slots, made.kv.num_blocks) == (128, 624)


def test_the_disk_tier_has_slots_beside_the_swap_space() -> None:
    """64 of them, or fewer when blocks are large, or at least 8."""
    offload = {"kv_offload_dir": "/somewhere"}

    assert plan(cache=offload).kv.num_host_slots == 64
    assert plan(cache={**offload, "swap_space": 1 / 128}).kv.num_host_slots == 128 + 64
    large: dict[str, Any] = {"limits": MemoryLimits(total=1 << 40, available=1 << 40)}
    assert plan(cache=offload, bytes_per_block=4 * MIB, **large).kv.num_host_slots == 16
    assert plan(cache=offload, bytes_per_block=40 * MIB, **large).kv.num_host_slots == 8


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        ({"cache": {"swap_space": 1}}, "lower --swap-space"),
        ({"cache": {"swap_space": 1, "num_gpu_blocks_override": 64}}, "lower --swap-space"),
        ({"cache": {"swap_space": 1e-6}}, "--swap-space 1e-06 GiB holds no KV block"),
        (
            {"cache": {"num_gpu_blocks_override": 9}},
            "raise --num-gpu-blocks-override to at least 64",
        ),
        (
            {"cache": {"kv_cache_memory_bytes": 9}},
            f"Raise --kv-cache-memory-bytes to at least {4 * MIB}",
        ),
        ({"cache": {"kv_cache_memory_bytes": 1 << 70}}, "lower --kv-cache-memory-bytes"),
        ({"workspace_bytes": 80 * MIB}, "Lower --max-num-batched-tokens"),
    ],
)
def test_a_flag_that_stands_in_the_way_is_named_with_the_fix(
    given: dict[str, Any], fix: str
) -> None:
    """Not a smaller model, nor more memory."""
    with pytest.raises(DoesNotFitError, match=f"(?i){fix}") as caught:
        plan(**given)

    assert "smaller model" not in str(caught.value)
