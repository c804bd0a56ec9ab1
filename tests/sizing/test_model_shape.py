"""Parameters and KV entries of published models, from their config.json alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.ops.kv_types import KvType
from octavo.sizing.config_shape import shape_from_config
from octavo.sizing.model_shape import ModelShape
from octavo.sizing.source import find_shape
from octavo.sizing.storage import storage_named
from tests.sizing import configs
from tests.support.hf_folders import write_json


def shape_of(values: dict[str, Any], **changes: Any) -> ModelShape:
    return shape_from_config(values | changes, "config.json", "a model")


@pytest.mark.parametrize("name", configs.PUBLISHED)
def test_parameters_are_those_of_the_model_that_transformers_makes(name: str) -> None:
    """To the last one. Its model takes no memory: tensors have shapes alone."""
    values = configs.PUBLISHED[name]
    kinds = {key: value for key, value in values.items() if key != "quantization_config"}
    with torch.device("meta"):
        make: Any = AutoModelForCausalLM.from_config
        model = make(AutoConfig.for_model(**kinds))

    corrections = [b for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")]
    stored = model.num_parameters() + sum(vector.numel() for vector in corrections)
    assert shape_of(values).parameters.total == stored


@pytest.mark.parametrize(
    ("values", "type", "num_bytes"),
    [
        (configs.LLAMA_3_8B, KvType.BF16, 2 * 32 * 8 * 128 * 2),
        (configs.LLAMA_3_70B, KvType.BF16, 2 * 80 * 8 * 128 * 2),
        (configs.QWEN_2_5_7B, KvType.FP8_E4M3, 2 * 28 * 4 * 128),
        (configs.LLAMA_3_8B, KvType.INT8, 2 * 32 * 8 * (128 + 2)),
        (configs.GPT_OSS_20B, KvType.BF16, 2 * 24 * 8 * 64 * 2),
        # keys of all 128 heads in one vector of 512 + 64, values in another
        (configs.DEEPSEEK_V3, KvType.BF16, 2 * 61 * 576 * 2),
        (configs.DEEPSEEK_V2_LITE, KvType.BF16, 2 * 27 * 576 * 2),
    ],
)
def test_a_token_takes_the_bytes_of_its_heads_or_of_its_latent_vector(
    values: dict[str, Any], type: KvType, num_bytes: int
) -> None:
    """2 x layers x KV heads x head size x bytes; multi-head latent attention has one head."""
    assert shape_of(values).kv_bytes_per_token(type) == num_bytes


def test_devices_divide_heads_and_keep_latent_vectors_whole() -> None:
    """Of fewer heads than devices, each device keeps one."""
    llama, deepseek = shape_of(configs.LLAMA_3_8B), shape_of(configs.DEEPSEEK_V3)
    whole = llama.kv_bytes_per_token(KvType.BF16)

    assert llama.kv_bytes_per_token(KvType.BF16, 4) == whole / 4
    assert llama.kv_bytes_per_token(KvType.BF16, 16) == whole / 8
    assert deepseek.kv_bytes_per_token(KvType.BF16, 8) == deepseek.kv_bytes_per_token(KvType.BF16)


@pytest.mark.parametrize(
    ("values", "num_layers", "state_bytes"),
    [
        # 12 of 48 layers attend; 3 x 8192 channels, 32 heads of 128 x 128
        (configs.QWEN_3_NEXT_80B, 12, 36 * 4 * (3 * 8192 + 32 * 128 * 128)),
        (configs.GRANITE_4_H_TINY, 4, 36 * 4 * (3 * 3328 + 48 * 64 * 128)),
        (configs.MAMBA_2_2_7B, 0, 64 * 4 * (3 * 5376 + 80 * 64 * 128)),
        (configs.JAMBA_V0_1, 4, 28 * 4 * (3 * 8192 + 8192 * 16)),
    ],
)
def test_layers_with_a_state_keep_it_for_a_request_and_nothing_for_a_token(
    values: dict[str, Any], num_layers: int, state_bytes: int
) -> None:
    """What the convolution sees, and what each head keeps, in float32."""
    shape = shape_of(values)

    assert len(shape.entries) == num_layers
    assert shape.state_bytes == state_bytes
    assert shape.state_bytes_per_device(2) == state_bytes // 2


def test_windows_are_those_of_each_layer() -> None:
    """By `layer_types`, by a pattern, or of all layers; only where they are switched on."""
    assert shape_of(configs.GPT_OSS_20B).windows == (128, 0) * 12
    assert shape_of(configs.GEMMA_3_1B).windows[:7] == (512,) * 5 + (0, 512)
    assert shape_of(configs.MIXTRAL_8X7B, sliding_window=4096).windows == (4096,) * 32
    assert shape_of(configs.QWEN_2_57B_A14B, sliding_window=4096).windows == (0,) * 28


@pytest.mark.parametrize(
    ("values", "gigabytes"),
    [
        (configs.LLAMA_3_8B, 16.06),
        (configs.DEEPSEEK_V3, 673),  # in fp8; the files hold 688 GB with a layer for drafts
        (configs.GPT_OSS_20B, 13.8),
        (configs.MIXTRAL_8X7B, 93.4),
    ],
)
def test_weights_take_about_what_the_published_files_take(
    values: dict[str, Any], gigabytes: float
) -> None:
    """Types and quantisation as the config says."""
    assert shape_of(values).weight_bytes / 1e9 == pytest.approx(gigabytes, rel=0.01)


@pytest.mark.parametrize(
    ("quantisation", "bits"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 4.16),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 4.31),
        ({"quant_method": "fp8"}, 8.0),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 8.0),
        (
            {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "bnb_4bit_use_double_quant": True,
            },
            4.127,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "nvfp4-pack-quantized",
                "config_groups": {
                    "group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}
                },
            },
            4.5,
        ),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 4.5),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}},
            },
            4.5,
        ),
    ],
)
def test_quantised_matrices_take_their_bits_and_embeddings_stay(
    quantisation: dict[str, Any], bits: float
) -> None:
    """Scales and zero points count."""
    shape = shape_of(configs.LLAMA_3_8B, quantization_config=quantisation)
    counted = shape.parameters
    plain = 2 * (counted.embedding + counted.head + counted.vectors)
    matrices = counted.attention + counted.mlp

    assert 8 * (shape.weight_bytes - plain) / matrices == pytest.approx(bits, abs=0.01)
    assert shape.is_served


def test_a_quantisation_that_is_not_read_is_counted_and_said_so() -> None:
    """The widths are known; a plan with another engine in mind is of use."""
    three = {"quant_method": "gptq", "bits": 3, "group_size": 128}
    shape = shape_of(configs.LLAMA_3_8B, quantization_config=three)

    assert not shape.is_served
    assert shape.storage == "gptq 3 bit"


def test_a_file_beside_config_json_may_say_how_it_is_quantised(tmp_path: Path) -> None:
    """As old tools wrote it."""
    write_json(tmp_path / "config.json", configs.LLAMA_3_8B)
    plain = find_shape(str(tmp_path))
    write_json(tmp_path / "quantize_config.json", {"bits": 4, "group_size": 128})

    shape = find_shape(str(tmp_path))

    assert (shape.storage, shape.is_served) == ("gptq 4 bit", True)
    assert shape.weight_bytes < 0.4 * plain.weight_bytes


def test_weights_can_be_imagined_in_another_type() -> None:
    """Before anybody has made such a file."""
    stored = storage_named("q4_k")
    shape = shape_from_config(configs.LLAMA_3_8B, "config.json", "a model", stored)

    assert shape.weight_bytes / shape.parameters.total == pytest.approx(4.5 / 8, rel=1e-3)


def test_experts_and_routers_are_told_apart_from_what_every_token_passes() -> None:
    counted = shape_of(configs.MIXTRAL_8X7B).parameters

    assert counted.experts == 32 * 8 * 3 * 4096 * 14336
    assert counted.router == 32 * 8 * 4096
    assert counted.mlp == 0


def test_an_unknown_architecture_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=r"StrangeForCausalLM.*MixtralForCausalLM"):
        shape_of(configs.LLAMA_3_8B, architectures=["StrangeForCausalLM"])


def test_an_unknown_quantisation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnsupportedModelError, match=r"quip.*Supported: awq"):
        shape_of(configs.LLAMA_3_8B, quantization_config={"quant_method": "quip"})


def test_a_missing_key_is_named() -> None:
    without = {k: v for k, v in configs.MIXTRAL_8X7B.items() if k != "num_local_experts"}
    with pytest.raises(CorruptFileError, match="num_local_experts"):
        shape_of(without)


def test_layers_of_an_unknown_kind_are_refused() -> None:
    """Layers with a state instead of keys would be counted wrong."""
    kinds = ["linear_attention", "full_attention"] * 12
    with pytest.raises(UnsupportedModelError, match=r"linear_attention.*full_attention"):
        shape_of(configs.GPT_OSS_20B, layer_types=kinds)
