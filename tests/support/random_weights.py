"""Random stored matrices of every weight type: any bytes, but with scales that make sense.

The numbers that the bytes mean have a spread of about `1 / sqrt(columns)`, as weights have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np

from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.gguf_repack import REPACKED

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True)
class _Layout:
    """Where the numbers of a block lie, and how large its integers are."""

    spread: float  # of an element in units of d
    place_d: int = 0
    place_minimum: int | None = None
    minimum: float = 0.0  # in units of d, so that the elements have a mean of zero
    num_floats: int = 0  # at the beginning; 0: d is in half precision


_LAYOUTS = {
    WeightType.Q4_0: _Layout(4.6),
    WeightType.Q4_1: _Layout(4.6, place_minimum=2, minimum=-7.5),
    WeightType.Q5_0: _Layout(9.2),
    WeightType.Q5_1: _Layout(9.2, place_minimum=2, minimum=-15.5),
    WeightType.Q8_0: _Layout(74.0),
    WeightType.Q4_K: _Layout(250.0, place_minimum=2, minimum=7.5),
    WeightType.Q5_K: _Layout(500.0, place_minimum=2, minimum=15.5),
    WeightType.Q6_K: _Layout(1370.0, place_d=208),
    WeightType.Q2_K: _Layout(15.0, place_d=80, place_minimum=82, minimum=1.5),
    WeightType.Q3_K: _Layout(42.0, place_d=108),
    WeightType.IQ4_NL: _Layout(70.0),
    WeightType.IQ4_XS: _Layout(1300.0),
    WeightType.INT4_32: _Layout(6.5, num_floats=1),
    WeightType.INT4_128: _Layout(6.5, num_floats=1),
    WeightType.INT8_32: _Layout(104.0, num_floats=1),
    WeightType.INT8_128: _Layout(104.0, num_floats=1),
    WeightType.INT8_K: _Layout(5400.0, num_floats=1),
    WeightType.FP8_32: _Layout(120.0, num_floats=1),
    WeightType.FP8_128: _Layout(120.0, num_floats=1),
    WeightType.FP4_16: _Layout(2.9, num_floats=2),
    WeightType.NF4_32: _Layout(0.5, num_floats=1),
}
# What a code of four bits stands for.
_FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
_NF4 = np.array(
    [
        *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
        *(-0.28444138169288635, -0.18477343022833, -0.09105003625154495, 0.0, 0.07958029955625534),
        *(0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434),
        *(0.5626170039176941, 0.7229568362236023, 1.0),
    ],
    dtype=np.float32,
)


def random_rows(type: WeightType, num_rows: int, num_cols: int, seed: int) -> Bytes:
    """Bytes of a stored matrix: [num_rows, bytes of a row]."""
    generator = np.random.default_rng(seed)
    if type is WeightType.MXFP4:
        return _random_mxfp4(generator, num_rows, num_cols)
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
    if type in (WeightType.FP8_32, WeightType.FP8_128):
        blocks &= 0xFB  # no NaN
    for i in range(layout.num_floats):
        blocks[..., 4 * i : 4 * i + 4] = (d.astype(np.float32) / (i + 1)).view(np.uint8)
    if layout.num_floats:
        return blocks.reshape(num_rows, -1)
    blocks[..., layout.place_d : layout.place_d + 2] = d.view(np.uint8)
    if layout.place_minimum is not None:
        minimum = (d.astype(np.float32) * layout.minimum).astype(np.float16)
        blocks[..., layout.place_minimum : layout.place_minimum + 2] = minimum.view(np.uint8)
    return blocks.reshape(num_rows, -1)


# Type that is repacked -> place of its half in a block, spread of an element in units of it.
_REPACKED_LAYOUTS = {
    "IQ2_XXS": (0, 45.0),
    "IQ2_XS": (0, 45.0),
    "IQ2_S": (0, 45.0),
    "IQ3_XXS": (0, 100.0),
    "IQ3_S": (0, 130.0),
    "IQ1_S": (0, 6.0),
    "IQ1_M": (0, 6.0),
    "TQ1_0": (52, 0.8),
    "TQ2_0": (64, 0.8),
    "Q8_K": (0, 74.0),
}


def random_repacked_rows(number: int, num_rows: int, num_cols: int, seed: int) -> Bytes:
    """The same as `random_rows` for a GGUF type that has no kernels of its own."""
    repacked = REPACKED[number]
    name, num_bytes = repacked.name, repacked.block_bytes
    place, spread = _REPACKED_LAYOUTS.get(name, (0, 1.0))
    generator = np.random.default_rng(seed)
    shape = (num_rows, num_cols // repacked.block_elements, num_bytes)
    blocks = generator.integers(0, 256, shape, dtype=np.uint8)
    if name == "NVFP4":  # scales are bytes: 2^-6 to 2^-5
        blocks[..., :4] = generator.integers(0x08, 0x16, (*shape[:2], 4))
        return blocks.reshape(num_rows, -1)
    d = generator.uniform(0.5, 1.5, (*blocks.shape[:2], 1)) / (spread * num_cols**0.5)
    if name == "Q8_K":
        blocks[..., :4] = d.astype(np.float32).view(np.uint8)
    elif name == "IQ1_M":  # the upper four bits of four words
        half = d.astype(np.float16).view(np.uint16)[..., 0]
        for i in range(4):
            blocks[..., 49 + 2 * i] &= 0x0F
            blocks[..., 49 + 2 * i] |= ((half >> (4 * i)) & 15).astype(np.uint8) << 4
    else:
        blocks[..., place : place + 2] = d.astype(np.float16).view(np.uint8)
    return blocks.reshape(num_rows, -1)


def _random_mxfp4(generator: np.random.Generator, num_rows: int, num_cols: int) -> Bytes:
    blocks = generator.integers(0, 256, (num_rows, num_cols // 32, 17), dtype=np.uint8)
    middle = 127 - round(np.log2(2.9 * num_cols**0.5))
    blocks[..., 0] = generator.integers(middle - 1, middle + 2, blocks.shape[:2])
    return blocks.reshape(num_rows, -1)


def numbers_of(type: WeightType, rows: Bytes) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What the bytes mean, by the gguf package or our own description: [num_rows, num_cols]."""
    if not type.is_ggml:
        blocks = rows.reshape(-1, type.block_bytes)
        return _own_numbers(type, blocks).astype(np.float32).reshape(rows.shape[0], -1)
    values: np.ndarray[Any, Any] = gguf.quants.dequantize(rows, _ggml(type))
    return values.astype(np.float32).reshape(rows.shape[0], -1)


