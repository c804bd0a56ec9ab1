"""Tiny checkpoints that are quantised, each by the plainest code that its format allows.

A method turns a float matrix [out, in] into tensors and into the numbers that they mean. Rounding
is to the nearest; nothing here is meant to be good.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

WEIGHTS = "model.safetensors"
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # row of a word's i-th nibble


@dataclass(frozen=True)
class Stored:
    """One matrix: tensors by the ending of their names, and what they stand for."""

    tensors: dict[str, Tensor]
    numbers: Tensor


@dataclass(frozen=True)
class Method:
    """How a checkpoint is quantised."""

    config: dict[str, Any]
    quantise: Callable[[Tensor], Stored]
    file_name: str = "config.json"  # where the configuration is
    extra: dict[str, Tensor] = field(default_factory=dict)  # of every attention


def packed(codes: Tensor, bits: int) -> Tensor:
    """[n, m] codes as I32 [n, m * bits / 32], the first in the lowest bits."""
    in_word = 32 // bits
    words = torch.zeros(codes.shape[0], codes.shape[1] // in_word, dtype=torch.int64)
    for i in range(in_word):
        words |= codes[:, i::in_word].long() << (bits * i)
    return torch.where(words >= 2**31, words - 2**32, words).int().contiguous()


def grouped(matrix: Tensor, size: int) -> Tensor:
    """[out, groups, size]."""
    return matrix.reshape(matrix.shape[0], -1, size)


def rounded(
    matrix: Tensor, size: int, bits: int, *, symmetric: bool, dtype: torch.dtype = torch.float16
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Codes from 0, scales and zero points of groups of columns, and the numbers that they mean."""
    groups, most = grouped(matrix, size), 2**bits - 1
    if symmetric:
        scales = groups.abs().amax(2) / (2 ** (bits - 1) - 1)
    else:
        scales = (groups.amax(2).clamp(min=0) - groups.amin(2).clamp(max=0)) / most
    scales = scales.to(dtype).float()
    middle = torch.full_like(scales, 2 ** (bits - 1))
    zeros = middle if symmetric else (-groups.amin(2) / scales).round().clamp(1, most)
    codes = ((groups / scales[..., None]).round() + zeros[..., None]).clamp(0, most)
    numbers = scales[..., None] * (codes - zeros[..., None])
    return codes.reshape(matrix.shape).int(), scales, zeros.int(), numbers.reshape(matrix.shape)


def awq(size: int) -> Callable[[Tensor], Stored]:
    """AutoAWQ's gemm layout; `size` -1: a group is a row."""

    def quantise(matrix: Tensor) -> Stored:
        group = matrix.shape[1] if size < 0 else size
        codes, scales, zeros, numbers = rounded(matrix, group, 4, symmetric=False)

        def words(table: Tensor) -> Tensor:
            mixed = table.T.reshape(table.shape[1], -1, 8)[:, :, list(AWQ_ORDER)]
            return packed(mixed.reshape(table.shape[1], -1), 4)

        tensors = {"qweight": words(codes), "qzeros": words(zeros)}
        return Stored(tensors | {"scales": scales.T.half().contiguous()}, numbers)

    return quantise


def gptq(
    bits: int, size: int, *, symmetric: bool, version: int = 1, act_order: bool = False
) -> Callable[[Tensor], Stored]:
    """AutoGPTQ's layout (version 1) or that of GPTQModel (2)."""

    def quantise(matrix: Tensor) -> Stored:
        cols = matrix.shape[1]
        group = cols if size < 0 else size
        order = torch.arange(cols)
        if act_order:  # columns in the order in which they were quantised
            order = torch.randperm(cols, generator=torch.Generator().manual_seed(cols))
        codes, scales, zeros, numbers = rounded(matrix[:, order], group, bits, symmetric=symmetric)
        index = torch.empty(cols, dtype=torch.int32)
        index[order] = torch.arange(cols, dtype=torch.int32) // group
        back = order.argsort()
        stored_zeros = (zeros - (1 if version == 1 else 0)) & (2**bits - 1)
        return Stored(
            {
                "qweight": packed(codes[:, back], bits).T.contiguous(),
                "qzeros": packed(stored_zeros.T, bits),
                "scales": scales.T.half().contiguous(),
                "g_idx": index,
            },
            numbers[:, back],
        )

    return quantise


