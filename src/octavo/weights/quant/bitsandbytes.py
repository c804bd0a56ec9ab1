"""bitsandbytes: NF4 with a scale for each block of the flattened matrix, and int8 rows.

4 bits (load_in_4bit, NF4), two codes in a byte, the upper half first:

    weight                                   U8 [elements / 2, 1]
    weight.absmax                            F32 [blocks], or U8 with double quantisation:
    weight.nested_absmax, nested_quant_map   F32: absmax = map[code] * nested_absmax + offset
    weight.quant_map                         F32 [16], the codebook
    weight.quant_state.bitsandbytes__nf4     U8, JSON: shape, blocksize, nested_offset ...

8 bits (load_in_8bit): weight I8 [out, in], SCB F32 [out]; weight = code * SCB / 127.
"""

from __future__ import annotations

import struct
from dataclasses import replace

from octavo import _native
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.foundation.json_object import parse_object
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.fields import Fields
from octavo.weights.quant.fp8 import byte_table
from octavo.weights.quant.tables import (
    UPPER_HALF_FIRST,
    Groups,
    Stems,
    TableRows,
    Zeros,
    matrix_view,
    scale_table,
    type_for,
)
from octavo.weights.stored_tensor import StoredTensor

_STATE = "weight.quant_state.bitsandbytes__"
NF4_NUMBERS = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


def bitsandbytes_views(stems: Stems, config: Fields) -> dict[str, TensorView]:
    """All quantised matrices. Raises UnsupportedModelError for FP4."""
    kind = config.text("bnb_4bit_quant_type", "nf4")
    if config.flag("load_in_4bit", False) and kind != "nf4":
        raise UnsupportedModelError(f"{config.where}: 4 bits of type {kind!r}; supported: nf4")
    views = {}
    for stem in stems.with_ending(f"{_STATE}nf4"):
        views[f"{stem}.weight"] = _nf4(stem, stems)
    for stem in stems.with_ending("SCB"):
        views[f"{stem}.weight"] = _int8(stem, stems)
    return views


def _nf4(stem: str, stems: Stems) -> TensorView:
    codes = stems.take(stem, "weight").expect(("U8",))
    state_bytes = stems.take(stem, f"{_STATE}nf4").expect(("U8",))
    state = Fields(parse_object(bytes(state_bytes.data), state_bytes.name), state_bytes.name)
    rows, cols = _shape(state)
    block = state.integer("blocksize", at_least=1)
    if cols % 32 or cols % block or block % 32:
        raise UnsupportedModelError(
            f"tensor {codes.name}: rows of {cols} in blocks of {block}; rows must be multiples of "
            "the block, and both of 32"
        )
    if len(codes.data) * 2 != rows * cols:
        codes.refuse(f"has {len(codes.data)} bytes for {rows} x {cols} elements of 4 bits")
    numbers = stems.take(stem, "weight.quant_map").expect(("F32",), (16,))
    if any(abs(a - b) > 1e-6 for a, b in zip(numbers.numbers(), NF4_NUMBERS, strict=True)):
        numbers.refuse("is not the codebook of NF4")
    groups = Groups(block)
    num_blocks = cols // block
    absmax = _absmax(stem, stems, state, rows * num_blocks)
    source = TableRows(
        WeightType.NF4_32,
        _native.PackedInts(codes.data, 4, 8, (rows, cols), (cols // 2, 1), order=UPPER_HALF_FIRST),
        scale_table(absmax, (rows, num_blocks), (num_blocks, 1), groups),
        groups=groups,
    )
    return matrix_view(codes.name, (rows, cols), source)


def _shape(state: Fields) -> tuple[int, int]:
    sizes = state.numbers("shape", above=0)
    if len(sizes) != 2 or any(size != int(size) for size in sizes):
        raise CorruptFileError(f"{state.where}: shape must be two whole numbers, got {list(sizes)}")
    return int(sizes[0]), int(sizes[1])


def _absmax(stem: str, stems: Stems, state: Fields, count: int) -> StoredTensor:
    """The scale of each block, as floats."""
    absmax = stems.take(stem, "weight.absmax").expect(("F32", "U8"), (count,))
    if absmax.dtype == "F32":
        return absmax
    block = state.integer("nested_blocksize", 256, at_least=1)
    nested = stems.take(stem, "weight.nested_absmax").expect(("F32",), (-(-count // block),))
    table = stems.take(stem, "weight.nested_quant_map").expect(("F32",), (256,))
    offset = state.number("nested_offset", 0.0)
    # Rounded to float32, as the file means it.
    (offset,) = struct.unpack("<f", struct.pack("<f", offset))
    scales = _native.nested_scales(absmax.data, table.data, nested.data, block, offset)
    return replace(absmax, dtype="F32", data=memoryview(scales))


def _int8(stem: str, stems: Stems) -> TensorView:
    codes = stems.take(stem, "weight").expect(("I8",))
    rows, cols = codes.matrix_shape()
    layout = stems.take_optional(stem, "weight_format")
    if layout is not None and any(layout.data):
        layout.refuse("says that rows are not stored one after the other, which is not supported")
    scales = stems.take(stem, "SCB").expect(("F32",), (rows,))
    groups = Groups(cols)
    source = TableRows(
        type_for("INT8", codes.name, cols, cols),
        byte_table(codes, rows, cols, signed=True),
        scale_table(scales, (rows, 1), (1, 0), groups, 1 / 127),
        Zeros(128),
        groups,
    )
    return matrix_view(codes.name, (rows, cols), source)
