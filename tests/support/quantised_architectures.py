"""Folders of every architecture with the matrices of their layers quantised, and their numbers.

The folder that transformers writes is read again tensor by tensor, so names, fused matrices and
single experts are those of published checkpoints.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from tests.support.quantised_folders import METHODS, WEIGHTS, Method, gptq
from tests.support.tiny_cases import CASES
from tests.support.tiny_models import save_folder

# Way to quantise, as the table calls it -> how. Groups are small enough for tiny widths.
WAYS: dict[str, Method] = {
    "AWQ": METHODS["awq-32"],
    "GPTQ": Method(
        {"quant_method": "gptq", "bits": 4, "group_size": 32}, gptq(4, 32, symmetric=False)
    ),
    "int4": METHODS["compressed-w4a16-zeros"],
    "int8": METHODS["compressed-w8a8"],
    "FP8": METHODS["compressed-fp8"],
    "FP8 blocks": METHODS["fp8-block"],
    "NF4": METHODS["nf4"],
    "NVFP4": METHODS["compressed-nvfp4"],
}
_OF_LAYERS = re.compile(r"\.(layers|h|blocks)\.\d+\.")
# What tools leave as it is, and what is no matrix of a product.
_LEFT = re.compile(
    r"(router|gate|norm|conv1d|in_proj_ba|in_proj_a|in_proj_b)\.weight$|embed|visual|vision"
)
_COLUMNS, _ROWS, _NF4_BLOCK = 32, 8, 64


def representatives() -> list[str]:
    """A case of each family that decodes, the first one."""
    first: dict[str, str] = {}
    for name, case in CASES.items():
        first.setdefault(case.family, name)
    return list(first.values())


def save_quantised_folder(
    oracle: PreTrainedModel, case: str, way: str, folder: Path
) -> PreTrainedModel:
    """Write the model to `folder`; transformers' model of the numbers that it stores.

    Needs a matrix whose rows the way's groups divide.
    """
    method, floats = WAYS[way], folder.with_name(f"{folder.name}-numbers")
    save_folder(oracle, case, floats)
    folder.mkdir()
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Tensor] = {}
    for path in sorted(floats.glob("*.safetensors")):
        for name, stored in load_file(path).items():
            tensor = stored.float()
            if not _is_quantised(name, _as_linear(oracle, tensor), way):
                tensors[name] = numbers[name] = tensor
                continue
            made = method.quantise(_as_linear(oracle, tensor))
            stem = name.removesuffix(".weight")
            tensors |= {
                f"{stem}.{ending}": one.contiguous() for ending, one in made.tensors.items()
            }
            numbers[name] = _as_linear(oracle, made.numbers).contiguous()
        path.unlink()
    _write(folder, floats, method, tensors, numbers)
    make: Any = type(oracle)
    attention = oracle.config._attn_implementation
    model: PreTrainedModel = make.from_pretrained(
        floats, dtype=torch.float32, attn_implementation=attention
    ).eval()
    return model


def _is_quantised(name: str, tensor: Tensor, way: str) -> bool:
    if tensor.dim() != 2 or not name.endswith(".weight") or _LEFT.search(name):
        return False
    group = _NF4_BLOCK if way == "NF4" else _COLUMNS
    is_whole = not any(size % part for size, part in zip(tensor.shape, (_ROWS, group), strict=True))
    return is_whole and _OF_LAYERS.search(name) is not None


def _as_linear(oracle: PreTrainedModel, matrix: Tensor) -> Tensor:
    """[out_features, in_features]: GPT-2's lie the other way round until they are quantised."""
    is_turned = oracle.config.model_type == "gpt2" and matrix.dim() == 2
    return matrix.T if is_turned else matrix


def _write(
    folder: Path,
    floats: Path,
    method: Method,
    tensors: dict[str, Tensor],
    numbers: dict[str, Tensor],
) -> None:
    save_file({name: one.clone() for name, one in tensors.items()}, folder / WEIGHTS)
    plain = {name: one.clone() for name, one in numbers.items()}
    save_file(plain, floats / WEIGHTS, metadata={"format": "pt"})
    (floats / f"{WEIGHTS}.index.json").unlink(missing_ok=True)
    for path in floats.glob("*.json"):
        shutil.copy(path, folder)
    config = json.loads((floats / "config.json").read_text()) | {"dtype": "float32"}
    (floats / "config.json").write_text(json.dumps(config))
    config["quantization_config"] = method.config
    (folder / "config.json").write_text(json.dumps(config))
