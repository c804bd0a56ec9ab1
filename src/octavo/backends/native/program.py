"""From a placed recording to a program of the extension.

Owns the one place that calls the methods of `_native.Program`.
"""

from __future__ import annotations

from octavo._native import Program, Rows, Scoring, View, Weights
from octavo.backends.native.operations import (
    Activate,
    Add,
    Angles,
    Attend,
    ByElement,
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
    PositionFactors,
    Product,
    Reorder,
    Rotate,
    RoundedProduct,
    RoundRows,
    Route,
    Scale,
    SoftCap,
    TakeMeans,
    TakeWanted,
    whole,
)
from octavo.backends.native.placement import Placement
from octavo.ops.ops import AttentionSpec

_SCORINGS = {
    "softmax": Scoring.SOFTMAX,
    "softmax_chosen": Scoring.SOFTMAX_CHOSEN,
    "sigmoid": Scoring.SIGMOID,
    "score": Scoring.SCORE,
    "sparse_mixer": Scoring.SPARSE_MIXER,
}


def build_program(placement: Placement, weights: Weights) -> Program:
    """A program for steps of the size that the placement was made for."""
    size = placement.size
    recording = placement.recording
    program = Program(
        weights, placement.arena_floats, size.max_tokens, size.wanted_rows, recording.rounding
    )
    for operation, barrier in zip(recording.operations, placement.barriers, strict=True):
        inputs = [placement.view(buffer) for buffer in operation.inputs]
        output = placement.view(whole(operation.output))
        _Appender(program, operation.output.rows, barrier).append(operation.kind, inputs, output)
    if recording.result.value.rows is Rows.WANTED:
        program.set_logits(placement.view(recording.result))
    return program


def attention_layers(placement: Placement) -> list[AttentionSpec]:
    """The attention layers by their index; of those that share one the last."""
    specs = {
        operation.kind.spec.layer: operation.kind.spec
        for operation in placement.recording.operations
        if isinstance(operation.kind, Attend)
    }
    assert sorted(specs) == list(range(len(specs))), "layers must be 0, 1, 2, ..."
    return [specs[layer] for layer in sorted(specs)]