def pack_quantized(bits: int, size: int, *, symmetric: bool) -> Callable[[Tensor], Stored]:
    """compressed-tensors: codes in words along the row."""

    def quantise(matrix: Tensor) -> Stored:
        group = matrix.shape[1] if size < 0 else size
        codes, scales, zeros, numbers = rounded(
            matrix, group, bits, symmetric=symmetric, dtype=torch.bfloat16
        )
        tensors = {
            "weight_packed": packed(codes, bits),
            "weight_scale": scales.bfloat16(),
            "weight_shape": torch.tensor(matrix.shape),
        }
        if not symmetric:
            tensors["weight_zero_point"] = packed(zeros.T, bits).T.contiguous()
        return Stored(tensors, numbers)

    return quantise


def int_quantized(size: int, *, symmetric: bool = True) -> Callable[[Tensor], Stored]:
    """compressed-tensors: a byte for each weight, with scales of activations beside."""

    def quantise(matrix: Tensor) -> Stored:
        group = matrix.shape[1] if size < 0 else size
        codes, scales, zeros, numbers = rounded(
            matrix, group, 8, symmetric=symmetric, dtype=torch.bfloat16
        )
        tensors = {
            "weight": (codes - 128).to(torch.int8),
            "weight_scale": scales.bfloat16(),
            "input_scale": torch.tensor([0.01]),
        }
        if not symmetric:
            tensors["weight_zero_point"] = (zeros - 128).to(torch.int8)
        return Stored(tensors, numbers)

    return quantise


def fp8(kind: str, ending: str = "weight_scale") -> Callable[[Tensor], Stored]:
    """E4M3 with one scale for the tensor, a row, or a block of 128 x 128."""

    def quantise(matrix: Tensor) -> Stored:
        rows, cols = matrix.shape
        down, across = {"tensor": (rows, cols), "row": (1, cols), "block": (128, 128)}[kind]
        largest = torch.zeros(-(-rows // down), -(-cols // across))
        for i in range(largest.shape[0]):
            for j in range(largest.shape[1]):
                block = matrix[i * down : (i + 1) * down, j * across : (j + 1) * across]
                largest[i, j] = block.abs().max()
        scales = largest / 448
        spread = scales.repeat_interleave(down, 0)[:rows].repeat_interleave(across, 1)[:, :cols]
        codes = (matrix / spread).to(torch.float8_e4m3fn)
        stored = scales.reshape(1) if kind == "tensor" else scales
        return Stored({"weight": codes, ending: stored}, codes.float() * spread)

    return quantise


def fp4_codes(values: Tensor) -> Tensor:
    """The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6 with a sign, as codes."""
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    return (values[..., None] - table).abs().argmin(-1)


def fp4_numbers(codes: Tensor) -> Tensor:
    """What the codes mean."""
    return torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])[codes]


def halves(codes: Tensor) -> Tensor:
    """Two codes in a byte, the first in the lower half."""
    return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)


def nvfp4(second: str) -> Callable[[Tensor], Stored]:
    """Scales of E4M3 for 16 columns; compressed-tensors divides by a second one."""

    def quantise(matrix: Tensor) -> Stored:
        groups = grouped(matrix, 16)
        overall = groups.abs().max() / (6 * 448)
        scales = (groups.abs().amax(2) / 6 / overall).to(torch.float8_e4m3fn)
        spread = (scales.float() * overall)[..., None]
        codes = fp4_codes(groups / spread).reshape(matrix.shape)
        numbers = (fp4_numbers(codes).reshape(groups.shape) * spread).reshape(matrix.shape)
        name = "weight_packed" if second == "weight_global_scale" else "weight"
        factor = 1 / overall if second == "weight_global_scale" else overall
        tensors = {name: halves(codes), "weight_scale": scales, second: factor.reshape(1)}
        return Stored(tensors | {"input_global_scale": torch.tensor([3.0])}, numbers)

    return quantise


def mxfp4(matrix: Tensor) -> Stored:
    """Scales that are powers of two, for 32 columns."""
    groups = grouped(matrix, 32)
    exponents = (groups.abs().amax(2) / 6).log2().ceil()
    spread = torch.exp2(exponents)[..., None]
    codes = fp4_codes(groups / spread).reshape(matrix.shape)
    numbers = (fp4_numbers(codes).reshape(groups.shape) * spread).reshape(matrix.shape)
    scales = (exponents + 127).to(torch.uint8)
    return Stored({"weight_packed": halves(codes), "weight_scale": scales}, numbers)


