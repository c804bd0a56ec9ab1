"""Rewrites of recordings keep the result and make it cheaper."""

from __future__ import annotations

from hypothesis import given, settings

from octavo._native import Rounding, Rows
from octavo.backends.native.operations import (
    Attend,
    Recording,
    RoundedInputs,
    RoundedProduct,
    RoundRows,
    TakeWanted,
    Value,
)
from octavo.backends.native.passes import optimise, round_inputs, take_wanted_early
from octavo.backends.native.recorder import Recorder
from octavo.ops.ops import AttentionSpec
from octavo.ops.weights import Embedding, Linear, Vector
from tests.native.recordings import recordings
from tests.support.toy_machine import ToyStep, evaluate

WIDTH = 8
WIDE = 32  # columns that can be quantised


def names(recording: Recording, rows: Rows) -> list[str]:
    return [
        type(operation.kind).__name__
        for operation in recording.operations
        if operation.output.rows is rows
    ]


def linear(out_features: int) -> Linear:
    return Linear(out_features, WIDTH, (out_features,), 1)


def wide_linear(matrix: int) -> Linear:
    return Linear(WIDE, WIDE, (WIDE,), matrix)


@settings(max_examples=200, deadline=None)
@given(recordings())
def test_an_optimised_recording_computes_the_same(
    case: tuple[Recording, tuple[Value, ...]],
) -> None:
    """Whatever was recorded, and whichever rows are wanted."""
    recording, given_values = case
    tables = {
        value: [[100 * row + column for column in range(value.width)] for row in range(5)]
        for value in given_values
    }
    optimised = optimise(recording)
    for wanted in [(), (4,), (0, 2, 3), (0, 1, 2, 3, 4)]:
        step = ToyStep(num_tokens=5, wanted=wanted, slice_rows=2)

        assert evaluate(recording, step, tables) == evaluate(optimised, step, tables)


def test_the_last_layer_after_its_attention_runs_on_wanted_rows_only() -> None:
    """Nobody needs it for other tokens: their keys and values are stored already."""
    ops = Recorder()
    x = ops.embed(Embedding(10, WIDTH, 0))
    attended = ops.attention(x, x, x, AttentionSpec(0, 1, 1, WIDTH, 1.0))
    x = ops.add(x, ops.linear(attended, linear(WIDTH)))
    x = ops.add(x, ops.linear(ops.rms_norm(x, Vector(WIDTH, 0), 1e-5), linear(WIDTH)))
    recording = ops.finish(ops.logits(ops.wanted_rows(x), linear(10)))

    optimised = take_wanted_early(recording)

    assert ["Embed", "Attend"] == names(optimised, Rows.TOKENS)
    assert ["Product", "TakeWanted", "TakeWanted"] == sorted(names(optimised, Rows.WANTED))[-3:]
    assert 8 == len(names(optimised, Rows.WANTED))


def test_what_attention_needs_stays_on_all_tokens() -> None:
    """A value with one user that needs every row is not computed twice."""
    ops = Recorder()
    x = ops.rms_norm(ops.embed(Embedding(10, WIDTH, 0)), Vector(WIDTH, 0), 1e-5)
    attended = ops.attention(x, x, x, AttentionSpec(0, 1, 1, WIDTH, 1.0))
    recording = ops.finish(ops.wanted_rows(ops.add(x, attended)))

    optimised = take_wanted_early(recording)

    kinds = [type(operation.kind) for operation in optimised.operations]
    assert ["Embed", "Norm", "Attend"] == names(optimised, Rows.TOKENS)
    assert 1 == kinds.count(Attend)
    assert 2 == kinds.count(TakeWanted)


def test_products_of_one_input_share_its_int8_rows() -> None:
    """Quantised right before the first of them; other matrices read floats as before."""
    ops = Recorder()
    x = ops.embed(Embedding(10, WIDE, 0))
    total = ops.add(ops.linear(x, wide_linear(1)), ops.linear(x, wide_linear(2)))
    recording = ops.finish(ops.wanted_rows(ops.linear(total, wide_linear(3))))

    quantised = round_inputs(recording, RoundedInputs(Rounding.INT8, {1: False, 2: False}))

    assert ["Embed", "RoundRows", "RoundedProduct", "RoundedProduct", "Add", "Product"] == names(
        quantised, Rows.TOKENS
    )
    _, quantise, first, second = quantised.operations[:4]
    assert (x,) == quantise.inputs
    assert quantise.output is first.inputs[0].value is second.inputs[0].value


def test_a_matrix_of_mixed_types_reads_its_input_in_both_forms() -> None:
    """And the part of another value that a model cut out is quantised by itself."""
    ops = Recorder()
    left, right = ops.split(ops.embed(Embedding(10, 2 * WIDE, 0)), (WIDE, WIDE))
    recording = ops.finish(
        ops.wanted_rows(
            ops.add(ops.linear(left, wide_linear(1)), ops.linear(right, wide_linear(1)))
        )
    )

    quantised = round_inputs(recording, RoundedInputs(Rounding.INT8, {1: True}))

    products = [op for op in quantised.operations if isinstance(op.kind, RoundedProduct)]
    assert [left, right] == [product.inputs[1] for product in products]
    sources = [op.inputs for op in quantised.operations if isinstance(op.kind, RoundRows)]
    assert [(left,), (right,)] == sources
