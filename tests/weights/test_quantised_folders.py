"""Quantised folders that are not what they say are refused with the tensor or key at fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from octavo.errors import ConfigError, CorruptFileError, OctavoError, UnsupportedModelError
from octavo.weights.checkpoint import WeightType
from octavo.weights.hf_folder import open_folder
from octavo.weights.quant.online import with_quantisation
from tests.support.hf_folders import CONFIG, tiny_folder, write_json
from tests.support.quantised_folders import METHODS
from tests.support.random_checkpoint import RandomCheckpoint, tiny_facts

STEM = "model.layers.0.mlp.down_proj"
Change = Callable[[dict[str, Tensor]], None]


def folder_of(
    folder: Path, method: str, change: Change = lambda tensors: None, **config: Any
) -> Path:
    """One quantised matrix [16, 128] and whatever `change` makes of its tensors."""
    folder.mkdir(exist_ok=True)
    used = METHODS[method]
    matrix = torch.randn(16, 128, generator=torch.Generator().manual_seed(1))
    stored = used.quantise(matrix).tensors
    change(stored)
    tensors = {f"{STEM}.{ending}": tensor.contiguous() for ending, tensor in stored.items()}
    save_file(tensors, folder / "model.safetensors")
    settings = {**used.config, **config}
    write_json(folder / "config.json", CONFIG | {"quantization_config": settings})
    return folder


def cut(ending: str) -> Change:
    """The tensor without its last column."""

    def change(tensors: dict[str, Tensor]) -> None:
        tensors[ending] = tensors[ending][..., :-1].clone()

    return change


def gone(ending: str) -> Change:
    def change(tensors: dict[str, Tensor]) -> None:
        del tensors[ending]

    return change


def as_type(ending: str, dtype: torch.dtype) -> Change:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[ending] = tensors[ending].to(dtype)

    return change


def filled(ending: str, number: float) -> Change:
    def change(tensors: dict[str, Tensor]) -> None:
        tensors[ending] = torch.full_like(tensors[ending], number)

    return change


def state(**changes: Any) -> Change:
    """bitsandbytes' JSON with other values."""

    def change(tensors: dict[str, Tensor]) -> None:
        name = "weight.quant_state.bitsandbytes__nf4"
        values = json.loads(bytes(tensors[name].tolist())) | changes
        tensors[name] = torch.tensor(list(json.dumps(values).encode()), dtype=torch.uint8)

    return change