NF4 = torch.tensor(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022833, -0.09105003625154495, 0.0, 0.07958029955625534),
        *(0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434),
        *(0.5626170039176941, 0.7229568362236023, 1.0),
    ]
)


def nf4(*, nested: bool) -> Callable[[Tensor], Stored]:
    """bitsandbytes: blocks of 64 of the flattened matrix; `nested`: their scales are quantised."""

    def quantise(matrix: Tensor) -> Stored:
        blocks = matrix.reshape(-1, 64)
        absmax = blocks.abs().amax(1)
        state: dict[str, Any] = {"quant_type": "nf4", "blocksize": 64, "shape": list(matrix.shape)}
        tensors = {"weight.quant_map": NF4}
        if nested:
            offset = float(absmax.mean())
            table = torch.linspace(-1, 1, 256)
            outer = torch.stack([part.abs().max() for part in (absmax - offset).split(256)])
            spread = outer.repeat_interleave(256)[: len(absmax)]
            codes = ((absmax - offset)[:, None] / spread[:, None] - table).abs().argmin(1)
            absmax = table[codes] * spread + offset
            state |= {"nested_blocksize": 256, "nested_offset": offset}
            tensors |= {"weight.nested_absmax": outer, "weight.nested_quant_map": table}
            tensors["weight.absmax"] = codes.to(torch.uint8)
        else:
            tensors["weight.absmax"] = absmax
        nearest = (blocks[..., None] / absmax[:, None, None] - NF4).abs().argmin(-1)
        pairs = nearest.reshape(-1, 2)
        tensors["weight"] = (pairs[:, 0] << 4 | pairs[:, 1]).to(torch.uint8)[:, None].contiguous()
        raw = torch.tensor(list(json.dumps(state).encode()), dtype=torch.uint8)
        tensors["weight.quant_state.bitsandbytes__nf4"] = raw
        return Stored(tensors, (NF4[nearest] * absmax[:, None]).reshape(matrix.shape))

    return quantise


def llm_int8(matrix: Tensor) -> Stored:
    """bitsandbytes: int8 with the largest magnitude of a row."""
    largest = matrix.abs().amax(1)
    codes = (matrix * (127 / largest)[:, None]).round()
    tensors = {
        "weight": codes.to(torch.int8),
        "SCB": largest,
        "weight_format": torch.tensor(0, dtype=torch.uint8),
    }
    return Stored(tensors, codes * (largest / 127)[:, None])


def _gptq(bits: int, size: int, **more: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": size, **more}


def _compressed(layout: str, bits: int, **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"num_bits": bits, **weights}}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


_AWQ = {"quant_method": "awq", "bits": 4, "zero_point": True, "version": "gemm"}
_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
_KV_SCALES = {"k_scale": torch.tensor([0.5]), "v_scale": torch.tensor([0.5])}
METHODS: dict[str, Method] = {
    "awq-128": Method({**_AWQ, "group_size": 128}, awq(128)),
    "awq-32": Method({**_AWQ, "group_size": 32}, awq(32)),
    "awq-row": Method({"w_bit": 4, "q_group_size": -1}, awq(-1), "quant_config.json"),
    "gptq-4": Method(_gptq(4, 128, sym=True), gptq(4, 128, symmetric=True)),
    "gptq-4-zeros": Method(_gptq(4, 64), gptq(4, 64, symmetric=False)),
    "gptq-4-v2": Method(
        _gptq(4, 128, checkpoint_format="gptq_v2"), gptq(4, 128, symmetric=False, version=2)
    ),
    "gptq-4-act-order": Method(
        _gptq(4, 32, desc_act=True), gptq(4, 32, symmetric=False, act_order=True)
    ),
    "gptq-8": Method(_gptq(8, -1), gptq(8, -1, symmetric=True)),
    "gptq-8-zeros": Method(
        {"bits": 8, "group_size": 32}, gptq(8, 32, symmetric=False), "quantize_config.json"
    ),
    "gptq-2": Method(_gptq(2, 32), gptq(2, 32, symmetric=False)),
    "compressed-w4a16": Method(
        _compressed("pack-quantized", 4), pack_quantized(4, 128, symmetric=True)
    ),
    "compressed-w4a16-zeros": Method(
        _compressed("pack-quantized", 4), pack_quantized(4, 32, symmetric=False)
    ),
    "compressed-w8a16": Method(
        _compressed("pack-quantized", 8), pack_quantized(8, -1, symmetric=True)
    ),
    "compressed-w8a8": Method(_compressed("int-quantized", 8), int_quantized(-1), extra=_KV_SCALES),
    "compressed-w8a8-zeros": Method(
        _compressed("int-quantized", 8), int_quantized(64, symmetric=False)
    ),
    "compressed-fp8": Method(_compressed("float-quantized", 8), fp8("row")),
    "compressed-fp8-tensor": Method(_compressed("naive-quantized", 8), fp8("tensor")),
    "compressed-nvfp4": Method(
        _compressed("nvfp4-pack-quantized", 4), nvfp4("weight_global_scale")
    ),
    "compressed-mxfp4": Method(_compressed("mxfp4-pack-quantized", 4), mxfp4),
    "fp8-block": Method(_BLOCKS, fp8("block", "weight_scale_inv")),
    "fp8-tensor": Method({"quant_method": "fp8", "activation_scheme": "static"}, fp8("tensor")),
    "nf4": Method({"quant_method": "bitsandbytes", "load_in_4bit": True}, nf4(nested=False)),
    "nf4-nested": Method({"quant_method": "bitsandbytes", "load_in_4bit": True}, nf4(nested=True)),
    "llm-int8": Method({"quant_method": "bitsandbytes", "load_in_8bit": True}, llm_int8),
    "modelopt-fp8": Method(
        {"quantization": {"quant_algo": "FP8"}}, fp8("tensor"), "hf_quant_config.json"
    ),
    "modelopt-nvfp4": Method(
        {"quant_method": "modelopt", "quant_algo": "NVFP4"}, nvfp4("weight_scale_2")
    ),
}


