"""A folder of floats in Hugging Face's layout -> a compressed-tensors checkpoint of int8 or int4.

Owns which matrices are quantised and the layout of the new files. vLLM and transformers read the
result as well: pack-quantized, groups of columns, int4 with zero points.
"""

from __future__ import annotations

import json
import math
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo import _native
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import CONFIG
from octavo.weights.expert_stacks import is_stack
from octavo.weights.hf_config import facts_from_config
from octavo.weights.hf_folder import INDEX, SINGLE, weight_files
from octavo.weights.hf_names import layout_of, renamed
from octavo.weights.json_file import read_fields
from octavo.weights.mapped_file import let_go
from octavo.weights.quant.method import find_quantisation
from octavo.weights.quant.online import is_projection
from octavo.weights.quant.scaling import Folding, Rounding, Seen, check_wiring, fold
from octavo.weights.safetensors_file import read_stored
from octavo.weights.stored_tensor import FLOATS, StoredTensor, float_view

BITS = {"int8": 8, "int4": 4}
GROUPS = (128, 64, 32)
_NOT_COPIED = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tensor of the new file."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What becomes of a tensor: its entries, and how their bytes are made, in that order."""

    entries: list[_Entry]
    make: Callable[[], Iterator[bytes | memoryview]]


def quantise_folder(
    source: Path,
    target: Path,
    kind: str,
    report: Callable[[float], None],
    *,
    group: int | None = None,
    seen: Mapping[str, Seen] | None = None,
) -> None:
    """Write the folder `target`, which must not exist. `report` is told the share done.

    `group` columns share a scale; None: the most that divide all rows. `seen` are activations, by
    which columns are scaled first. Raises UnsupportedModelError for a checkpoint that is quantised
    already or has matrices that cannot be, CorruptFileError for numbers that are not finite.
    """
    config = read_fields(source / CONFIG)
    if find_quantisation(source, config) is not None:
        raise UnsupportedModelError(f"{source} is quantised already; give a folder of floats")
    tensors: dict[str, StoredTensor] = {}
    for path in weight_files(source):
        tensors |= read_stored(path)
    projections = _projections(tensors, config.values, config.where)
    rounding = Rounding(BITS[kind], _group(projections, source, group))
    folding = Folding()
    if seen is not None:
        facts = facts_from_config(config.values, config.where)
        check_wiring(facts, config.where)
        folding = fold(tensors, facts, seen, rounding)
    plans = [
        _quantised(tensor, rounding, folding)
        if name in projections
        else _copied(tensor, folding.vectors.get(name))
        for name, tensor in tensors.items()
    ]
    target.mkdir(parents=True)
    _write(target / SINGLE, plans, report)
    settings = _settings(rounding, _float_modules(tensors, projections))
    text = json.dumps({**config.values, "quantization_config": settings}, indent=2)
    (target / CONFIG).write_text(text + "\n", encoding="utf-8")
    for path in sorted(source.iterdir()):
        if path.is_file() and path.name not in (CONFIG, INDEX) and path.suffix not in _NOT_COPIED:
            shutil.copyfile(path, target / path.name)


def _projections(
    tensors: Mapping[str, StoredTensor], config: Mapping[str, object], where: str
) -> dict[str, StoredTensor]:
    """The matrices of layers, by the names of the file.

    Raises UnsupportedModelError where one cannot be quantised: left out, it would make the folder
    hardly smaller, and nobody would know.
    """
    facts = facts_from_config(config, where)
    layout = layout_of(facts.architecture, has_experts=facts.moe is not None)
    if layout.arrangement.transposed:
        raise UnsupportedModelError(
            f"{where}: the matrices of this architecture lie transposed and cannot be quantised"
        )
    found: dict[str, StoredTensor] = {}
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            continue
        ((our_name, view),) = renamed({name: float_view(tensor)}, layout).items()
        if is_stack(our_name) and len(tensor.shape) == 3:
            raise UnsupportedModelError(
                f"{where}: {name} holds all experts of a layer in one tensor, which cannot be "
                "written as int8 or int4; serve the model with --quantization int8 or int4, which "
                "quantises them while they are loaded, or use a GGUF file of it"
            )
        if is_projection(view):
            found[name] = tensor
    if not found:
        raise UnsupportedModelError(f"{where}: no matrix of a layer was recognised")
    return found


