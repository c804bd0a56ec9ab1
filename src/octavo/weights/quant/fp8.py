"""8-bit floats E4M3 with a float scale: per tensor, per output row, or per block of both.

    weight                            F8_E4M3 [out_features, in_features]
    weight_scale or weight_scale_inv  weight = number * scale (DeepSeek's "inv" is the same)
                                      [], [1], [out], [out, 1], or [out / block, in / block]
    input_scale                       of activations, which are not quantised here

Also what compressed-tensors and ModelOpt call float-quantized and FP8.
"""

from __future__ import annotations

from octavo import _native
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.fields import Fields
from octavo.weights.quant.tables import (
    FLOAT_SCALES,
    Groups,
    Stems,
    TableRows,
    matrix_view,
    scale_table,
)
from octavo.weights.stored_tensor import StoredTensor

Block = tuple[int, int]  # rows and columns of a block with one scale
_SCALES = ("weight_scale", "weight_scale_inv")


def fp8_views(stems: Stems, config: Fields) -> dict[str, TensorView]:
    """All matrices of 8-bit floats."""
    block = block_of(config, "weight_block_size")
    return scaled_float_views(stems, block)


def block_of(config: Fields, key: str) -> Block | None:
    """Rows and columns of a block, or None where scales are not of blocks."""
    sizes = config.numbers(key, above=0)
    if not sizes:
        return None
    if len(sizes) != 2 or any(size != int(size) for size in sizes):
        config.refuse(key, f"must be two whole numbers, got {list(sizes)}")
    return int(sizes[0]), int(sizes[1])


def scaled_float_views(stems: Stems, block: Block | None) -> dict[str, TensorView]:
    """Matrices with 8-bit numbers and a scale, taken from `stems`."""
    views = {}
    for ending in _SCALES:
        for stem in stems.with_ending(ending):
            weight = stems.find(stem, "weight")
            if weight is None or weight.dtype not in ("F8_E4M3", "F8_E5M2"):
                continue
            views[weight.name] = _matrix(stem, ending, stems, block)
    return views


def _matrix(stem: str, ending: str, stems: Stems, block: Block | None) -> TensorView:
    codes = stems.take(stem, "weight")
    if codes.dtype != "F8_E4M3":
        raise UnsupportedModelError(
            f"tensor {codes.name} has the type {codes.dtype}; supported 8-bit floats: F8_E4M3"
        )
    rows, cols = codes.matrix_shape()
    if cols % 32:
        raise UnsupportedModelError(f"tensor {codes.name}: rows of {cols}, must be multiples of 32")
    scales = stems.take(stem, ending).expect(FLOAT_SCALES)
    shape, strides, groups = scale_layout(scales, rows, cols, block)
    is_wide = cols % 128 == 0 and (groups.cols % 128 == 0 or groups.cols == cols)
    to = WeightType.FP8_128 if is_wide else WeightType.FP8_32
    table = scale_table(scales, shape, strides, groups)
    source = TableRows(to, byte_table(codes, rows, cols), table, groups=groups)
    return matrix_view(codes.name, (rows, cols), source)


def byte_table(
    codes: StoredTensor, rows: int, cols: int, *, signed: bool = False
) -> _native.PackedInts:
    """A matrix of bytes as a table."""
    return _native.PackedInts(codes.data, 8, 8, (rows, cols), (cols, 1), is_signed=signed)


def scale_layout(
    scales: StoredTensor, rows: int, cols: int, block: Block | None
) -> tuple[Block, Block, Groups]:
    """Shape and strides of a table of scales, and which scale an element has."""
    shape = scales.shape
    if block is not None:
        down, across = -(-rows // block[0]), -(-cols // block[1])
        scales.expect(FLOAT_SCALES, (down, across))
        if block[1] % 32:
            raise CorruptFileError(
                f"tensor {scales.name}: blocks of {block[1]} columns, must be a multiple of 32"
            )
        return (down, across), (across, 1), Groups(block[1], block[0])
    if shape in ((), (1,), (1, 1)):
        return (1, 1), (0, 0), Groups(cols, rows)
    scales.expect(FLOAT_SCALES, (rows,), (rows, 1))
    return (rows, 1), (1, 0), Groups(cols)
