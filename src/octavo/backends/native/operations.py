"""What a recorded program is made of: values, buffers of them, and operations.

A *value* is the result of one operation and is never changed (static single assignment); a
*buffer* is some columns of a value, which is what a model hands around. Where values lie in memory
is decided later, in `placement.py`. Nothing here touches numbers, or the extension beyond its
enumerations.
"""

from __future__ import annotations

from dataclasses import dataclass

from octavo._native import Activation, Rows
from octavo.ops.ops import AttentionSpec, RouterSpec
from octavo.ops.rope import RopeTable


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """[rows, width] of float32, one row for each token or for each wanted row of the step."""

    rows: Rows
    width: int
    contiguous: bool = False  # rows follow one another without padding


@dataclass(frozen=True, slots=True)
class Buffer:
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


@dataclass(frozen=True, slots=True)
class Embed:
    """Rows of a table by token id."""

    matrix: int  # id in _native.Weights, as everywhere below
    scale: float


@dataclass(frozen=True, slots=True)
class EmbedPositions:
    """Rows of a table by position."""

    matrix: int


@dataclass(frozen=True, slots=True)
class EmbedSegments:
    """Rows of a table by segment."""

    matrix: int


@dataclass(frozen=True, slots=True)
class Product:
    """`linear`: (x) times the transpose of a matrix."""

    matrix: int


@dataclass(frozen=True, slots=True)
class HeadProducts:
    """`linear_heads` of (x)."""

    matrices: tuple[int, ...]  # of each head


@dataclass(frozen=True, slots=True)
class JoinHeads:
    """`join_heads` of the parts, in order."""

    num_heads: int
    widths: tuple[int, ...]  # of each part, as what follows
    are_shared: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Quantise:
    """(x) as int8 with a scale for each 32 columns; the result is bytes in the place of floats."""


@dataclass(frozen=True, slots=True)
class ProductInt8:
    """`linear` of (x as int8), or (x as int8, x) where parts of the matrix are not quantised."""

    matrix: int


@dataclass(frozen=True, slots=True)
class Norm:
    """Root mean square norm of (x), in groups of the weight's size."""

    vector: int
    eps: float


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Layer norm of (x), with weight and bias where they are given."""

    weight: int | None
    bias: int | None
    eps: float


@dataclass(frozen=True, slots=True)
class Angles:
    """Cosines and sines of every token's position."""

    table: RopeTable


@dataclass(frozen=True, slots=True)
class PositionFactors:
    """A factor for every token's position."""

    period: float
    weight: float


@dataclass(frozen=True, slots=True)
class Rotate:
    """Rotary embedding of (x, angles)."""

    head_dim: int


@dataclass(frozen=True, slots=True)
class Attend:
    """KV write and attention of (q, k, v)."""

    spec: AttentionSpec
    sinks: int | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """act(first half) * second half of (x)."""

    activation: Activation


@dataclass(frozen=True, slots=True)
class Activate:
    """act(x)."""

    activation: Activation


@dataclass(frozen=True, slots=True)
class Add:
    """a + b of (a, b)."""


@dataclass(frozen=True, slots=True)
class Scale:
    """(x) * factor."""

    factor: float


@dataclass(frozen=True, slots=True)
class SoftCap:
    """cap * tanh(x / cap) of (x)."""

    cap: float


@dataclass(frozen=True, slots=True)
class MultiplyRows:
    """Rows of (x, factors), each times its factor."""


@dataclass(frozen=True, slots=True)
class Route:
    """Experts and weights of (scores)."""

    spec: RouterSpec
    correction: int | None


@dataclass(frozen=True, slots=True)
class Mix:
    """`experts` of (routing, x); with `takes_int8` (routing, x as int8), with both flags all three.

    `inner_int8`: what the second product of an expert reads is rounded to int8.
    """

    gate_up: tuple[int, ...]  # matrix of each expert
    down: tuple[int, ...]
    activation: Activation
    is_weighted: bool
    takes_float: bool = True
    takes_int8: bool = False
    inner_int8: bool = False


@dataclass(frozen=True, slots=True)
class Reorder:
    """The columns of (x) in another order."""

    order: int  # id in _native.Weights


@dataclass(frozen=True, slots=True)
class TakeWanted:
    """The wanted rows of (x), whose rows are tokens."""


@dataclass(frozen=True, slots=True)
class TakeMeans:
    """The means of the rows of (x) that wanted rows stand for."""


ByElement = Gate | Activate | Add | Scale | SoftCap | MultiplyRows | TakeWanted | TakeMeans
Kind = (
    Embed
    | EmbedPositions
    | EmbedSegments
    | Product
    | HeadProducts
    | JoinHeads
    | Quantise
    | ProductInt8
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
    Quantise,
    ProductInt8,
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


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One step of a program. The docstring of a kind names its inputs in order."""

    kind: Kind
    inputs: tuple[Buffer, ...]
    output: Value


@dataclass(frozen=True, slots=True)
class Recording:
    """A forward pass, written down: those over tokens come before those over wanted rows."""

    operations: tuple[Operation, ...]
    result: Buffer  # the logits of the wanted rows
