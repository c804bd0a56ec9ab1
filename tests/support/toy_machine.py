"""A slow machine for recordings whose numbers are hashes: any wrong number shows in the result.

`evaluate` computes a recording value by value, without memory. `ToyMachine` runs a placed recording
the way the C++ side does, in one arena, with threads that may run in any order between two
barriers. The two must agree for every order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from octavo._native import Rows
from octavo.backends.native.operations import (
    Add,
    Attend,
    Buffer,
    HeadProducts,
    Mix,
    Operation,
    Product,
    Recording,
    RoundedProduct,
    TakeWanted,
    Value,
    whole,
)
from octavo.backends.native.placement import Placement

Row = list[int]
Table = list[Row]


@dataclass(frozen=True)
class ToyStep:
    """How many tokens there are and which of them are wanted."""

    num_tokens: int
    wanted: tuple[int, ...]
    slice_rows: int


def element(operation: Operation, column: int, *seen: object) -> int:
    """One number of a result, from everything that it may depend on."""
    return hash((type(operation.kind).__name__, repr(operation.kind), column, seen))


def output_row(operation: Operation, row: int, inputs: Sequence[Table]) -> Row:
    """One row of a result. `inputs` are whole tables of the columns that the operation reads."""
    columns = range(operation.output.width)
    if isinstance(operation.kind, Attend):
        q, k, v = inputs
        history = tuple(tuple(k[i] + v[i]) for i in range(row + 1))
        return [element(operation, c, tuple(q[row]), history) for c in columns]
    if not inputs:  # embeddings and angles: by token
        return [element(operation, c, row) for c in columns]
    seen = tuple(tuple(table[row]) for table in inputs)
    if isinstance(operation.kind, Add):
        seen = tuple(sorted(seen))  # either order gives the same sum
    return [element(operation, c, seen) for c in columns]


def evaluate(recording: Recording, step: ToyStep, given: dict[Value, Table]) -> Table:
    """The result, each value computed once and never changed."""
    tables = dict(given)

    def read(buffer: Buffer) -> Table:
        return [row[buffer.column :][: buffer.width] for row in tables[buffer.value]]

    for operation in recording.operations:
        inputs = [read(buffer) for buffer in operation.inputs]
        if isinstance(operation.kind, TakeWanted):
            tables[operation.output] = [inputs[0][token] for token in step.wanted]
            continue
        over_tokens = operation.output.rows is Rows.TOKENS
        count = step.num_tokens if over_tokens else len(step.wanted)
        tables[operation.output] = [output_row(operation, r, inputs) for r in range(count)]
    return read(recording.result)


@dataclass
class ToyMachine:
    """An arena, threads, and an order in which the threads run."""

    placement: Placement
    step: ToyStep
    num_threads: int
    order: Callable[[int], Sequence[int]]  # number of the barrier -> order of the threads after it
    arena: list[int] = field(init=False)
    _cache: dict[tuple[int, int], Row] = field(init=False, default_factory=dict)
    _partials: dict[int, Row] = field(init=False, default_factory=dict)
    _gathered: dict[int, list[Row]] = field(init=False, default_factory=dict)
    _num_barriers: int = 0

    def __post_init__(self) -> None:
        self.arena = [-1] * self.placement.arena_floats

    def run(self, given: dict[Value, Table]) -> Table:
        """All operations; the result row by row, slice by slice."""
        for value, table in given.items():
            for row, numbers in enumerate(table):
                self._write(whole(value), row, numbers)
        pairs = list(zip(self.placement.recording.operations, self.placement.barriers, strict=True))
        self._run_region([pair for pair in pairs if pair[0].output.rows is Rows.TOKENS], range(0))
        over_wanted = [pair for pair in pairs if pair[0].output.rows is Rows.WANTED]
        result: Table = []
        for begin in range(0, len(self.step.wanted), self.step.slice_rows):
            wanted = range(begin, min(begin + self.step.slice_rows, len(self.step.wanted)))
            self._run_region(over_wanted, wanted)
            result += [self._read(self.placement.recording.result, i) for i in range(len(wanted))]
        return result

    def _run_region(self, pairs: list[tuple[Operation, bool]], wanted: range) -> None:
        """Jobs between two barriers run thread after thread, one of the possible orders."""
        jobs: list[Callable[[int], None]] = []
        for operation, barrier in pairs:
            if barrier:
                self._meet(jobs)
            if isinstance(operation.kind, Attend):
                jobs.append(lambda thread, op=operation: self._store(op, thread))
                self._meet(jobs)
                jobs.append(lambda thread, op=operation: self._attend(op, thread))
                self._meet(jobs)
            if isinstance(operation.kind, Mix):
                jobs.append(lambda thread, op=operation: self._gather(op, thread, wanted))
                self._meet(jobs)
            jobs.append(lambda thread, op=operation: self._compute(op, thread, wanted))
        self._meet(jobs)

    def _meet(self, jobs: list[Callable[[int], None]]) -> None:
        for thread in self.order(self._num_barriers):
            for job in jobs:
                job(thread)
        self._num_barriers += 1
        jobs.clear()

    def _share(self, count: int, thread: int) -> range:
        return range(count * thread // self.num_threads, count * (thread + 1) // self.num_threads)

    def _store(self, operation: Operation, thread: int) -> None:
        """Keys and values go to a cache, row by row."""
        _, k, v = operation.inputs
        layer = operation.kind.spec.layer
        for row in self._share(self.step.num_tokens, thread):
            self._cache[layer, row] = self._read(k, row) + self._read(v, row)

    def _compute(self, operation: Operation, thread: int, wanted: range) -> None:
        over_tokens = operation.output.rows is Rows.TOKENS
        count = self.step.num_tokens if over_tokens else len(wanted)
        if isinstance(operation.kind, Product | RoundedProduct | HeadProducts):
            self._compute_columns(operation, count, thread)
            return
        if isinstance(operation.kind, Attend):
            self._merge(operation, thread)
            return
        for row in self._share(count, thread):
            if isinstance(operation.kind, TakeWanted):
                source = self.step.wanted[wanted[row]]
                self._write(whole(operation.output), row, self._read(operation.inputs[0], source))
                continue
            inputs = [{row: self._read(buffer, row)} for buffer in operation.inputs]
            if isinstance(operation.kind, Mix):  # but for the weights, read before threads met
                inputs[1:] = [{row: numbers} for numbers in self._gathered[row]]
            self._write(whole(operation.output), row, output_row(operation, row, inputs))

    def _gather(self, operation: Operation, thread: int, wanted: range) -> None:
        """What experts read, dealt out like cards; who reads a row also looks at its weights."""
        over_tokens = operation.output.rows is Rows.TOKENS
        count = self.step.num_tokens if over_tokens else len(wanted)
        for row in range(thread, count, self.num_threads):
            self._gathered[row] = [self._read(buffer, row) for buffer in operation.inputs[1:]]

    def _compute_columns(self, operation: Operation, count: int, thread: int) -> None:
        columns = self._share(operation.output.width, thread)
        for row in range(count):
            inputs = [{row: self._read(buffer, row)} for buffer in operation.inputs]
            numbers = output_row(operation, row, inputs)
            for column in columns:
                self._write(Buffer(operation.output, column, 1), row, [numbers[column]])

    def _attend(self, operation: Operation, thread: int) -> None:
        """Rows are dealt out like cards: not the split of any other operation."""
        layer, (q, k, _) = operation.kind.spec.layer, operation.inputs
        for row in range(thread, self.step.num_tokens, self.num_threads):
            stored = [self._cache[layer, i] for i in range(row + 1)]
            keys = [numbers[: k.width] for numbers in stored]
            values = [numbers[k.width :] for numbers in stored]
            inputs = [{row: self._read(q, row)}, keys, values]
            self._partials[row] = output_row(operation, row, inputs)

    def _merge(self, operation: Operation, thread: int) -> None:
        for row in range(thread, self.step.num_tokens, self.num_threads):
            self._write(whole(operation.output), row, self._partials[row])

    def _read(self, buffer: Buffer, row: int) -> Row:
        start, width = self._place(buffer, row)
        return self.arena[start : start + width]

    def _write(self, buffer: Buffer, row: int, numbers: Row) -> None:
        start, width = self._place(buffer, row)
        assert width == len(numbers)
        self.arena[start : start + width] = numbers

    def _place(self, buffer: Buffer, row: int) -> tuple[int, int]:
        view = self.placement.view(buffer)
        start = view.offset + row * view.stride
        assert start + view.width <= len(self.arena), "outside the arena"
        return start, view.width
