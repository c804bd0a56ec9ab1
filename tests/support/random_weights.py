"""Random stored matrices of every weight type: any bytes, but with scales that make sense.

The numbers that the bytes mean have a spread of about `1 / sqrt(columns)`, as weights have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np

from octavo.weights.checkpoint import TensorView, WeightType

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class _Layout:
    """Where the half-precision numbers of a block lie, and how large its integers are."""

    spread: float  # of an element in units of d
    place_d: int = 0
    place_minimum: int | None = None
    minimum: float = 0.0  # in units of d, so that the elements have a mean of zero


_LAYOUTS = {
    WeightType.Q4_0: _Layout(4.6),
    WeightType.Q4_1: _Layout(4.6, place_minimum=2, minimum=-7.5),
    WeightType.Q5_0: _Layout(9.2),
    WeightType.Q5_1: _Layout(9.2, place_minimum=2, minimum=-15.5),
    WeightType.Q8_0: _Layout(74.0),
    WeightType.Q4_K: _Layout(250.0, place_minimum=2, minimum=7.5),
    WeightType.Q5_K: _Layout(500.0, place_minimum=2, minimum=15.5),
    WeightType.Q6_K: _Layout(1370.0, place_d=208),
}


def random_rows(type: WeightType, num_rows: int, num_cols: int, seed: int) -> Bytes:
    """Bytes of a stored matrix: [num_rows, bytes of a row]."""
    generator = np.random.default_rng(seed)
    if type not in _LAYOUTS:
        values = generator.standard_normal((num_rows, num_cols)) / num_cols**0.5
        rows = gguf.quants.quantize(values.astype(np.float32), _ggml(type))
        return np.ascontiguousarray(rows).view(np.uint8).reshape(num_rows, -1)

    layout = _LAYOUTS[type]
    shape = (num_rows, num_cols // type.block_elements, type.block_bytes)
    blocks = generator.integers(0, 256, shape, dtype=np.uint8)
    sizes = generator.uniform(0.5, 1.5, (*shape[:2], 1)) / (layout.spread * num_cols**0.5)
    signs = generator.choice([-1.0, 1.0], sizes.shape)
    d = (sizes * signs).astype(np.float16)
    blocks[..., layout.place_d : layout.place_d + 2] = d.view(np.uint8)
    if layout.place_minimum is not None:
        minimum = (d.astype(np.float32) * layout.minimum).astype(np.float16)
        blocks[..., layout.place_minimum : layout.place_minimum + 2] = minimum.view(np.uint8)
    return blocks.reshape(num_rows, -1)


def numbers_of(type: WeightType, rows: Bytes) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What the bytes mean, by the gguf package: [num_rows, num_cols]."""
    values: np.ndarray[Any, Any] = gguf.quants.dequantize(rows, _ggml(type))
    return values.astype(np.float32).reshape(rows.shape[0], -1)


def random_view(
    name: str,
    type: WeightType,
    num_rows: int,
    num_cols: int,
    seed: int,
    *,
    interleaved_heads: int = 0,
) -> TensorView:
    """A random stored matrix as a checkpoint shows it."""
    rows = random_rows(type, num_rows, num_cols, seed)
    return TensorView(
        name, type, (num_rows, num_cols), memoryview(rows.tobytes()), interleaved_heads
    )


def _ggml(type: WeightType) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType(int(type))
