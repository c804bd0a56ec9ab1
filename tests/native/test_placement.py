"""Where values lie and where threads meet: the arena is small and nobody disturbs anybody."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo._native import Rounding, Rows
from octavo.backends.native.operations import (
    Add,
    Buffer,
    Mix,
    Operation,
    Product,
    Recording,
    RoundedInputs,
    Value,
    whole,
)
from octavo.backends.native.passes import optimise, round_inputs
from octavo.backends.native.placement import Placement, StepSize, place
from octavo.backends.native.recorder import Recorder
from octavo.ops.ops import AttentionSpec
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Embedding, Linear, Vector
from tests.native.recordings import recordings
from tests.support.toy_machine import ToyMachine, ToyStep, evaluate

SIZE = StepSize(max_tokens=6, wanted_rows=2)
WIDTH = 32
ROPE = RopeTable(4, (1.0, 0.5))


def table(value: Value, num_rows: int) -> list[list[int]]:
    return [[1000 * row + column for column in range(value.width)] for row in range(num_rows)]


@st.composite
def steps(draw: st.DrawFn) -> ToyStep:
    num_tokens = draw(st.integers(1, SIZE.max_tokens))
    wanted = draw(st.lists(st.integers(0, num_tokens - 1), unique=True, max_size=5).map(sorted))
    return ToyStep(num_tokens, tuple(wanted), SIZE.wanted_rows)


@settings(max_examples=300, deadline=None)
@given(recordings(), steps(), st.integers(1, 3), st.randoms(use_true_random=False))
def test_threads_in_any_order_between_barriers_compute_what_the_recording_says(
    case: tuple[Recording, tuple[Value, ...]],
    step: ToyStep,
    num_threads: int,
    chance: random.Random,
) -> None:
    """Memory is reused and results are written in place, but never while somebody needs the old."""
    recording, given_values = case
    tables = {value: table(value, step.num_tokens) for value in given_values}

    def shuffled(barrier: int) -> Sequence[int]:
        return chance.sample(range(num_threads), num_threads)

    optimised = optimise(recording)
    for version in (recording, optimised, with_int8(optimised)):
        placement = place(version, SIZE, inputs=given_values)
        machine = ToyMachine(placement, step, num_threads, shuffled)

        assert evaluate(version, step, tables) == machine.run(tables)


def with_int8(recording: Recording) -> Recording:
    """Int8 inputs wherever a width allows it; every second matrix is of mixed types."""
    matrices = [
        matrix
        for operation in recording.operations
        if operation.inputs and operation.inputs[-1].width == 32
        for matrix in matrices_of(operation)
    ]
    is_mixed = {matrix: matrix % 2 == 0 for matrix in matrices}
    return round_inputs(recording, RoundedInputs(Rounding.INT8, is_mixed))


def matrices_of(operation: Operation) -> list[int]:
    """Those that multiply the last input of an operation."""
    match operation.kind:
        case Product(matrix):
            return [matrix]
        case Mix(gate_up):
            return list(gate_up)
        case _:
            return []


class LayerRecorder:
    """Records a decoder layer as real models have it."""

    def __init__(self, num_layers: int) -> None:
        self.ops = Recorder()
        x = self.ops.embed(Embedding(10, WIDTH, 0))
        for layer in range(num_layers):
            x = self._layer(x, layer)
        self.recording = self.ops.finish(self.ops.logits(self.ops.wanted_rows(x), linear(10)))

    def _layer(self, x, layer):  # type: ignore[no-untyped-def]
        ops = self.ops
        qkv = ops.linear(ops.rms_norm(x, Vector(WIDTH, 0), 1e-5), linear(3 * WIDTH))
        q, k, v = ops.split(qkv, (WIDTH, WIDTH, WIDTH))
        q, k = ops.rotary(q, ROPE, 4), ops.rotary(k, ROPE, 4)
        attended = ops.attention(q, k, v, AttentionSpec(layer, 8, 8, 4, 1.0))
        x = ops.add(x, ops.linear(attended, linear(WIDTH)))
        up = ops.linear(ops.rms_norm(x, Vector(WIDTH, 0), 1e-5), linear(4 * WIDTH))
        return ops.add(x, ops.linear(ops.gated(up, "silu"), linear(WIDTH, 2 * WIDTH)))


def linear(out_features: int, in_features: int = WIDTH) -> Linear:
    return Linear(out_features, in_features, (out_features,), 1)


def barriers_of(placement: Placement) -> list[tuple[str, bool]]:
    names = [type(operation.kind).__name__ for operation in placement.recording.operations]
    return list(zip(names, placement.barriers, strict=True))


def test_a_layer_has_a_barrier_only_where_data_crosses_threads() -> None:
    """Row by row operations follow one another without; attention brings its own two inside."""
    placement = place(LayerRecorder(1).recording, SIZE)

    assert [
        ("Angles", False),
        ("Embed", False),
        ("Norm", False),
        ("Product", True),  # reads all rows of the norm
        ("Rotate", True),  # reads columns of all threads
        ("Rotate", False),
        ("Attend", False),
        ("Product", True),
        ("Add", True),
        ("Norm", False),
        ("Product", True),
        ("Gate", True),
        ("Product", True),
        ("Add", True),
        ("TakeWanted", False),  # threads meet before each slice anyway
        ("Product", True),
    ] == barriers_of(placement)


def test_more_layers_need_no_more_memory() -> None:
    """The buffers of a layer are used again by the next."""
    two, nine = (place(LayerRecorder(count).recording, SIZE) for count in (2, 9))

    assert two.arena_floats == nine.arena_floats


def test_a_residual_sum_is_written_over_the_old_residual() -> None:
    """It is read for the last time there, so the stream through the layers stays in one place."""
    placement = place(LayerRecorder(3).recording, SIZE)
    sums = [op for op in placement.recording.operations if isinstance(op.kind, Add)]
    homes = {placement.places[op.output][0].offset for op in sums}

    assert 6 == len(sums)
    assert 1 == len(homes)


def test_a_sum_may_be_written_over_its_second_input() -> None:
    """Addition has no order, so either input can give up its place."""
    recorder = Recorder()
    kept = recorder.embed(Embedding(10, WIDTH, 0))
    dies = recorder.scale(kept, 2.0)
    total = recorder.add(kept, dies)
    recording = recorder.finish(recorder.wanted_rows(recorder.add(total, kept)))

    placement = place(recording, SIZE)

    assert placement.places[dies.value] == placement.places[total.value]
    assert placement.places[kept.value] != placement.places[total.value]


def test_a_result_is_not_written_over_columns_that_its_own_operation_still_reads() -> None:
    """Shifted columns of the same value: element i would be gone before it is read as i - 2."""
    recorder = Recorder()
    x = recorder.embed(Embedding(10, WIDTH, 0))
    total = recorder.add(Buffer(x.value, 0, 16), Buffer(x.value, 2, 16))
    placement = place(recorder.finish(recorder.wanted_rows(total)), SIZE)

    assert placement.places[x.value][0] is not placement.places[total.value][0]


@pytest.mark.parametrize("crossing", ["k", "v"])
def test_keys_and_values_that_come_from_other_threads_are_waited_for(crossing: str) -> None:
    """Attention stores them row by row before its threads meet for the first time."""
    recorder = Recorder()
    x = recorder.embed(Embedding(10, WIDTH, 0))
    product = recorder.linear(x, linear(WIDTH))
    k, v = (product, x) if crossing == "k" else (x, product)
    attended = recorder.attention(x, k, v, AttentionSpec(0, 1, 1, WIDTH, 1.0))
    placement = place(recorder.finish(recorder.wanted_rows(attended)), SIZE)

    assert ("Attend", True) in barriers_of(placement)


def test_rows_start_at_cache_lines_and_avoid_multiples_of_a_page() -> None:
    """Rows a page apart would fight for one set of the cache."""
    recorder = Recorder()
    x = recorder.embed(Embedding(10, 1024, 0))
    y = recorder.linear(x, linear(20, 1024))
    placement = place(recorder.finish(recorder.wanted_rows(y)), SIZE)

    assert 1040 == placement.view(x).stride
    assert 32 == placement.view(y).stride
    assert 0 == placement.view(y).offset % 16


def test_values_that_are_given_keep_their_place_until_they_are_read() -> None:
    """Whoever runs the program fills them before the first operation."""
    value = Value(Rows.TOKENS, WIDTH)
    recorder = Recorder()
    other = recorder.embed(Embedding(10, WIDTH, 0))
    result = recorder.wanted_rows(recorder.add(other, whole(value)))

    placement = place(recorder.finish(result), SIZE, inputs=(value,))

    assert placement.view(whole(value)).offset != placement.view(other).offset
