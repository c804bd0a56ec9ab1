"""Small float tensors of a checkpoint as Python arrays of float32: norm weights and biases."""

from __future__ import annotations

import struct
import sys
from array import array

from octavo.errors import UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType

FLOAT_TYPES = (WeightType.F32, WeightType.F16, WeightType.BF16)


def float_values(view: TensorView) -> array[float]:
    """The elements of a vector, rotary order put right.

    Raises UnsupportedModelError for a quantised tensor.
    """
    values = _decode(view)
    heads = view.interleaved_heads
    if not heads:
        return values
    size = len(values) // heads
    ordered = array("f")
    for head in range(heads):
        rows = values[head * size : (head + 1) * size]
        ordered.extend(rows[0::2])
        ordered.extend(rows[1::2])
    return ordered


def _decode(view: TensorView) -> array[float]:
    """Little-endian numbers of the file as float32."""
    if view.type not in FLOAT_TYPES:
        raise UnsupportedModelError(
            f"tensor {view.name} is a quantised vector ({view.type.name}); vectors must be one of "
            f"{', '.join(kind.name for kind in FLOAT_TYPES)}"
        )
    count, data = view.shape[0], view.rows_in_order()
    if view.type is WeightType.F16:
        return array("f", struct.unpack(f"<{count}e", data))
    if view.type is WeightType.BF16:
        # The upper half of a float32.
        halves = bytes(data)
        raw = bytearray(4 * count)
        raw[2::4] = halves[0::2]
        raw[3::4] = halves[1::2]
    else:
        raw = bytearray(data)
    values = array("f", bytes(raw))
    if sys.byteorder == "big":
        values.byteswap()
    return values
