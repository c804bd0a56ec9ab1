"""From a placed recording to a program of the extension.

Owns the one place that calls the methods of `_native.Program`.
"""

from __future__ import annotations

from octavo._native import Program, Rows, View, Weights
from octavo.backends.native.operations import (
    Activate,
    Add,
    Angles,
    Attend,
    Embed,
    EmbedPositions,
    EmbedSegments,
    Gate,
    Kind,
    LayerNorm,
    Norm,
    Product,
    ProductInt8,
    Quantise,
    Reorder,
    Rotate,
    Scale,
    SoftCap,
    TakeMeans,
    TakeWanted,
    whole,
)
from octavo.backends.native.placement import Placement
from octavo.ops.ops import AttentionSpec


def build_program(placement: Placement, weights: Weights) -> Program:
    """A program for steps of the size that the placement was made for."""
    size = placement.size
    program = Program(weights, placement.arena_floats, size.max_tokens, size.wanted_rows)
    recording = placement.recording
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
        program, rows, barrier = self._program, self._rows, self._barrier
        match kind:
            case Embed() | EmbedPositions() | EmbedSegments() | Angles():
                self._append_source(kind, output)
            case Product() | Quantise() | ProductInt8() | Reorder():
                self._append_product(kind, inputs, output)
            case Norm(vector, eps):
                program.norm(rows, barrier, vector, eps, inputs[0], output)
            case LayerNorm(weight, bias, eps):
                program.layer_norm(
                    rows, barrier, _or_none(weight), _or_none(bias), eps, inputs[0], output
                )
            case Rotate(head_dim):
                program.rotary(rows, barrier, inputs[0], inputs[1], head_dim, output)
            case Attend(spec):
                self._append_attention(spec, inputs, output)
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
            case TakeWanted() | TakeMeans():
                program.wanted_rows(rows, barrier, inputs[0], output)

    def _append_source(
        self, kind: Embed | EmbedPositions | EmbedSegments | Angles, output: View
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
            case Angles(table):
                factor = table.attention_factor
                program.rope_table(rows, barrier, table.inv_freq, factor, output)

    def _append_product(
        self, kind: Product | Quantise | ProductInt8 | Reorder, inputs: list[View], output: View
    ) -> None:
        program, rows, barrier = self._program, self._rows, self._barrier
        match kind:
            case Product(matrix):
                program.linear(rows, barrier, matrix, inputs[0], None, output)
            case Quantise():
                program.quantise(rows, barrier, inputs[0], output)
            case Reorder(order):
                program.reorder(rows, barrier, order, inputs[0], output)
            case ProductInt8(matrix):
                x = inputs[1] if len(inputs) > 1 else None
                program.linear(rows, barrier, matrix, x, inputs[0], output)

    def _append_attention(self, spec: AttentionSpec, inputs: list[View], output: View) -> None:
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
            is_causal=spec.is_causal,
            q=q,
            k=k,
            v=v,
            out=output,
        )


def _or_none(vector: int | None) -> int:
    """How the extension calls no vector."""
    return -1 if vector is None else vector