def _own_numbers(type: WeightType, blocks: Bytes) -> np.ndarray[Any, Any]:
    """csrc/packing.hpp: floats, then whatever else belongs to the block, then codes."""
    d = np.ascontiguousarray(blocks[:, :4]).view(np.float32)
    match type:
        case WeightType.INT4_32 | WeightType.INT4_128:
            return d * (_halves(blocks[:, 8:]) - blocks[:, 4:5].astype(np.float32))
        case WeightType.INT8_32 | WeightType.INT8_128:
            signed = blocks.view(np.int8).astype(np.float32)
            return d * (signed[:, 8:] - signed[:, 4:5])
        case WeightType.INT8_K:
            signed = blocks.view(np.int8).astype(np.float32)
            return d * np.repeat(signed[:, 4:20], 16, axis=1) * signed[:, 20:]
        case WeightType.FP8_32 | WeightType.FP8_128:
            codes = np.ascontiguousarray(blocks[:, 4:]).astype(np.int32)
            exponent, fraction = codes >> 3 & 15, codes & 7
            size = np.where(
                exponent == 0, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10)
            )
            return d * np.where(codes & 128, -size, size)
        case WeightType.FP4_16:
            both = np.ascontiguousarray(blocks[:, :8]).view(np.float32)
            return np.repeat(both, 16, axis=1) * _FP4[_halves(blocks[:, 8:])]
        case _:
            return d * _NF4[_halves(blocks[:, 4:])]


def _halves(packed: Bytes) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Of each 16 bytes the low halves, then the high ones."""
    groups = packed.reshape(len(packed), -1, 16).astype(np.int32)
    return np.concatenate([groups & 15, groups >> 4], axis=2).reshape(len(packed), -1)


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