BROKEN: dict[str, tuple[str, Change, str]] = {
    "AWQ, no scales": ("awq-128", gone("scales"), "no tensor .*down_proj.scales"),
    "AWQ, no zeros": ("awq-128", gone("qzeros"), "no tensor .*down_proj.qzeros"),
    "AWQ, scales of fewer rows": (
        "awq-128",
        cut("scales"),
        r"down_proj.scales has shape \[1, 15\], must be \[1, 16\]",
    ),
    "AWQ, zeros of fewer rows": (
        "awq-128",
        cut("qzeros"),
        r"down_proj.qzeros has shape \[1, 1\], must be \[1, 2\]",
    ),
    "AWQ, codes of another type": (
        "awq-128",
        as_type("qweight", torch.int64),
        "down_proj.qweight has the type I64, must be I32",
    ),
    "GPTQ, a group named too often": (
        "gptq-4-act-order",
        filled("g_idx", 0),
        "down_proj.g_idx must name each of 4 groups 32 times",
    ),
    "GPTQ, a group that is not there": (
        "gptq-4-act-order",
        filled("g_idx", -1),
        "down_proj.g_idx must name each",
    ),
    "GPTQ, groups of fewer columns": (
        "gptq-4-act-order",
        cut("g_idx"),
        r"down_proj.g_idx has shape \[127\], must be \[128\]",
    ),
    "compressed, another shape": (
        "compressed-w4a16",
        filled("weight_shape", 77),
        "down_proj.weight_shape says",
    ),
    "compressed, scales of no groups": (
        "compressed-w4a16-zeros",
        cut("weight_scale"),
        "down_proj.weight_scale has shape .* no groups of a matrix of 16 rows and 128 columns",
    ),
    "compressed, zero points of fewer groups": (
        "compressed-w4a16-zeros",
        cut("weight_zero_point"),
        "down_proj.weight_zero_point has shape",
    ),
    "fp8, scales of fewer blocks": (
        "fp8-block",
        lambda tensors: tensors.update(weight_scale_inv=torch.ones(2, 1)),
        r"down_proj.weight_scale_inv has shape \[2, 1\], must be \[1, 1\]",
    ),
    "nvfp4, a second scale of zero": (
        "compressed-nvfp4",
        filled("weight_global_scale", 0.0),
        "down_proj.weight_global_scale must be above 0",
    ),
    "nf4, another codebook": (
        "nf4",
        filled("weight.quant_map", 0.5),
        "quant_map is not the codebook of NF4",
    ),
    "nf4, another shape": ("nf4", state(shape=[16, 256]), "has 1024 bytes for 16 x 256 elements"),
    "nf4, fewer scales": ("nf4", cut("weight.absmax"), r"absmax has shape \[31\], must be \[32\]"),
    "int8, fewer scales": ("llm-int8", cut("SCB"), r"SCB has shape \[15\], must be \[16\]"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_tensors_that_do_not_fit_are_named(tmp_path: Path, case: str) -> None:
    """With what they are and what they must be."""
    method, change, message = BROKEN[case]
    folder = folder_of(tmp_path / "a", method, change)

    with pytest.raises(CorruptFileError, match=message):
        open_folder(folder)


SETTINGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "AWQ bits": ("awq-128", {"bits": 3}, "AWQ of 3 bits; supported: 4"),
    "AWQ layout": ("awq-128", {"version": "gemv"}, "AWQ version 'gemv'; supported: gemm"),
    "AWQ group": ("awq-128", {"group_size": 48}, "groups of 48 do not divide rows of 128"),
    "AWQ small group": ("awq-128", {"group_size": 16}, "rows of 128 in groups of 16; both must"),
    "GPTQ bits": ("gptq-4", {"bits": 3}, "GPTQ of 3 bits; supported: 2, 4 and 8"),
    "GPTQ no group": ("gptq-4", {"group_size": None}, "group_size is missing"),
    "GPTQ layout": ("gptq-4", {"checkpoint_format": "marlin"}, "GPTQ layout 'marlin'"),
    "GPTQ overrides": ("gptq-4", {"dynamic": {"+:.*mlp.*": {"bits": 8}}}, "settings of its own"),
    "compressed layout": (
        "compressed-w4a16",
        {"format": "marlin-24"},
        "the format 'marlin-24' is not supported. Supported: dense, pack-quantized",
    ),
    "compressed bits": (
        "compressed-w4a16",
        {"config_groups": {"group_0": {"weights": {"num_bits": 3}}}},
        "weights of 3 bits; supported: 4 and 8",
    ),
    "compressed other bits": (
        "compressed-w4a16",
        {"config_groups": {"group_0": {"weights": {"num_bits": 8}}}},
        "weight_packed has 4 bits for each of 128 columns, the configuration",
    ),
    "sparse": ("compressed-w4a16", {"sparsity_config": {"format": "sparse-24"}}, "sparse weights"),
    "fp8 blocks": ("fp8-block", {"weight_block_size": [128]}, "weight_block_size must be two"),
    "fp4": ("nf4", {"bnb_4bit_quant_type": "fp4"}, "4 bits of type 'fp4'; supported: nf4"),
    "ModelOpt": ("modelopt-nvfp4", {"quant_algo": "W4A8_AWQ"}, "ModelOpt's W4A8_AWQ is not"),
    "method": (
        "awq-128",
        {"quant_method": "quip"},
        "quantisation 'quip' is not supported. Supported: awq, bitsandbytes, compressed-tensors",
    ),
    "nothing quantised": (
        "awq-128",
        {"quant_method": "fp8"},
        "says quantisation fp8, but no tensor is quantised",
    ),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_that_we_do_not_have_are_named_with_those_we_have(
    tmp_path: Path, case: str
) -> None:
    """Nothing is read as something that it is not."""
    method, config, message = SETTINGS[case]
    folder = folder_of(tmp_path / "a", method, **config)

    with pytest.raises(OctavoError, match=message) as caught:
        open_folder(folder)
    assert isinstance(caught.value, CorruptFileError | UnsupportedModelError)


def test_integers_without_a_method_are_refused(tmp_path: Path) -> None:
    """A configuration that was lost does not make integers of weights."""
    folder = folder_of(tmp_path / "a", "awq-128")
    write_json(folder / "config.json", CONFIG)

    with pytest.raises(UnsupportedModelError, match="has the type I32, which is not supported"):
        open_folder(folder)


def test_numbers_that_are_not_finite_are_found_when_rows_are_made(tmp_path: Path) -> None:
    """A scale of infinity is the checkpoint's fault; the native back end says so when it packs."""
    folder = folder_of(tmp_path / "a", "awq-128", filled("scales", float("inf")))
    view = open_folder(folder).tensors[f"{STEM}.weight"]

    assert view.type is WeightType.INT4_128
    assert len(view.rows_in_order()) == view.num_bytes == 16 * 72


@pytest.mark.parametrize("asked", ["auto", "awq", "awq_marlin", "auto_awq"])
def test_the_name_of_the_checkpoints_own_method_changes_nothing(tmp_path: Path, asked: str) -> None:
    """vLLM's names for it included."""
    checkpoint = open_folder(folder_of(tmp_path / "a", "awq-128"))

    assert with_quantisation(checkpoint, asked) is checkpoint


@pytest.mark.parametrize("asked", ["gptq", "int8", "fp8", "gguf"])
def test_a_name_that_contradicts_the_checkpoint_is_refused_with_both(
    tmp_path: Path, asked: str
) -> None:
    """As in vLLM."""
    checkpoint = open_folder(folder_of(tmp_path / "a", "awq-128"))

    with pytest.raises(ConfigError, match=f"--quantization {asked} contradicts .* with awq"):
        with_quantisation(checkpoint, asked)


def test_floats_are_no_checkpoint_of_a_method(tmp_path: Path) -> None:
    """The error says what can be done with them."""
    checkpoint = open_folder(tiny_folder(tmp_path))

    with pytest.raises(ConfigError, match=r"contradicts .* not quantised; use int8, int4, fp8"):
        with_quantisation(checkpoint, "gptq")


def test_matrices_that_cannot_be_quantised_are_named() -> None:
    """Rows of 36 have no blocks of 32."""
    checkpoint = RandomCheckpoint(tiny_facts())

    with pytest.raises(
        UnsupportedModelError, match=r"q_proj.weight has rows of 36.*multiple of 32"
    ):
        with_quantisation(checkpoint, "int8")
