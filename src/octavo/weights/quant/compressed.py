"""compressed-tensors (llm-compressor): one container for several ways to quantise.

    pack-quantized    weight_packed I32 [out, in * bits / 32], codes plus half their range;
                      weight_shape, weight_scale [out, groups], weight_zero_point packed likewise
                      along the rows, weight_g_idx
    int-quantized     weight I8, weight_scale [out, 1] or [out, groups] or [1], weight_zero_point I8
    float-quantized   `fp8.py`          nvfp4-, mxfp4-pack-quantized   `fp4.py`

What a module is follows from its tensors; the configuration is held against them. Scales of
activations are not needed: they are quantised here with a scale for each 32 columns, or not at all
(--activation-dtype).
"""

from __future__ import annotations

from octavo import _native
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView
from octavo.weights.fields import Fields
from octavo.weights.quant.fp4 import mxfp4_view, nvfp4_view
from octavo.weights.quant.fp8 import Block, block_of, byte_table, scaled_float_views
from octavo.weights.quant.gptq import column_groups
from octavo.weights.quant.tables import (
    FLOAT_SCALES,
    Groups,
    Stems,
    TableRows,
    Zeros,
    matrix_view,
    scale_table,
    type_for,
)
from octavo.weights.stored_tensor import StoredTensor

FORMATS = (
    "dense",
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mixed-precision",
)
_BITS = (4, 8)


def compressed_views(stems: Stems, config: Fields) -> dict[str, TensorView]:
    """All quantised matrices.

    Raises UnsupportedModelError for another format, bits or sparsity, CorruptFileError for tensors
    that do not fit together.
    """
    bits, block = _checked(config)
    views: dict[str, TensorView] = {}
    for stem in stems.with_ending("weight_packed"):
        codes = stems.take(stem, "weight_packed")
        if codes.dtype == "I32":
            views[f"{stem}.weight"] = _packed(stem, codes, stems, bits)
        elif stems.find(stem, "weight_global_scale") is not None:
            views[f"{stem}.weight"] = nvfp4_view(stem, codes, stems)
        else:
            views[f"{stem}.weight"] = mxfp4_view(stem, codes, stems)
    for stem in stems.with_ending("weight_scale"):
        weight = stems.find(stem, "weight")
        if weight is not None and weight.dtype == "I8":
            views[weight.name] = _integers(stem, stems)
    return views | scaled_float_views(stems, block)


def _checked(config: Fields) -> tuple[set[int], Block | None]:
    """Bits and block of all groups of modules."""
    sparsity = config.section("sparsity_config")
    if sparsity is not None and sparsity.text("format", "dense") != "dense":
        what = sparsity.text("format")
        raise UnsupportedModelError(f"{config.where}: sparse weights ({what}) are not supported")
    _check_format(config)
    groups = config.section("config_groups")
    bits: set[int] = set()
    blocks: set[Block | None] = set()
    for name in groups or ():
        group = groups.section(name) if groups is not None else None
        if group is None:
            continue
        _check_format(group)
        weights = group.section("weights")
        if weights is not None:
            bits.add(weights.integer("num_bits", 8))
            blocks.add(block_of(weights, "block_structure"))
    if not bits <= set(_BITS):
        raise UnsupportedModelError(
            f"{config.where}: weights of {max(bits - set(_BITS))} bits; supported: 4 and 8"
        )
    blocks.discard(None)
    if len(blocks) > 1:
        raise UnsupportedModelError(f"{config.where}: blocks of several sizes: {blocks}")
    return bits, next(iter(blocks), None)


def _check_format(section: Fields) -> None:
    found = section.text("format", "dense")
    if found not in FORMATS:
        raise UnsupportedModelError(
            f"{section.where}: the format {found!r} is not supported. Supported: "
            f"{', '.join(FORMATS)}"
        )


def _packed(stem: str, codes: StoredTensor, stems: Stems, allowed: set[int]) -> TensorView:
    rows, words = codes.matrix_shape()
    shape = stems.take(stem, "weight_shape").expect(("I64", "I32"), (2,))
    cols = int(shape.numbers()[1])
    if shape.numbers()[0] != rows or cols < 1 or (words * 32) % cols:
        shape.refuse(f"says {shape.numbers()}, the codes are {rows} rows of {words} words")
    bits = words * 32 // cols
    if bits not in allowed:
        codes.refuse(f"has {bits} bits for each of {cols} columns, the configuration {allowed}")
    scales = stems.take(stem, "weight_scale").expect(FLOAT_SCALES)
    num_groups = _num_groups(scales, rows, cols)
    group, in_word = cols // num_groups, 32 // bits
    name = f"{stem}.weight"
    to = type_for("INT8" if bits == 8 else "INT4", name, cols, group)
    zeros = Zeros(1 << (bits - 1))
    points = stems.take_optional(stem, "weight_zero_point")
    if points is not None:
        points.expect(("I32",), (-(-rows // in_word), num_groups))
        table = _native.PackedInts(
            points.data, bits, 32, (rows, num_groups), (num_groups, 1), packs_rows=True
        )
        zeros = Zeros(0, table)
    groups = column_groups(stems.take_optional(stem, "weight_g_idx"), cols, group)
    source = TableRows(
        to,
        _native.PackedInts(codes.data, bits, 32, (rows, cols), (words, 1)),
        scale_table(scales, (rows, num_groups), (num_groups, 1), groups),
        zeros,
        groups,
    )
    return matrix_view(name, (rows, cols), source)


def _integers(stem: str, stems: Stems) -> TensorView:
    """A matrix of int8."""
    codes = stems.take(stem, "weight")
    rows, cols = codes.matrix_shape()
    scales = stems.take(stem, "weight_scale").expect(FLOAT_SCALES)
    is_one = scales.shape in ((), (1,), (1, 1))
    num_groups = 1 if is_one else _num_groups(scales, rows, cols)
    groups = Groups(cols // num_groups, rows if is_one else 1)
    to = type_for("INT8", codes.name, cols, groups.cols)
    shape = (1, 1) if is_one else (rows, num_groups)
    zeros = Zeros(128)
    points = stems.take_optional(stem, "weight_zero_point")
    if points is not None:
        points.expect(("I8",), *(((), (1,), (1, 1)) if is_one else (scales.shape,)))
        strides = (0, 0) if is_one else (num_groups, 1)
        table = _native.PackedInts(points.data, 8, 8, (rows, num_groups), strides, is_signed=True)
        zeros = Zeros(0, table)
    source = TableRows(
        to,
        byte_table(codes, rows, cols, signed=True),
        scale_table(scales, shape, (num_groups, 1), groups),
        zeros,
        groups,
    )
    return matrix_view(codes.name, (rows, cols), source)


def _num_groups(scales: StoredTensor, rows: int, cols: int) -> int:
    """Of a table [rows, groups]; [rows] is one group."""
    if scales.shape == (rows,):
        return 1
    found, num_groups = scales.matrix_shape()
    if found != rows or cols % num_groups:
        raise CorruptFileError(
            f"tensor {scales.name} has shape {list(scales.shape)}: no groups of a matrix of {rows} "
            f"rows and {cols} columns"
        )
    return num_groups