def _group(projections: Mapping[str, StoredTensor], source: Path, wanted: int | None) -> int:
    """`wanted`, or the largest group that divides the rows of all."""
    for group in GROUPS if wanted is None else (wanted,):
        if all(tensor.shape[1] % group == 0 for tensor in projections.values()):
            return group
    widths = sorted({tensor.shape[1] for tensor in projections.values()})
    least = GROUPS[-1] if wanted is None else wanted
    raise UnsupportedModelError(f"{source} has rows of {widths}; they must be multiples of {least}")


def _float_modules(
    tensors: Mapping[str, StoredTensor], quantised: Mapping[str, StoredTensor]
) -> list[str]:
    """Modules whose matrix stays as it is: routers, gates, embeddings, encoders of images."""
    left = {
        name.removesuffix(".weight")
        for name, tensor in tensors.items()
        if name.endswith(".weight") and len(tensor.shape) == 2 and name not in quantised
    }
    return sorted(left | {"lm_head"})  # which may be the embedding under another name


def _settings(rounding: Rounding, left_out: list[str]) -> dict[str, Any]:
    weights = {
        "num_bits": rounding.bits,
        "type": "int",
        "symmetric": rounding.bits == 8,
        "strategy": "group",
        "group_size": rounding.group,
        "dynamic": False,
    }
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": left_out,
    }


def _copied(tensor: StoredTensor, changed: bytes | None) -> _Plan:
    def make() -> Iterator[bytes | memoryview]:
        yield tensor.data if changed is None else changed
        let_go(tensor.data)

    return _Plan([_Entry(tensor.name, tensor.dtype, tensor.shape)], make)


def _quantised(tensor: StoredTensor, rounding: Rounding, folding: Folding) -> _Plan:
    stem = tensor.name.removesuffix(".weight")
    rows, cols = tensor.matrix_shape()
    bits, groups = rounding.bits, cols // rounding.group
    entries = [
        _Entry(f"{stem}.weight_packed", "I32", (rows, cols * bits // 32)),
        _Entry(f"{stem}.weight_scale", "F16", (rows, groups)),
    ]
    if bits == 4:
        entries.append(_Entry(f"{stem}.weight_zero_point", "I32", (-(-rows // 8), groups)))
    entries.append(_Entry(f"{stem}.weight_shape", "I64", (2,)))

    def make() -> Iterator[bytes | memoryview]:
        try:
            words, scales, zeros = _native.int_tables(
                FLOATS[tensor.dtype],
                tensor.data,
                cols,
                bits,
                rounding.group,
                folding.rows.get(tensor.name, b""),
                folding.columns.get(tensor.name, b""),
            )
        except ValueError as error:
            raise CorruptFileError(f"tensor {tensor.name} cannot be used: {error}") from error
        let_go(tensor.data)
        yield words
        yield scales
        if bits == 4:
            yield zeros
        yield struct.pack("<2q", rows, cols)

    return _Plan(entries, make)


def _write(path: Path, plans: list[_Plan], report: Callable[[float], None]) -> None:
    """A safetensors file: the header is known before any number is."""
    sizes = {"I32": 4, "F16": 2, "BF16": 2, "F32": 4, "I64": 8, "F64": 8, "U8": 1, "I8": 1}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for entry in (entry for plan in plans for entry in plan.entries):
        begin, end = end, end + sizes[entry.dtype] * math.prod(entry.shape)
        offsets = [begin, end]
        header[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": offsets}
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with path.open("xb") as out:
        out.write(struct.pack("<Q", len(raw)) + raw)
        for done, plan in enumerate(plans, start=1):
            for piece in plan.make():
                out.write(piece)
            report(done / len(plans))
