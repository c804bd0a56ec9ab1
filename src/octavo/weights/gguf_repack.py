"""GGUF types that have no kernels of their own: their numbers, unchanged, in a type of ours.

Owns the table of them. Does not know files.
"""

from __future__ import annotations

import math
import struct
import sys
from dataclasses import replace

import msgspec

from octavo import _native
from octavo.errors import CorruptFileError
from octavo.weights.checkpoint import TensorView, WeightType


class Repacked(msgspec.Struct, frozen=True):
    """One such type."""

    name: str
    block_bytes: int
    block_elements: int = 256
    to: WeightType = WeightType.INT8_K


# By GGML's numbers.
REPACKED = {
    15: Repacked("Q8_K", 292),
    16: Repacked("IQ2_XXS", 66),
    17: Repacked("IQ2_XS", 74),
    18: Repacked("IQ3_XXS", 98),
    19: Repacked("IQ1_S", 50),
    21: Repacked("IQ3_S", 110),
    22: Repacked("IQ2_S", 82),
    29: Repacked("IQ1_M", 56),
    34: Repacked("TQ1_0", 54),
    35: Repacked("TQ2_0", 66),
    40: Repacked("NVFP4", 36, 64, WeightType.FP4_16),
}


class RepackedRows(msgspec.Struct, frozen=True):
    """Rows of such a type in ours. Satisfies `RowSource`."""

    ggml_type: int
    stored: memoryview
    row_bytes: int
    # Of the numbers, one for each so many rows.
    factors: tuple[float, ...] = (1.0,)
    rows_each: int = sys.maxsize

    @property
    def data(self) -> tuple[memoryview, ...]:
        """See `RowSource`."""
        return (self.stored,)

    @property
    def recipe(self) -> tuple[object, ...]:
        """See `RowSource`."""
        return (self.ggml_type, self.row_bytes, self.factors, self.rows_each)

    def rows(self, first: int, end: int) -> bytes:
        """See `RowSource`."""
        pieces = []
        while first < end:
            index = first // self.rows_each
            stop = min(end, (index + 1) * self.rows_each)
            stored = self.stored[first * self.row_bytes : stop * self.row_bytes]
            pieces.append(_native.repack_blocks(self.ggml_type, stored, self.factors[index]))
            first = stop
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def repacked_view(
    name: str, ggml_type: int, shape: tuple[int, ...], data: memoryview
) -> TensorView:
    """A tensor of a type in REPACKED."""
    source = RepackedRows(ggml_type, data, len(data) // math.prod(shape[:-1]))
    return TensorView(name, REPACKED[ggml_type].to, shape, memoryview(b""), source=source)


def scaled(view: TensorView, scale: TensorView) -> TensorView:
    """A tensor of such a type, multiplied by one number, or each of its matrices by one.

    Raises CorruptFileError for another number of them, or one that is not finite.
    """
    assert isinstance(view.source, RepackedRows), view.name
    count = math.prod(scale.shape)
    if scale.type is not WeightType.F32 or (count != 1 and view.shape[:1] != (count,)):
        raise CorruptFileError(
            f"tensor {scale.name} has {count} numbers of type {scale.type.name}, must be one of "
            "F32, or one for each expert"
        )
    factors = struct.unpack(f"<{count}f", scale.data)
    if not all(map(math.isfinite, factors)):
        raise CorruptFileError(f"tensor {scale.name} holds a number that is not finite")
    rows_each = sys.maxsize if count == 1 else math.prod(view.shape[1:-1])
    return replace(
        view, source=msgspec.structs.replace(view.source, factors=factors, rows_each=rows_each)
    )
