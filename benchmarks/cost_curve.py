"""How long a step takes over batch, context and vocabulary, measured, with a formula fitted to it.

    python -m benchmarks.cost_curve --out benchmarks/results/FILE
    python -m benchmarks.cost_curve --out benchmarks/results/FILE --more --vocabulary 98304

Steps are made by hand and given to the executor: rows that claim to have computed their context
already, so that a context of 8,000 tokens costs nothing to reach. Its keys and values are zeros;
the arithmetic does not care. Decoding steps go over batch x context as far as the pool has room,
single chunks of a prompt separate the cost of a token from the cost of a row. `--vocabulary` gives
the model another number of tokens, by leaving out rows of its table or by repeating them, and
decodes at the shortest context only. `--more` adds to the steps of an earlier run, so that a curve
can be measured in pieces; the formula is fitted to all of them.

    step_s = base_s + token_s * max(token_knee, tokens) + row_s * rows
             + context_s * context + pair_s * pairs
             + logit_s * vocabulary * max(row_knee, rows)

`context` is the sum of the rows' lengths: keys and values that are read. `pairs` counts what the
tokens of a chunk see beyond that: with 8 tokens at a context of 100, 7 further times about 100. Up
to a knee a step costs the same for any number of tokens, because it reads all weights, and for any
number of rows, because it reads the whole output matrix; the knees are searched for, the rest is
least squares of relative errors. The exit code is 1 where a step is further from the formula than
`--within`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.cost_model import non_negative_fit
from benchmarks.record import provenance, quantile, write_results
from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.contracts.kv_plan import KVPlan
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan
from octavo.executor.inline import InlineExecutor
from octavo.weights.checkpoint import Checkpoint, understood_as
from octavo.weights.source import open_checkpoint

NAMES = ("base_s", "token_s", "row_s", "context_s", "pair_s", "logit_s")
BATCHES = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (128, 512, 2048, 8000)
CHUNKS = (4, 8, 16, 32, 64, 128, 512)
CHUNKS_WITHIN = (64, 128, 512)  # of a prompt that has begun
WITHIN = 0.15  # of every measured step
_KNEES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_GREEDY = SamplingSpec()


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One kind of step: `batch` rows at `context` tokens, each of which computes `chunk` more."""

    vocabulary: int  # tokens that the model has
    batch: int
    context: int
    chunk: int = 1

    @property
    def num_known(self) -> int:
        return self.context + self.chunk

    @property
    def num_tokens(self) -> int:
        return self.batch * self.chunk

    @property
    def num_pairs(self) -> int:
        """Of a token and one that it sees, beyond one reading of every row."""
        seen = self.chunk * self.context + self.chunk * (self.chunk + 1) // 2
        return self.batch * (seen - self.num_known)


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured point. The knees belong to the formula that is tried."""

    point: Point
    seconds: float
    token_knee: int = 1
    row_knee: int = 1

    @property
    def features(self) -> tuple[float, ...]:
        """In the order of NAMES."""
        point = self.point
        tokens = max(self.token_knee, point.num_tokens)
        context = point.batch * point.num_known
        logits = point.vocabulary * max(self.row_knee, point.batch)
        counts = (1, tokens, point.batch, context, point.num_pairs, logits)
        return tuple(map(float, counts))


class Formula(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, and how far the formula is from what it was fitted to."""

    origin: str
    token_knee: int
    row_knee: int
    base_s: float
    token_s: float
    row_s: float
    context_s: float
    pair_s: float
    logit_s: float
    median_error: float = 0.0  # relative
    p90_error: float = 0.0
    max_error: float = 0.0

    def step_s(self, point: Point) -> float:
        """What a step should take."""
        features = Sample(point, 0.0, self.token_knee, self.row_knee).features
        values = (getattr(self, name) for name in NAMES)
        return sum(value * feature for value, feature in zip(values, features, strict=True))

    def error(self, sample: Sample) -> float:
        """As a share of the measured time."""
        return abs(self.step_s(sample.point) / sample.seconds - 1)