class _Appender:
    """Adds one operation to a program."""

    def __init__(self, program: Program, rows: Rows, barrier: bool) -> None:
        self._program, self._rows, self._barrier = program, rows, barrier

    def append(self, kind: Kind, inputs: list[View], output: View) -> None:
        match kind:
            case Embed() | EmbedPositions() | EmbedSegments() | Angles() | PositionFactors():
                self._append_source(kind, output)
            case Product() | RoundRows() | RoundedProduct() | HeadProducts() | Reorder():
                self._append_product(kind, inputs, output)
            case Norm() | LayerNorm():
                self._append_norm(kind, inputs[0], output)
            case Attend():
                self._append_attention(kind, inputs, output)
            case Route():
                self._append_route(kind, inputs[0], output)
            case Mix():
                self._append_mix(kind, inputs, output)
            case Rotate() | JoinHeads():
                self._append_heads(kind, inputs, output)
            case _:
                self._append_by_element(kind, inputs, output)

    def _append_by_element(self, kind: ByElement, inputs: list[View], output: View) -> None:
        """What works on elements or rows as they are."""
        program, rows, barrier = self._program, self._rows, self._barrier
        match kind:
            case Gate(activation):
                program.gated(rows, barrier, activation, inputs[0], output)
            case Activate(activation):
                program.activation(rows, barrier, activation, inputs[0], output)
            case Add():
                program.add(rows, barrier, inputs[0], inputs[1], output)
            case Scale(factor):
                program.scale(rows, barrier, factor, inputs[0], output)
            case SoftCap(cap):
                program.soft_cap(rows, barrier, cap, inputs[0], output)
            case MultiplyRows():
                program.multiply_rows(rows, barrier, inputs[0], inputs[1], output)
            case TakeWanted() | TakeMeans():
                program.wanted_rows(rows, barrier, inputs[0], output)

    def _append_heads(self, kind: Rotate | JoinHeads, inputs: list[View], output: View) -> None:
        program, rows, barrier = self._program, self._rows, self._barrier
        match kind:
            case Rotate(head_dim):
                program.rotary(rows, barrier, inputs[0], inputs[1], head_dim, output)
            case JoinHeads(num_heads, widths, are_shared):
                heads = [1 if is_shared else num_heads for is_shared in are_shared]
                pieces = list(zip(inputs, heads, widths, strict=True))
                program.join_heads(rows, barrier, num_heads, pieces, output)

    def _append_norm(self, kind: Norm | LayerNorm, x: View, output: View) -> None:
        program, rows, barrier = self._program, self._rows, self._barrier
        match kind:
            case Norm(vector, eps):
                program.norm(rows, barrier, vector, eps, x, output)
            case LayerNorm(weight, bias, eps):
                program.layer_norm(rows, barrier, _or_none(weight), _or_none(bias), eps, x, output)

    def _append_source(
        self,
        kind: Embed | EmbedPositions | EmbedSegments | Angles | PositionFactors,
        output: View,
    ) -> None:
        """What a token's id, position or segment gives, without inputs."""
        program, rows, barrier = self._program, self._rows, self._barrier
        match kind:
            case Embed(matrix, scale):
                program.embed(rows, barrier, matrix, scale, output)
            case EmbedPositions(matrix):
                program.embed_positions(rows, barrier, matrix, output)
            case EmbedSegments(matrix):
                program.embed_segments(rows, barrier, matrix, output)
            case PositionFactors(period, weight):
                program.position_factors(rows, barrier, period, weight, output)
            case Angles(table):
                factor = table.attention_factor
                program.rope_table(rows, barrier, table.inv_freq, factor, output)

    def _append_product(
        self,
        kind: Product | RoundRows | RoundedProduct | HeadProducts | Reorder,
        inputs: list[View],
        output: View,
    ) -> None:
        program, rows, barrier = self._program, self._rows, self._barrier
        match kind:
            case Product(matrix):
                program.linear(rows, barrier, matrix, inputs[0], None, output)
            case HeadProducts(matrices):
                program.head_products(rows, barrier, matrices, inputs[0], output)
            case RoundRows():
                program.round_rows(rows, barrier, inputs[0], output)
            case Reorder(order):
                program.reorder(rows, barrier, order, inputs[0], output)
            case RoundedProduct(matrix):
                x = inputs[1] if len(inputs) > 1 else None
                program.linear(rows, barrier, matrix, x, inputs[0], output)

    def _append_route(self, kind: Route, scores: View, output: View) -> None:
        spec = kind.spec
        self._program.route(
            self._rows,
            self._barrier,
            num_experts=spec.num_experts,
            num_chosen=spec.num_chosen,
            scoring=_SCORINGS[spec.scoring],
            normalises=spec.normalises,
            scale=spec.scale,
            num_groups=spec.num_groups,
            num_chosen_groups=spec.num_chosen_groups,
            group_best=spec.group_best,
            tolerance=spec.tolerance,
            correction=_or_none(kind.correction),
            scores=scores,
            out=output,
        )

    def _append_mix(self, kind: Mix, inputs: list[View], output: View) -> None:
        routing, *xs = inputs
        self._program.experts(
            self._rows,
            self._barrier,
            gate_up=kind.gate_up,
            down=kind.down,
            activation=kind.activation,
            is_weighted=kind.is_weighted,
            inner_rounded=kind.inner_rounded,
            x=xs[-1] if kind.takes_float else None,
            x_rounded=xs[0] if kind.takes_rounded else None,
            routing=routing,
            out=output,
        )

    def _append_attention(self, kind: Attend, inputs: list[View], output: View) -> None:
        spec = kind.spec
        q, k, v = inputs
        self._program.attention(
            self._rows,
            self._barrier,
            layer=spec.layer,
            num_heads=spec.num_heads,
            num_kv_heads=spec.num_kv_heads,
            head_dim=spec.head_dim,
            scale=spec.scale,
            window=spec.window or 0,
            soft_cap=spec.soft_cap or 0.0,
            is_chunked=spec.is_chunked,
            is_causal=spec.is_causal,
            sinks=_or_none(kind.sinks),
            slopes=spec.slopes,
            q=q,
            k=k,
            v=v,
            out=output,
        )


def _or_none(vector: int | None) -> int:
    """How the extension calls no vector."""
    return -1 if vector is None else vector
