"""Recorder: the op set that writes down what a model does instead of doing it.

Owns the translation of ops into operations. Does not know memory, threads or weights beyond their
ids. A model's `forward` is run once with it; see `record`.
"""

from __future__ import annotations

from octavo._native import Activation as NativeActivation
from octavo._native import Rows
from octavo.backends.native.operations import (
    Activate,
    Add,
    Angles,
    Attend,
    Buffer,
    Embed,
    EmbedPositions,
    EmbedSegments,
    Gate,
    HeadProducts,
    JoinHeads,
    Kind,
    LayerNorm,
    Mix,
    MultiplyRows,
    Norm,
    Operation,
    PositionFactors,
    Product,
    Recording,
    Reorder,
    Rotate,
    Route,
    Scale,
    SoftCap,
    TakeMeans,
    TakeWanted,
    Value,
    whole,
)
from octavo.backends.native.without_states import WithoutStates
from octavo.models.base import CausalLM
from octavo.ops.ops import Activation, AttentionSpec, GateActivation, HeadPart, RouterSpec
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Embedding, Experts, Linear, Vector

_ACTIVATIONS: dict[GateActivation, NativeActivation] = {
    "silu": NativeActivation.SILU,
    "gelu_tanh": NativeActivation.GELU_TANH,
    "gelu": NativeActivation.GELU,
    "relu": NativeActivation.RELU,
    "relu2": NativeActivation.SQUARED_RELU,
    "tanh": NativeActivation.TANH,
    "hardtanh": NativeActivation.HARDTANH,
    "sigmoid": NativeActivation.SIGMOID,
    "clamped_swiglu": NativeActivation.CLAMPED_SWIGLU,
}


def record(model: CausalLM) -> Recording:
    """The operations of one forward pass of `model`."""
    recorder = Recorder()
    result = model.forward(recorder)
    return recorder.finish(result)


