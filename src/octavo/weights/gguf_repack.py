"""GGUF types that have no kernels of their own: their numbers, unchanged, in a wider type of ours.

Owns the table of them. Does not know files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from octavo import _native
from octavo.weights.checkpoint import TensorView, WeightType

BLOCK_ELEMENTS = 256
# GGML's number -> its name and the bytes of a block of 256 elements.
REPACKED = {
    15: ("Q8_K", 292),
    16: ("IQ2_XXS", 66),
    17: ("IQ2_XS", 74),
    18: ("IQ3_XXS", 98),
    19: ("IQ1_S", 50),
    21: ("IQ3_S", 110),
    22: ("IQ2_S", 82),
    29: ("IQ1_M", 56),
    34: ("TQ1_0", 54),
    35: ("TQ2_0", 66),
}


@dataclass(frozen=True, slots=True)
class RepackedRows:
    """Rows of such a type as INT8_K. Satisfies `RowSource`."""

    ggml_type: int
    stored: memoryview
    row_bytes: int

    @property
    def data(self) -> tuple[memoryview, ...]:
        """See `RowSource`."""
        return (self.stored,)

    def rows(self, first: int, end: int) -> bytes:
        """See `RowSource`."""
        stored = self.stored[first * self.row_bytes : end * self.row_bytes]
        return _native.repack_blocks(self.ggml_type, stored)


def repacked_view(
    name: str, ggml_type: int, shape: tuple[int, ...], data: memoryview
) -> TensorView:
    """A tensor of a type in REPACKED."""
    source = RepackedRows(ggml_type, data, len(data) // math.prod(shape[:-1]))
    return TensorView(name, WeightType.INT8_K, shape, memoryview(b""), source=source)
