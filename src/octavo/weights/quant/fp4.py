"""4-bit floats E2M1, two in a byte, the lower half first, with a scale for a few columns.

    NVFP4   U8 [out, in / 2], scales F8_E4M3 [out, in / 16], one more scale for the matrix
    MXFP4   U8 [out, in / 2], scales of powers of two (U8 or F8_E8M0) [out, in / 32]

As compressed-tensors (nvfp4-pack-quantized, mxfp4-pack-quantized) and ModelOpt write them. In the
files of gpt-oss all experts of a layer lie on top of each other:

    NAME_blocks   U8 [experts, out, in / 32, 16]     NAME_scales   U8 [experts, out, in / 32]
"""

from __future__ import annotations

from dataclasses import replace

from octavo import _native
from octavo.errors import UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.fields import Fields
from octavo.weights.quant.tables import Groups, Stems, TableRows, matrix_view, scale_table
from octavo.weights.stored_tensor import StoredTensor

_BLOCKS, _GROUP = "_blocks", 32


def nvfp4_view(stem: str, codes: StoredTensor, stems: Stems) -> TensorView:
    """A matrix of NVFP4: compressed-tensors divides by its second scale, ModelOpt multiplies."""
    rows, cols = _shape(codes)
    scales = stems.take(stem, "weight_scale").expect(("F8_E4M3",), (rows, cols // 16))
    divisor = stems.take_optional(stem, "weight_global_scale")
    second = divisor or stems.take(stem, "weight_scale_2")
    (factor,) = second.expect(("F32",), (), (1,)).numbers()
    if not 0 < factor < float("inf"):
        second.refuse(f"must be above 0, is {factor}")
    groups = Groups(16)
    if divisor is not None:
        factor = 1.0 / factor
    table = scale_table(scales, (rows, cols // 16), (cols // 16, 1), groups, factor)
    halves = _halves(codes, rows, cols)
    source = TableRows(WeightType.FP4_16, halves, table, groups=groups)
    return matrix_view(f"{stem}.weight", (rows, cols), source)


def mxfp4_view(stem: str, codes: StoredTensor, stems: Stems) -> TensorView:
    """A matrix of MXFP4."""
    rows, cols = _shape(codes)
    scales = stems.take(stem, "weight_scale").expect(("U8", "F8_E8M0"), (rows, cols // 32))
    groups = Groups(32)
    powers = replace(scales, dtype="F8_E8M0")
    table = scale_table(powers, (rows, cols // 32), (cols // 32, 1), groups)
    halves = _halves(codes, rows, cols)
    source = TableRows(WeightType.MXFP4, halves, table, groups=groups)
    return matrix_view(f"{stem}.weight", (rows, cols), source)


def mxfp4_stacks(stems: Stems, config: Fields) -> dict[str, TensorView]:
    """Experts in MXFP4: [experts, out_features, in_features] by name."""
    return {name: _stack(name, stems) for name in stems.names_ending(_BLOCKS)}


def _stack(name: str, stems: Stems) -> TensorView:
    codes = stems.take_named(name + _BLOCKS).expect(("U8",))
    if len(codes.shape) != 4 or codes.shape[3] != _GROUP // 2 or 0 in codes.shape:
        codes.refuse(f"has shape {list(codes.shape)}, must be [experts, rows, groups, 16]")
    experts, rows, num_groups, _ = codes.shape
    scales = stems.take_named(f"{name}_scales").expect(("U8",), (experts, rows, num_groups))
    cols, all_rows = num_groups * _GROUP, experts * rows
    groups = Groups(_GROUP)
    powers = replace(scales, dtype="F8_E8M0")
    source = TableRows(
        WeightType.MXFP4,
        _halves(codes, all_rows, cols),
        scale_table(powers, (all_rows, num_groups), (num_groups, 1), groups),
        groups=groups,
    )
    return TensorView(name, WeightType.MXFP4, (experts, rows, cols), memoryview(b""), source=source)


def _shape(codes: StoredTensor) -> tuple[int, int]:
    rows, half = codes.expect(("U8",)).matrix_shape()
    if half % 16:
        raise UnsupportedModelError(
            f"tensor {codes.name}: rows of {2 * half}, must be multiples of 32"
        )
    return rows, 2 * half


def _halves(codes: StoredTensor, rows: int, cols: int) -> _native.PackedInts:
    return _native.PackedInts(codes.data, 4, 8, (rows, cols), (cols // 2, 1))
