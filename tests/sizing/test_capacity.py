"""What fits on devices, against sums by hand and against the plan of a loaded model."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from octavo.backends.torch.runner import TorchRunner
from octavo.config.engine import AUTO_LENGTH, CacheConfig, EngineConfig, ModelConfig
from octavo.errors import ConfigError
from octavo.runner.native_runner import NativeRunner
from octavo.sizing.capacity import Capacity, Device, Wishes, fewest_devices, plan_capacity
from octavo.sizing.config_shape import shape_from_config
from octavo.sizing.devices import GPUS, gpu_bytes
from octavo.sizing.source import find_shape
from octavo.weights.gguf_checkpoint import open_gguf
from octavo.weights.hf_folder import open_folder
from tests.sizing import configs
from tests.support.data import gemma3_path, smollm2_path
from tests.support.tiny_models import make_oracle, save_folder

H100 = Device(memory_bytes=gpu_bytes("H100"))
H200 = Device(memory_bytes=gpu_bytes("H200"))


def plan(values: dict[str, Any], device: Device = H100, **wishes: Any) -> Capacity:
    shape = shape_from_config(values, "config.json", "a model")
    return plan_capacity(shape, device, Wishes(**wishes))


def test_the_sum_is_memory_minus_weights_minus_workspace_in_blocks() -> None:
    found = plan(configs.LLAMA_3_8B, max_model_len=8192)
    left = int(0.9 * H100.memory_bytes) - found.weight_bytes - found.workspace_bytes

    assert found.kv_bytes == left
    assert found.kv is not None
    assert found.kv.num_blocks == left // (32 * found.kv_bytes_per_token)
    assert found.num_tokens == found.kv.num_blocks * 32
    assert found.users[8192] == found.kv.num_blocks // 256


def test_more_users_fit_on_more_devices_and_with_smaller_keys() -> None:
    """Weights and heads are divided, and so is what a token takes."""
    two = dataclasses.replace(H200, tensor_parallel_size=2)
    one, pair = plan(configs.LLAMA_3_70B, H200), plan(configs.LLAMA_3_70B, two)
    small = plan(configs.LLAMA_3_70B, two, kv_cache_dtype="fp8")

    assert not one.fits
    assert pair.weight_bytes == pytest.approx(one.weight_bytes / 2, abs=1)
    assert pair.kv_bytes_per_token == one.kv_bytes_per_token / 2
    assert small.users[8192] == pytest.approx(2 * pair.users[8192], abs=1)


def test_a_model_with_windows_serves_long_contexts_to_more_users() -> None:
    """Of the layers with a window only the window stays."""
    windowed = plan(configs.GEMMA_3_1B)
    full = plan(configs.GEMMA_3_1B | {"sliding_window": None})

    assert windowed.kv_bytes_per_token == full.kv_bytes_per_token
    assert windowed.users[32768] > 4 * full.users[32768]


def test_latent_attention_is_planned_with_one_head_a_layer() -> None:
    eight = dataclasses.replace(H200, tensor_parallel_size=8)
    found = plan(configs.DEEPSEEK_V3, eight, max_model_len=32768)

    assert found.fits
    assert found.kv is not None
    assert found.kv.bytes_per_block == 2 * 61 * 576 * 2 * 32


def test_what_does_not_fit_is_told_with_the_fewest_devices_that_do() -> None:
    shape = shape_from_config(configs.LLAMA_3_70B, "config.json", "a model")

    assert not plan_capacity(shape, H100, Wishes()).fits
    assert fewest_devices(shape, H100, Wishes()) == 2  # 2 x 72 GiB hold 131 GiB


@pytest.mark.parametrize("path", [smollm2_path, gemma3_path])
@pytest.mark.parametrize("kv_cache_dtype", ["auto", "int8"])
def test_a_header_promises_the_blocks_that_the_loaded_model_has(
    path: Any, kv_cache_dtype: str
) -> None:
    """The same groups and bytes of a block as the runner's; weights and workspace are near."""
    config = EngineConfig(cache=CacheConfig(kv_cache_dtype=kv_cache_dtype))
    needs = NativeRunner(config, open_gguf(path())).needs
    found = plan_capacity(find_shape(str(path())), H100, Wishes(kv_cache_dtype=kv_cache_dtype))

    assert found.kv is not None
    assert (found.kv.bytes_per_block, found.kv.groups) == (needs.bytes_per_block, needs.kv_groups)
    assert found.weight_bytes == pytest.approx(needs.weights_bytes, rel=0.15)
    assert found.workspace_bytes == pytest.approx(needs.workspace_bytes, rel=1.0)


@pytest.mark.parametrize("case", ["mamba2", "qwen3_next", "jamba"])
@pytest.mark.parametrize("kv_cache_dtype", ["auto", "int8"])
def test_a_header_promises_the_states_that_the_loaded_model_has(
    case: str, kv_cache_dtype: str, tmp_path: Path
) -> None:
    """As many blocks of a request, of the same size."""
    save_folder(make_oracle(case), case, tmp_path)
    config = EngineConfig(
        model=ModelConfig(max_model_len=200), cache=CacheConfig(kv_cache_dtype=kv_cache_dtype)
    )
    needs = TorchRunner(config, open_folder(tmp_path)).needs
    found = plan_capacity(
        find_shape(str(tmp_path)), H100, Wishes(max_model_len=200, kv_cache_dtype=kv_cache_dtype)
    )

    assert found.kv is not None
    assert (found.kv.bytes_per_block, found.kv.groups) == (needs.bytes_per_block, needs.kv_groups)
    assert needs.kv_groups[-1].num_state_blocks > 0


def test_a_model_of_states_alone_serves_as_many_requests_of_any_length() -> None:
    """A block is the state of a request."""
    found = plan(configs.MAMBA_2_2_7B, max_model_len=100_000)

    assert found.kv is not None
    assert found.num_tokens is None
    assert found.users[1024] == found.users[100_000] == found.kv.num_blocks
    assert found.kv.bytes_per_block == 64 * 4 * (3 * 5376 + 80 * 64 * 128)


def test_auto_is_the_longest_context_that_fits() -> None:
    small = Device(memory_bytes=18_550_000_000)
    found = plan(configs.LLAMA_3_8B, small, max_model_len=AUTO_LENGTH)

    assert found.fits
    assert found.max_model_len == found.num_tokens
    assert found.max_model_len < 8192


def test_a_context_beyond_the_models_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--max-model-len 9000.*at most --max-model-len 8192"):
        plan(configs.LLAMA_3_8B, max_model_len=9000)


@pytest.mark.parametrize(
    ("size", "message"), [(3, "does not divide the 28 attention heads"), (14, "the 4 KV heads")]
)
def test_heads_that_devices_cannot_share_are_refused(size: int, message: str) -> None:
    device = dataclasses.replace(H100, tensor_parallel_size=size)
    with pytest.raises(ConfigError, match=message):
        plan(configs.QWEN_2_5_7B, device)


def test_cards_are_known_however_they_are_written() -> None:
    assert gpu_bytes("h100 nvl") == gpu_bytes("H100-NVL")
    with pytest.raises(ConfigError, match=r"'H201'.*Did you mean H20.*--memory"):
        gpu_bytes("H201")
    assert list(GPUS) == sorted(GPUS)