def published(name: str, values: Tensor) -> dict[str, Tensor]:
    """A parameter of transformers as files have it: stacked experts each on their own."""
    stem, _, part = name.partition(".experts.")
    if part not in ("gate_up_proj", "down_proj"):
        return {name: values.contiguous()}
    tensors: dict[str, Tensor] = {}
    for expert, matrix in enumerate(values):
        own = f"{stem}.experts.{expert}"
        if part == "down_proj":
            tensors[f"{own}.down_proj.weight"] = matrix
            continue
        gate, up = matrix.chunk(2)
        tensors |= {f"{own}.gate_proj.weight": gate, f"{own}.up_proj.weight": up}
    return tensors


def save_gpt_oss(oracle: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """gpt-oss as it is published: experts as random blocks of MXFP4, everything else in bfloat16.

    The model that comes back has the numbers that transformers reads from the blocks.
    """
    folder.mkdir(parents=True)
    model: PreTrainedModel = copy.deepcopy(oracle)
    generator = torch.Generator().manual_seed(5)
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if not name.endswith((".gate_up_proj", ".down_proj")):
            tensors[name] = parameter.detach().bfloat16()
            continue
        experts, cols, rows = parameter.shape  # [experts, in_features, out_features]
        groups = (experts, rows, cols // 32)
        blocks = torch.randint(256, (*groups, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(121, 124, groups, generator=generator, dtype=torch.uint8)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        numbers = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32)
        parameter.data = numbers.reshape(parameter.shape).contiguous()
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / WEIGHTS)
    config = json.loads(oracle.config.to_json_string())
    left_out = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"]
    config |= {
        "architectures": [type(oracle).__name__],
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": left_out},
    }
    (folder / "config.json").write_text(json.dumps(config))
    return model


def save_quantised(oracle: PreTrainedModel, method: Method, folder: Path) -> PreTrainedModel:
    """Write the model with its layers' matrices quantised; the model of the stored numbers."""
    folder.mkdir(parents=True)
    model: PreTrainedModel = copy.deepcopy(oracle)
    tensors: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        if ".layers." not in name or not name.endswith("_proj.weight"):
            tensors |= published(name, parameter.detach())
            continue
        stored = method.quantise(parameter.detach())
        stem = name.removesuffix(".weight")
        tensors |= {f"{stem}.{ending}": tensor for ending, tensor in stored.tensors.items()}
        if stem.endswith("q_proj"):
            attention = stem.removesuffix(".q_proj")
            tensors |= {f"{attention}.{name}": tensor for name, tensor in method.extra.items()}
        parameter.data = stored.numbers
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / WEIGHTS)
    config = json.loads(oracle.config.to_json_string())
    config["architectures"] = [type(oracle).__name__]
    if method.file_name == "config.json":
        config["quantization_config"] = method.config
    else:
        (folder / method.file_name).write_text(json.dumps(method.config))
    (folder / "config.json").write_text(json.dumps(config))
    return model
