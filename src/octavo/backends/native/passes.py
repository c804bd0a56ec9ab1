"""Rewrites of a recording.

Those in PASSES keep its result bit for bit and make it cheaper; a fusion is one more of them.
`round_inputs` changes the arithmetic, for those who ask for int8 or bfloat16 activations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import msgspec

from octavo._native import Rows, rounded_row_floats
from octavo.backends.native.operations import (
    ROW_ALONE,
    Buffer,
    Mix,
    Operation,
    Product,
    Recording,
    RoundedInputs,
    RoundedProduct,
    RoundRows,
    TakeMeans,
    TakeWanted,
    Value,
    whole,
)


def optimise(recording: Recording) -> Recording:
    """All passes, in order."""
    for rewrite in PASSES:
        recording = rewrite(recording)
    return recording


def round_inputs(recording: Recording, inputs: RoundedInputs) -> Recording:
    """Products with the matrices that are named multiply rounded activations.

    Each input is rounded once, for all products that read it.
    """
    rounding, matrices = inputs.rounding, inputs.matrices
    as_rounded: dict[Buffer, Buffer] = {}
    operations: list[Operation] = []

    def rounded(x: Buffer) -> Buffer:
        if x not in as_rounded:
            value = Value(x.value.rows, rounded_row_floats(rounding, x.width))
            operations.append(Operation(RoundRows(), (x,), value))
            as_rounded[x] = whole(value)
        return as_rounded[x]

    own: tuple[Buffer, ...]
    for operation in recording.operations:
        kind = operation.kind
        if isinstance(kind, Product) and kind.matrix in matrices:
            (x,) = operation.inputs
            own = (rounded(x), x) if matrices[kind.matrix] else (rounded(x),)
            operations.append(Operation(RoundedProduct(kind.matrix), own, operation.output))
        elif isinstance(kind, Mix):
            routing, x = operation.inputs
            mix = _mix_of_rounded(kind, matrices)
            own = (routing, rounded(x)) if mix.takes_rounded else (routing,)
            own += (x,) if mix.takes_float else ()
            operations.append(Operation(mix, own, operation.output))
        else:
            operations.append(operation)
    return Recording(tuple(operations), recording.result, rounding)


def _mix_of_rounded(mix: Mix, matrices: Mapping[int, bool]) -> Mix:
    """The same with what its matrices need."""
    return msgspec.structs.replace(
        mix,
        takes_float=any(matrices.get(matrix, True) for matrix in mix.gate_up),
        takes_rounded=any(matrix in matrices for matrix in mix.gate_up),
        inner_rounded=any(matrix in matrices for matrix in mix.down),
    )


def take_wanted_early(recording: Recording) -> Recording:
    """Compute on wanted rows only what nobody needs for other tokens.

    After its attention, the last layer of a decoder matters only where logits are wanted: one row
    of a long prompt. So `wanted(f(x))` becomes `f(wanted(x))` for every f that computes a row from
    that row alone, as far back as no other operation needs the full result.
    """
    moved = _movable(recording)
    over_wanted: dict[Value, Buffer] = {}  # a value of the old list -> the same over wanted rows
    taken: dict[Buffer, Buffer] = {}
    kept: list[Operation] = []
    takes: list[Operation] = []
    tail: list[Operation] = []

    def wanted(buffer: Buffer) -> Buffer:
        """`buffer` of the old list over wanted rows in the new one."""
        if buffer.value in over_wanted:
            base = over_wanted[buffer.value]
            return Buffer(base.value, base.column + buffer.column, buffer.width)
        if buffer.value.rows is Rows.WANTED:
            return buffer
        if buffer not in taken:
            value = Value(Rows.WANTED, buffer.width)
            takes.append(Operation(TakeWanted(), (buffer,), value))
            taken[buffer] = whole(value)
        return taken[buffer]

    for operation in recording.operations:
        output = operation.output
        if output in moved:
            output = Value(Rows.WANTED, output.width)
            over_wanted[operation.output] = whole(output)
        elif output.rows is Rows.TOKENS:
            kept.append(operation)
            continue
        elif isinstance(operation.kind, TakeMeans):
            takes.append(operation)
            continue
        elif isinstance(operation.kind, TakeWanted):
            over_wanted[output] = wanted(operation.inputs[0])
            continue
        inputs = tuple(wanted(buffer) for buffer in operation.inputs)
        tail.append(Operation(operation.kind, inputs, output))
    return Recording((*kept, *takes, *tail), wanted(recording.result), recording.rounding)


def _movable(recording: Recording) -> set[Value]:
    """Values over tokens that are needed, directly or not, for wanted rows only."""
    users: dict[Value, list[Operation]] = defaultdict(list)
    for operation in recording.operations:
        for buffer in operation.inputs:
            users[buffer.value].append(operation)
    moved: set[Value] = set()
    for operation in reversed(recording.operations):
        if operation.output.rows is Rows.WANTED or not isinstance(operation.kind, ROW_ALONE):
            continue
        if users[operation.output] and all(
            isinstance(user.kind, TakeWanted) or user.output in moved
            for user in users[operation.output]
        ):
            moved.add(operation.output)
    return moved


PASSES: tuple[Callable[[Recording], Recording], ...] = (take_wanted_early,)
