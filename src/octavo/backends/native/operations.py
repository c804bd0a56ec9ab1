"""What a recorded program is made of: values, buffers of them, and operations.

A *value* is the result of one operation and is never changed (static single assignment); a
*buffer* is some columns of a value, which is what a model hands around. Where values lie in memory
is decided later, in `placement.py`. Nothing here touches numbers, or the extension beyond its
enumerations.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from octavo._native import Activation, Rounding, Rows
from octavo.ops.ops import AttentionSpec, RouterSpec
from octavo.ops.rope import RopeTable


class Value(msgspec.Struct, frozen=True, eq=False):
    """[rows, width] of float32, one row for each token or for each wanted row of the step."""

    rows: Rows
    width: int
    contiguous: bool = False  # rows follow one another without padding


class Buffer(msgspec.Struct, frozen=True):
    """Columns `column .. column + width - 1` of a value."""

    value: Value
    column: int
    width: int

    def overlaps(self, other: Buffer) -> bool:
        """Whether the two share columns of one value."""
        return (
            self.value is other.value
            and self.column < other.column + other.width
            and other.column < self.column + self.width
        )


def whole(value: Value) -> Buffer:
    """All columns of a value."""
    return Buffer(value, 0, value.width)


class Embed(msgspec.Struct, frozen=True):
    """Rows of a table by token id."""

    matrix: int  # id in _native.Weights, as everywhere below
    scale: float


class EmbedPositions(msgspec.Struct, frozen=True):
    """Rows of a table by position."""

    matrix: int


class EmbedSegments(msgspec.Struct, frozen=True):
    """Rows of a table by segment."""

    matrix: int


class Product(msgspec.Struct, frozen=True):
    """`linear`: (x) times the transpose of a matrix."""

    matrix: int


class HeadProducts(msgspec.Struct, frozen=True):
    """`linear_heads` of (x)."""

    matrices: tuple[int, ...]  # of each head


class JoinHeads(msgspec.Struct, frozen=True):
    """`join_heads` of the parts, in order."""

    num_heads: int
    widths: tuple[int, ...]  # of each part, as what follows
    are_shared: tuple[bool, ...]


class RoundRows(msgspec.Struct, frozen=True):
    """(x) rounded, as the recording says; the result is bytes in the place of floats."""


class RoundedProduct(msgspec.Struct, frozen=True):
    """`linear` of (x rounded), or (x rounded, x) where parts of the matrix need x itself."""

    matrix: int


class Norm(msgspec.Struct, frozen=True):
    """Root mean square norm of (x), in groups of the weight's size."""

    vector: int
    eps: float


class LayerNorm(msgspec.Struct, frozen=True):
    """Layer norm of (x), with weight and bias where they are given."""

    weight: int | None
    bias: int | None
    eps: float


class Angles(msgspec.Struct, frozen=True):
    """Cosines and sines of every token's position."""

    table: RopeTable


class PositionFactors(msgspec.Struct, frozen=True):
    """A factor for every token's position."""

    period: float
    weight: float


class Rotate(msgspec.Struct, frozen=True):
    """Rotary embedding of (x, angles)."""

    head_dim: int


class Attend(msgspec.Struct, frozen=True):
    """KV write and attention of (q, k, v)."""

    spec: AttentionSpec
    sinks: int | None = None


class Gate(msgspec.Struct, frozen=True):
    """act(first half) * second half of (x)."""

    activation: Activation


class Activate(msgspec.Struct, frozen=True):
    """act(x)."""

    activation: Activation


class Add(msgspec.Struct, frozen=True):
    """a + b of (a, b)."""


class Scale(msgspec.Struct, frozen=True):
    """(x) * factor."""

    factor: float


class SoftCap(msgspec.Struct, frozen=True):
    """cap * tanh(x / cap) of (x)."""

    cap: float


class MultiplyRows(msgspec.Struct, frozen=True):
    """Rows of (x, factors), each times its factor."""


class Route(msgspec.Struct, frozen=True):
    """Experts and weights of (scores)."""

    spec: RouterSpec
    correction: int | None


class Mix(msgspec.Struct, frozen=True):
    """`experts` of (routing, x); with `takes_rounded` (routing, x rounded), with both all three.

    `inner_rounded`: what the second product of an expert reads is rounded.
    """

    gate_up: tuple[int, ...]  # matrix of each expert
    down: tuple[int, ...]
    activation: Activation
    is_weighted: bool
    takes_float: bool = True
    takes_rounded: bool = False
    inner_rounded: bool = False


class Reorder(msgspec.Struct, frozen=True):
    """The columns of (x) in another order."""

    order: int  # id in _native.Weights


class TakeWanted(msgspec.Struct, frozen=True):
    """The wanted rows of (x), whose rows are tokens."""


class TakeMeans(msgspec.Struct, frozen=True):
    """The means of the rows of (x) that wanted rows stand for."""


ByElement = Gate | Activate | Add | Scale | SoftCap | MultiplyRows | TakeWanted | TakeMeans
Kind = (
    Embed
    | EmbedPositions
    | EmbedSegments
    | Product
    | HeadProducts
    | JoinHeads
    | RoundRows
    | RoundedProduct
    | Norm
    | LayerNorm
    | Angles
    | PositionFactors
    | Rotate
    | Attend
    | Route
    | Mix
    | Reorder
    | ByElement
)

# From rows of tokens to wanted rows.
TAKES = (TakeWanted, TakeMeans)

# May write its result over its first input: each element depends on elements at the same place, or
# (Rotate) is read before it is written.
IN_PLACE = (Rotate, Activate, Add, Scale, SoftCap, MultiplyRows)
# A row of the result needs the same row of the inputs and nothing else about that row.
ROW_ALONE = (
    Product,
    HeadProducts,
    JoinHeads,
    RoundRows,
    RoundedProduct,
    Norm,
    LayerNorm,
    Gate,
    Activate,
    Add,
    Scale,
    SoftCap,
    MultiplyRows,
    Route,
    Mix,
    Reorder,
)


class Operation(msgspec.Struct, frozen=True, eq=False):
    """One step of a program. The docstring of a kind names its inputs in order."""

    kind: Kind
    inputs: tuple[Buffer, ...]
    output: Value


class RoundedInputs(msgspec.Struct, frozen=True):
    """Which matrices multiply rounded activations."""

    rounding: Rounding
    matrices: Mapping[int, bool]  # id -> whether parts of it need the activations themselves


EXACT_INPUTS = RoundedInputs(Rounding.INT8, {})


class Recording(msgspec.Struct, frozen=True):
    """A forward pass, written down: those over tokens come before those over wanted rows."""

    operations: tuple[Operation, ...]
    result: Buffer  # the logits of the wanted rows
    rounding: Rounding = Rounding.INT8  # of rows that are rounded