class Curve:
    """A started executor and the steps that it is given."""

    def __init__(self, executor: InlineExecutor, kv: KVPlan) -> None:
        self._executor = executor
        self._kv = kv
        self._num_steps = 0
        self._live: list[int] = []

    def has_room(self, point: Point, num_steps: int) -> bool:
        """Whether every row can have blocks of its own."""
        return point.batch * self._num_blocks(point, num_steps) <= self._kv.num_blocks

    def seconds(self, point: Point, num_runs: int) -> float:
        """Median of the runs. A chunk is computed anew each time, a decoding row goes on."""
        found = []
        for number in range(num_runs + 1):
            enters = number == 0 or point.chunk > 1
            plan = self._entering(point, num_runs + 1) if enters else self._going_on(point)
            begin_s = time.perf_counter()
            self._executor.run(plan)
            if number:
                found.append(time.perf_counter() - begin_s)
        return statistics.median(found)

    def _entering(self, point: Point, num_steps: int) -> StepPlan:
        """All rows are new: they compute the last `chunk` of their tokens."""
        num_blocks = self._num_blocks(point, num_steps) // len(self._kv.groups)
        new_rows = []
        for row in range(point.batch):
            first = row * num_blocks * len(self._kv.groups)
            tables = [
                list(range(first + group * num_blocks, first + (group + 1) * num_blocks))
                for group in range(len(self._kv.groups))
            ]
            tokens = [
                (row * 131 + place * 7) % point.vocabulary for place in range(point.num_known)
            ]
            new_rows.append(
                NewRow(
                    row=row,
                    request_id=f"{self._num_steps}-{row}",
                    token_ids=tokens,
                    num_prompt_tokens=point.num_known,
                    num_computed_tokens=point.context,
                    block_ids=tables,
                    sampling=_GREEDY,
                )
            )
        plan = self._plan(point, point.chunk)
        plan.freed_rows, plan.new_rows = self._live, new_rows
        self._live = list(range(point.batch))
        return plan

    def _going_on(self, point: Point) -> StepPlan:
        return self._plan(point, 1)

    def _plan(self, point: Point, num_tokens: int) -> StepPlan:
        self._num_steps += 1
        return StepPlan(
            step_id=self._num_steps,
            rows=list(range(point.batch)),
            num_tokens=[num_tokens] * point.batch,
            samples=[True] * point.batch,
        )

    def _num_blocks(self, point: Point, num_steps: int) -> int:
        """Of one row over all groups."""
        tokens = point.num_known + (num_steps if point.chunk == 1 else 0)
        return -(-tokens // self._kv.block_size) * len(self._kv.groups)


def measure(
    curve: Curve, points: Sequence[Point], num_runs: int, num_rounds: int
) -> tuple[list[Sample], list[Point]]:
    """A sample for each point that has room, and the points that have none.

    All points take their turn in each round: what slows the machine down for a while meets some
    rounds of many points, and not all rounds of a few.
    """
    fitting = [point for point in points if curve.has_room(point, num_runs + 1)]
    curve.seconds(fitting[0], num_runs)  # what only the first steps of a process do
    found: dict[Point, list[float]] = {point: [] for point in fitting}
    for _ in range(num_rounds):
        for point in fitting:
            found[point].append(curve.seconds(point, num_runs))
    samples = [Sample(point, statistics.median(rounds)) for point, rounds in found.items()]
    return samples, [point for point in points if point not in found]


def fit_with_knees(samples: Sequence[Sample], origin: str) -> Formula:
    """The formula with the knees whose largest error is the smallest.

    Raises ValueError when there are too few samples.
    """
    found = [_fitted(samples, *knees, origin) for knees in product(_KNEES, _KNEES)]
    return min(found, key=lambda formula: formula.max_error)


def _fitted(samples: Sequence[Sample], token_knee: int, row_knee: int, origin: str) -> Formula:
    knees = {"token_knee": token_knee, "row_knee": row_knee}
    values = non_negative_fit([replace(sample, **knees) for sample in samples], NAMES)
    formula = Formula(origin=origin, **knees, **dict(zip(NAMES, values, strict=True)))
    errors = [formula.error(sample) for sample in samples]
    return msgspec.structs.replace(
        formula,
        median_error=quantile(errors, 0.5),
        p90_error=quantile(errors, 0.9),
        max_error=max(errors),
    )


def grid(vocabulary: int, longest: int, most: int, contexts: Iterable[int]) -> list[Point]:
    """Decoding over batch and context, and chunks of one prompt at its begin and within."""
    fitting = [context for context in contexts if context + 64 <= longest]
    points = decoding(vocabulary, most, fitting)
    if CONTEXTS[0] in fitting:
        points += [Point(vocabulary, 1, 0, chunk) for chunk in CHUNKS]
    for context in fitting:
        if context > CONTEXTS[0]:
            points += [Point(vocabulary, 1, context, chunk) for chunk in CHUNKS_WITHIN]
    return [point for point in points if point.num_known < longest]


def decoding(vocabulary: int, most: int, contexts: Iterable[int]) -> list[Point]:
    """One token for each row."""
    batches = [batch for batch in BATCHES if batch <= most]
    return [Point(vocabulary, batch, context) for context in contexts for batch in batches]


def with_vocabulary(checkpoint: Checkpoint, num_tokens: int) -> Checkpoint:
    """The same model with another number of tokens: rows are left out of its table, or repeated."""
    known = checkpoint.facts.vocab_size
    order = [token % known for token in range(num_tokens)]
    tensors = {
        name: replace(view, shape=(num_tokens, *view.shape[1:]), row_order=order)
        if view.shape[0] == known and len(view.shape) == 2
        else view
        for name, view in checkpoint.tensors.items()
    }
    made: Any = understood_as(checkpoint, replace(checkpoint.facts, vocab_size=num_tokens))
    return replace(made, tensors=tensors)  # every kind of checkpoint is a dataclass


class Piece(msgspec.Struct, kw_only=True):
    """What the runs of the command so far have found, as a results file has it."""

    steps: list[dict[str, float]] = []
    left_out: list[dict[str, int]] = []
    pieces: list[dict[str, str]] = []

    def with_more(self, samples: Sequence[Sample], left_out: Sequence[Point]) -> Piece:
        """These steps, in place of older ones of the same kind."""
        measured = {sample.point: sample.seconds for sample in [*self.samples, *samples]}
        missing = dict.fromkeys([*(Point(**point) for point in self.left_out), *left_out])
        run = provenance()
        return Piece(
            steps=[
                {"ms": round(1e3 * seconds, 4), **asdict(point)}
                for point, seconds in sorted(measured.items())
            ],
            left_out=[asdict(point) for point in missing if point not in measured],
            pieces=[*self.pieces, {name: run[name] for name in ("command", "date", "commit")}],
        )

    @property
    def samples(self) -> list[Sample]:
        """The steps."""
        fields = ("vocabulary", "batch", "context", "chunk")
        return [
            Sample(Point(*(int(step[name]) for name in fields)), step["ms"] / 1e3)
            for step in self.steps
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, fit, print, write."""
    options = _parser().parse_args(arguments)
    before = Piece()
    if options.more:
        before = msgspec.json.decode(options.out.read_bytes(), type=Piece)
    samples, left_out, origin = _measured(options)
    piece = before.with_more(samples, left_out)
    found = fit_with_knees(piece.samples, origin)
    _print(piece, found)
    is_met = found.max_error <= options.within
    if options.out:
        document = {"benchmark": "cost_curve", "within": options.within, "is_met": is_met}
        document |= {"fit": msgspec.to_builtins(found)}
        write_results(options.out, document | msgspec.to_builtins(piece))
    return 0 if is_met else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_curve")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--runs", type=int, default=3, help="Steps of each kind in a round [3].")
    parser.add_argument("--rounds", type=int, default=5, help="Times that all have their turn [5].")
    parser.add_argument(
        "--pool-tokens", type=int, default=1 << 17, help="Room for keys and values [131072]."
    )
    parser.add_argument("--max-batch", type=int, default=max(BATCHES))
    parser.add_argument("--contexts", type=int, nargs="+", help="Some of them [all].")
    parser.add_argument("--vocabulary", type=int, help="Tokens of the model [its own].")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--within", type=float, default=WITHIN, help=f"Allowed share [{WITHIN}].")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--more", action="store_true", help="Add to the steps of --out.")
    return parser


def _measured(options: argparse.Namespace) -> tuple[list[Sample], list[Point], str]:
    """Samples, points without room, and where they come from."""
    checkpoint = open_checkpoint(options.model)
    own = checkpoint.facts.vocab_size
    vocabulary = options.vocabulary or own
    if vocabulary != own:
        checkpoint = with_vocabulary(checkpoint, vocabulary)
    executor = InlineExecutor(_config(options), checkpoint)
    memory_plan = executor.start(lambda phase, share: None)
    try:
        if vocabulary == own:
            contexts = options.contexts or CONTEXTS
            points = grid(own, memory_plan.max_model_len, options.max_batch, contexts)
        else:
            points = decoding(vocabulary, options.max_batch, options.contexts or CONTEXTS[:1])
        samples, left_out = measure(
            Curve(executor, memory_plan.kv), points, options.runs, options.rounds
        )
        return samples, left_out, f"{checkpoint.name}, {executor.describe()}"
    finally:
        executor.stop()


def _config(options: argparse.Namespace) -> EngineConfig:
    block_size = CacheConfig().block_size
    return EngineConfig(
        model=ModelConfig(model=options.model, threads=options.threads, max_model_len=-1),
        cache=CacheConfig(num_gpu_blocks_override=max(8, options.pool_tokens // block_size)),
        scheduler=SchedulerConfig(max_num_seqs=options.max_batch),
    )


def _print(piece: Piece, found: Formula) -> None:
    names = ("vocabulary", "rows", "context", "chunk", "ms", "formula", "error")
    print("{:>10} {:>5} {:>8} {:>6} {:>9} {:>9} {:>6}".format(*names))
    for sample in piece.samples:
        point = sample.point
        print(
            f"{point.vocabulary:>10} {point.batch:>5} {point.context:>8} {point.chunk:>6} "
            f"{1e3 * sample.seconds:>9.2f} {1e3 * found.step_s(point):>9.2f} "
            f"{found.error(sample):>6.0%}"
        )
    print(
        f"error: median {found.median_error:.1%}, p90 {found.p90_error:.1%}, "
        f"largest {found.max_error:.1%}"
    )
    print(found)
    for point in piece.left_out:
        print(f"no room in the pool for {point['batch']} rows of {point['context']} tokens")


if __name__ == "__main__":
    sys.exit(main())
