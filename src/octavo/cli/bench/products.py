"""Times one product of our kernels: tokens x columns by a matrix of some weight type.

Owns: a program that multiplies the same input by several matrices, stored bytes that are sound
numbers of each type. Does not know: models.
"""

from __future__ import annotations

import random
import struct
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from octavo import _native
from octavo._native import Rows, View
from octavo.weights.checkpoint import WeightType

_BLOCK = 32  # tokens of a KV block; the pool is there because a program needs one
_ALIGNMENT = 16  # floats
# Where the half-precision numbers of a block lie: scales, and offsets in units of a scale.
_HALVES: dict[WeightType, tuple[tuple[int, float], ...]] = {
    WeightType.Q4_0: ((0, 1.0),),
    WeightType.Q4_1: ((0, 1.0), (2, -7.5)),
    WeightType.Q5_0: ((0, 1.0),),
    WeightType.Q5_1: ((0, 1.0), (2, -15.5)),
    WeightType.Q8_0: ((0, 1.0),),
    WeightType.Q4_K: ((0, 1.0), (2, 7.5)),
    WeightType.Q5_K: ((0, 1.0), (2, 15.5)),
    WeightType.Q6_K: ((208, 1.0),),
}
_FLOATS = {WeightType.F32: "f", WeightType.F16: "e"}


@dataclass(frozen=True, slots=True)
class Product:
    """[tokens, columns] by the transpose of [rows, columns]."""

    weight: WeightType
    rows: int
    cols: int
    num_tokens: int
    rounding: _native.Rounding | None  # of activations

    @property
    def num_ops(self) -> float:
        """Multiplications and additions."""
        return 2.0 * self.rows * self.cols * self.num_tokens

    @property
    def weight_bytes(self) -> int:
        """Of the matrix as it is stored."""
        return self.weight.num_bytes(self.rows * self.cols)


def product_seconds(
    product: Product,
    kernels: _native.Kernels,
    threads: _native.ThreadPool,
    *,
    copies: int,
    num_runs: int,
) -> list[float]:
    """Seconds of one product in each run, after one that warms up.

    A run goes through `copies` equal matrices, so that with enough of them none is in the cache.
    Activations are rounded once in a run, where they are rounded.
    """
    weights = _native.Weights()
    ids = [
        weights.add_matrix(product.cols, [(product.weight, product.rows)]) for _ in range(copies)
    ]
    weights.allocate()
    stored = sound_bytes(product.weight, product.rows * product.cols)
    for matrix in ids:
        weights.fill(threads, matrix, 0, product.weight, stored, 0)
    program, x = _program(product, weights, ids)
    forward, row = _forward(program, kernels, threads, product.num_tokens)
    values = array("f", random_floats(product.num_tokens * product.cols))
    forward.write(x, Rows.TOKENS, values)
    positions = list(range(product.num_tokens))
    token_ids = [0] * product.num_tokens
    found = []
    for number in range(num_runs + 1):
        begin_s = time.perf_counter()
        forward.run(token_ids, positions, [row], [])
        if number:
            found.append((time.perf_counter() - begin_s) / copies)
    return found


def sound_bytes(type: WeightType, num_elements: int) -> bytes:
    """Stored elements that are ordinary numbers of about the size of weights; a short pattern."""
    generator = random.Random(0)  # noqa: S311 - made-up weights
    if type is WeightType.BF16:
        pattern = b"".join(struct.pack("<f", v)[2:] for v in random_floats(4096))
    elif type in _FLOATS:
        pattern = struct.pack(f"<4096{_FLOATS[type]}", *random_floats(4096))
    else:
        block = bytearray(generator.randbytes(type.block_bytes))
        for place, factor in _HALVES[type]:
            block[place : place + 2] = struct.pack("<e", factor * 2**-7)
        pattern = bytes(block)
    size = type.num_bytes(num_elements)
    return (pattern * (size // len(pattern) + 1))[:size]


def random_floats(count: int) -> list[float]:
    """Around zero, with a spread of a tenth; a pattern that repeats."""
    generator = random.Random(1)  # noqa: S311 - made-up numbers
    pattern = [generator.gauss(0.0, 0.1) for _ in range(min(count, 4099))]
    return (pattern * (count // max(1, len(pattern)) + 1))[:count]


def _program(
    product: Product, weights: _native.Weights, ids: Sequence[int]
) -> tuple[_native.Program, View]:
    """The products, all of one input into one output; and where the input lies."""
    num_tokens = product.num_tokens
    rounding = product.rounding or _native.Rounding.INT8
    widths = [product.cols, _native.rounded_row_floats(rounding, product.cols), product.rows]
    strides = [-(-width // _ALIGNMENT) * _ALIGNMENT for width in widths]
    starts = [0, num_tokens * strides[0], num_tokens * (strides[0] + strides[1])]
    x, x_rounded, out = (View(*one) for one in zip(starts, strides, widths, strict=True))
    program = _native.Program(weights, num_tokens * sum(strides), num_tokens, 1, rounding)
    if product.rounding is not None:
        program.round_rows(Rows.TOKENS, True, x, x_rounded)
    for matrix in ids:
        if product.rounding is not None:
            program.linear(Rows.TOKENS, True, matrix, None, x_rounded, out)
        else:
            program.linear(Rows.TOKENS, True, matrix, x, None, out)
    return program, x


def _forward(
    program: _native.Program,
    kernels: _native.Kernels,
    threads: _native.ThreadPool,
    num_tokens: int,
) -> tuple[_native.Forward, _native.RowTuple]:
    num_blocks = -(-num_tokens // _BLOCK)
    pool = _native.KvPool(WeightType.BF16, num_blocks, _BLOCK, [(1, 8)])
    forward = _native.Forward(
        program, kernels, threads, pool, max_rows=1, max_len=num_blocks * _BLOCK
    )
    return forward, (0, num_tokens, 0, list(range(num_blocks)))
