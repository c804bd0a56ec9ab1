"""EagerOps: the op set run at once, one op at a time, over a StepBatch made by hand.

For tests and debugging. Every call records its op, places it and runs it as a program of its own,
so it goes through the same code as a real step. Slow: each call makes its working memory anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from octavo import _native
from octavo._native import Rows
from octavo.backends.native.operations import EXACT_INPUTS, Buffer, RoundedInputs, Value, whole
from octavo.backends.native.passes import round_inputs
from octavo.backends.native.placement import StepSize, place
from octavo.backends.native.program import build_program
from octavo.backends.native.recorder import Recorder
from octavo.backends.native.without_states import WithoutStates
from octavo.ops.batch import StepBatch
from octavo.ops.ops import Activation, AttentionSpec, GateActivation, HeadPart, RouterSpec
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Embedding, Experts, Linear, Vector


@dataclass(frozen=True, slots=True)
class Floats:
    """Activations between two eager ops: [rows, width] of float32, row after row."""

    data: memoryview[float]  # format "f", one dimension
    width: int
    rows: Rows = Rows.TOKENS

    @property
    def num_rows(self) -> int:
        return len(self.data) // self.width

    def row(self, index: int) -> list[float]:
        """One row as Python floats."""
        return list(self.data[index * self.width : (index + 1) * self.width])


@dataclass(frozen=True, slots=True)
class EagerMachine:
    """What eager ops run on. One machine may serve many EagerOps: its KV pool keeps their keys."""

    weights: _native.Weights
    kv: _native.KvPool
    kernels: _native.Kernels
    threads: _native.ThreadPool
    rounded: RoundedInputs = EXACT_INPUTS  # see passes.round_inputs


class EagerOps(WithoutStates[Floats]):
    """`Ops[Floats]` over one batch."""

    def __init__(self, batch: StepBatch, machine: EagerMachine) -> None:
        assert batch.block_size == machine.kv.block_size, (batch.block_size, machine.kv)
        self._batch = batch
        self._machine = machine

    def floats(
        self, values: array[float] | memoryview[float], width: int, rows: Rows = Rows.TOKENS
    ) -> Floats:
        """An input: `values` are float32, row after row, `width` to a row."""
        return Floats(memoryview(values).cast("B").cast("f"), width, rows)

    def embed(self, table: Embedding, *, scale: float = 1.0) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops: ops.embed(table, scale=scale))

    def embed_positions(self, table: Embedding) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops: ops.embed_positions(table))

    def embed_segments(self, table: Embedding) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops: ops.embed_segments(table))

    def linear(self, x: Floats, weight: Linear) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x: ops.linear(x, weight), x)

    def linear_heads(self, x: Floats, heads: tuple[Linear, ...]) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x: ops.linear_heads(x, heads), x)

    def join_heads(self, parts: tuple[HeadPart[Floats], ...], num_heads: int) -> Floats:
        """See `ops.ops.Ops`."""

        def run(ops: Recorder, *xs: Buffer) -> Buffer:
            own = zip(parts, xs, strict=True)
            return ops.join_heads(
                tuple(HeadPart(x, part.width, part.is_shared) for part, x in own), num_heads
            )

        return self._run(run, *(part.x for part in parts))

    def split(self, x: Floats, widths: tuple[int, ...]) -> tuple[Floats, ...]:
        """See `ops.ops.Ops`. Here the parts are copies."""
        parts, column = [], 0
        for width in widths:
            values = array("f")
            for row in range(x.num_rows):
                start = row * x.width + column
                values.extend(x.data[start : start + width])
            parts.append(self.floats(values, width, x.rows))
            column += width
        return tuple(parts)

    def rms_norm(self, x: Floats, weight: Vector, eps: float) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x: ops.rms_norm(x, weight, eps), x)

    def layer_norm(
        self, x: Floats, weight: Vector | None, bias: Vector | None, eps: float
    ) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x: ops.layer_norm(x, weight, bias, eps), x)

    def head_norm(self, x: Floats, weight: Vector, eps: float) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x: ops.head_norm(x, weight, eps), x)

    def position_factors(self, period: float, weight: float) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops: ops.position_factors(period, weight))

    def rotary(self, x: Floats, table: RopeTable, head_dim: int) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x: ops.rotary(x, table, head_dim), x)

    def attention(
        self, q: Floats, k: Floats, v: Floats, spec: AttentionSpec, sinks: Vector | None = None
    ) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, q, k, v: ops.attention(q, k, v, spec, sinks), q, k, v)

    def gated(self, x: Floats, activation: GateActivation) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x: ops.gated(x, activation), x)

    def activation(self, x: Floats, activation: Activation) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x: ops.activation(x, activation), x)

    def add(self, a: Floats, b: Floats) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, a, b: ops.add(a, b), a, b)

    def scale(self, x: Floats, factor: float) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x: ops.scale(x, factor), x)

    def multiply_rows(self, x: Floats, factors: Floats) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x, factors: ops.multiply_rows(x, factors), x, factors)

    def route(self, scores: Floats, spec: RouterSpec, correction: Vector | None = None) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, scores: ops.route(scores, spec, correction), scores)

    def experts(
        self, x: Floats, routing: Floats, experts: Experts, activation: GateActivation
    ) -> Floats:
        """See `ops.ops.Ops`."""

        def run(ops: Recorder, x: Buffer, routing: Buffer) -> Buffer:
            return ops.experts(x, routing, experts, activation)

        return self._run(run, x, routing)

    def wanted_rows(self, x: Floats) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x: ops.wanted_rows(x), x)

    def mean_rows(self, x: Floats) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x: ops.mean_rows(x), x)

    def logits(
        self, x: Floats, head: Linear, *, scale: float = 1.0, soft_cap: float | None = None
    ) -> Floats:
        """See `ops.ops.Ops`."""
        return self._run(lambda ops, x: ops.logits(x, head, scale=scale, soft_cap=soft_cap), x)

    def _run(self, record: Callable[..., Buffer], *inputs: Floats) -> Floats:
        """Record one op over `inputs`, run it, and read its result."""
        batch, machine = self._batch, self._machine
        values = tuple(Value(floats.rows, floats.width) for floats in inputs)
        recorder = Recorder()
        result = record(recorder, *(whole(value) for value in values))
        size = StepSize(max_tokens=len(batch.token_ids), wanted_rows=max(1, len(batch.wanted)))
        recording = round_inputs(recorder.finish(result), machine.rounded)
        placement = place(recording, size, inputs=values)
        program = build_program(placement, machine.weights)
        forward = _native.Forward(
            program,
            machine.kernels,
            machine.threads,
            machine.kv,
            max_rows=max(1, len(batch.rows)),
            max_len=max(1, *(row.context_len + row.num_tokens for row in batch.rows)),
        )
        for value, floats in zip(values, inputs, strict=True):
            forward.write(placement.view(whole(value)), value.rows, floats.data)
        forward.run(
            batch.token_ids,
            batch.positions,
            [
                (row.first_token, row.num_tokens, row.context_len, row.block_ids)
                for row in batch.rows
            ],
            batch.wanted,
            batch.segments,
            batch.wanted_first,
        )
        rows = result.value.rows
        count = len(batch.token_ids) if rows is Rows.TOKENS else len(batch.wanted)
        data = forward.read(placement.view(result), rows, count)
        return Floats(memoryview(data).cast("f"), result.width, rows)