class Recorder(WithoutStates[Buffer]):
    """`Ops[Buffer]`."""

    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._angles: dict[RopeTable, Buffer] = {}

    def finish(self, result: Buffer) -> Recording:
        """Everything recorded so far, operations over tokens first."""
        # Nothing over tokens can depend on wanted rows, and angles depend on nothing: at the front
        # they need no barrier. The sort is stable.
        return Recording(tuple(sorted(self._operations, key=_phase)), result)

    def embed(self, table: Embedding, *, scale: float = 1.0) -> Buffer:
        """See `ops.ops.Ops`."""
        return self._append(Embed(_id(table), scale), (), Rows.TOKENS, table.hidden_size)

    def embed_positions(self, table: Embedding) -> Buffer:
        """See `ops.ops.Ops`."""
        return self._append(EmbedPositions(_id(table)), (), Rows.TOKENS, table.hidden_size)

    def embed_segments(self, table: Embedding) -> Buffer:
        """See `ops.ops.Ops`."""
        return self._append(EmbedSegments(_id(table)), (), Rows.TOKENS, table.hidden_size)

    def linear(self, x: Buffer, weight: Linear) -> Buffer:
        """See `ops.ops.Ops`."""
        assert x.width == weight.in_features, (x.width, weight)
        if weight.order is not None:
            assert isinstance(weight.order, int), weight
            x = self._alike(Reorder(weight.order), x)
        return self._append(Product(_id(weight)), (x,), x.value.rows, weight.out_features)

    def linear_heads(self, x: Buffer, heads: tuple[Linear, ...]) -> Buffer:
        """See `ops.ops.Ops`."""
        width = sum(weight.out_features for weight in heads)
        return self._append(HeadProducts(tuple(map(_id, heads))), (x,), x.value.rows, width)

    def join_heads(self, parts: tuple[HeadPart[Buffer], ...], num_heads: int) -> Buffer:
        """See `ops.ops.Ops`."""
        kind = JoinHeads(
            num_heads,
            tuple(part.width for part in parts),
            tuple(part.is_shared for part in parts),
        )
        inputs = tuple(part.x for part in parts)
        return self._append(kind, inputs, inputs[0].value.rows, num_heads * sum(kind.widths))

    def split(self, x: Buffer, widths: tuple[int, ...]) -> tuple[Buffer, ...]:
        """See `ops.ops.Ops`."""
        assert sum(widths) == x.width, (widths, x.width)
        parts, column = [], x.column
        for width in widths:
            parts.append(Buffer(x.value, column, width))
            column += width
        return tuple(parts)

    def rms_norm(self, x: Buffer, weight: Vector, eps: float) -> Buffer:
        """See `ops.ops.Ops`."""
        assert x.width == weight.size, (x.width, weight)
        return self._alike(Norm(_id(weight), eps), x)

    def layer_norm(
        self, x: Buffer, weight: Vector | None, bias: Vector | None, eps: float
    ) -> Buffer:
        """See `ops.ops.Ops`."""
        assert all(x.width == vector.size for vector in (weight, bias) if vector is not None)
        return self._alike(LayerNorm(_optional_id(weight), _optional_id(bias), eps), x)

    def head_norm(self, x: Buffer, weight: Vector, eps: float) -> Buffer:
        """See `ops.ops.Ops`."""
        assert x.width % weight.size == 0, (x.width, weight)
        return self._alike(Norm(_id(weight), eps), x)

    def position_factors(self, period: float, weight: float) -> Buffer:
        """See `ops.ops.Ops`."""
        return self._append(PositionFactors(period, weight), (), Rows.TOKENS, 1)

    def rotary(self, x: Buffer, table: RopeTable, head_dim: int) -> Buffer:
        """See `ops.ops.Ops`. The angles of a table are computed once in a step."""
        angles = self._angles.get(table)
        if angles is None:
            value = Value(Rows.TOKENS, table.rotary_dim, contiguous=True)
            self._operations.append(Operation(Angles(table), (), value))
            angles = self._angles[table] = whole(value)
        return self._alike(Rotate(head_dim), x, angles)

    def attention(
        self, q: Buffer, k: Buffer, v: Buffer, spec: AttentionSpec, sinks: Vector | None = None
    ) -> Buffer:
        """See `ops.ops.Ops`."""
        kind = Attend(spec, _optional_id(sinks))
        return self._append(kind, (q, k, v), q.value.rows, q.width)

    def gated(self, x: Buffer, activation: GateActivation) -> Buffer:
        """See `ops.ops.Ops`."""
        assert x.width % 2 == 0, x.width
        kind = Gate(_ACTIVATIONS[activation])
        return self._append(kind, (x,), x.value.rows, x.width // 2)

    def activation(self, x: Buffer, activation: Activation) -> Buffer:
        """See `ops.ops.Ops`."""
        return self._alike(Activate(_ACTIVATIONS[activation]), x)

    def add(self, a: Buffer, b: Buffer) -> Buffer:
        """See `ops.ops.Ops`."""
        assert (a.value.rows, a.width) == (b.value.rows, b.width), (a, b)
        return self._alike(Add(), a, b)

    def scale(self, x: Buffer, factor: float) -> Buffer:
        """See `ops.ops.Ops`."""
        return self._alike(Scale(factor), x)

    def multiply_rows(self, x: Buffer, factors: Buffer) -> Buffer:
        """See `ops.ops.Ops`."""
        assert (x.value.rows, factors.width) == (factors.value.rows, 1), (x, factors)
        return self._alike(MultiplyRows(), x, factors)

    def route(self, scores: Buffer, spec: RouterSpec, correction: Vector | None = None) -> Buffer:
        """See `ops.ops.Ops`."""
        assert scores.width == spec.num_experts, (scores, spec)
        kind = Route(spec, _optional_id(correction))
        return self._append(kind, (scores,), scores.value.rows, 2 * spec.num_chosen)

    def experts(
        self, x: Buffer, routing: Buffer, experts: Experts, activation: GateActivation
    ) -> Buffer:
        """See `ops.ops.Ops`."""
        assert experts.is_gated, "plain experts come with states, which are refused before"
        kind = Mix(
            tuple(map(_id, experts.gate_up)),
            tuple(map(_id, experts.down)),
            _ACTIVATIONS[activation],
            experts.is_weighted,
        )
        return self._append(kind, (routing, x), x.value.rows, x.width)

    def wanted_rows(self, x: Buffer) -> Buffer:
        """See `ops.ops.Ops`."""
        assert x.value.rows is Rows.TOKENS, x
        return self._append(TakeWanted(), (x,), Rows.WANTED, x.width)

    def mean_rows(self, x: Buffer) -> Buffer:
        """See `ops.ops.Ops`."""
        assert x.value.rows is Rows.TOKENS, x
        return self._append(TakeMeans(), (x,), Rows.WANTED, x.width)

    def logits(
        self, x: Buffer, head: Linear, *, scale: float = 1.0, soft_cap: float | None = None
    ) -> Buffer:
        """See `ops.ops.Ops`."""
        scores = self.linear(x, head)
        if scale != 1.0:
            scores = self.scale(scores, scale)
        if soft_cap is not None:
            scores = self._alike(SoftCap(soft_cap), scores)
        return scores

    def _alike(self, kind: Kind, x: Buffer, *others: Buffer) -> Buffer:
        """An operation whose result has the shape of its first input."""
        return self._append(kind, (x, *others), x.value.rows, x.width)

    def _append(self, kind: Kind, inputs: tuple[Buffer, ...], rows: Rows, width: int) -> Buffer:
        output = Value(rows, width)
        self._operations.append(Operation(kind, inputs, output))
        return whole(output)


def _phase(operation: Operation) -> int:
    if operation.output.rows is Rows.WANTED:
        return 2
    return 0 if isinstance(operation.kind, Angles) else 1


def _optional_id(vector: Vector | None) -> int | None:
    return None if vector is None else _id(vector)


def _id(weight: Embedding | Linear | Vector) -> int:
    assert isinstance(weight.handle, int), "weights of another back end"
    return weight.handle
