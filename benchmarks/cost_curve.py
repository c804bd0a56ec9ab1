"""How long a step takes over batch and context, measured, with a formula fitted to it.

    python -m benchmarks.cost_curve --out benchmarks/results/FILE

Steps are made by hand and given to the executor: rows that claim to have computed their context
already, so that a context of 8,000 tokens costs nothing to reach. Its keys and values are zeros;
the arithmetic does not care. Decoding steps go over batch x context as far as the pool has room,
single chunks of a prompt separate the cost of a token from the cost of a row.

    step_s = base_s + token_s * max(knee, tokens) + row_s * rows
             + context_s * context + pair_s * pairs

`context` is the sum of the rows' lengths: keys and values that are read. `pairs` counts what the
tokens of a chunk see beyond that: with 8 tokens at a context of 100, 7 further times about 100. Up
to the knee a step costs the same for any number of tokens, because it reads all weights; the knee
is searched for, the rest is least squares of relative errors.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.cost_model import non_negative_fit
from benchmarks.record import quantile, write_results
from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.contracts.kv_plan import KVPlan
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan
from octavo.executor.inline import InlineExecutor
from octavo.weights.source import open_checkpoint

NAMES = ("base_s", "token_s", "row_s", "context_s", "pair_s")
BATCHES = (1, 2, 4, 8, 16, 32, 64)
CONTEXTS = (128, 512, 2048, 8000)
CHUNKS = (16, 64, 128, 512)
_KNEES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_GREEDY = SamplingSpec()


@dataclass(frozen=True, slots=True)
class Point:
    """One kind of step: `batch` rows at `context` tokens, each of which computes `chunk` more."""

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
    """A measured point. `knee` belongs to the formula that is tried."""

    point: Point
    seconds: float
    knee: int = 1

    @property
    def features(self) -> tuple[float, float, float, float, float]:
        """In the order of NAMES."""
        point = self.point
        tokens = max(self.knee, point.num_tokens)
        context = point.batch * point.num_known
        return 1.0, float(tokens), float(point.batch), float(context), float(point.num_pairs)


class Formula(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, and how far the formula is from what it was fitted to."""

    origin: str
    knee: int
    base_s: float
    token_s: float
    row_s: float
    context_s: float
    pair_s: float
    median_error: float = 0.0  # relative
    p90_error: float = 0.0
    max_error: float = 0.0

    def step_s(self, point: Point) -> float:
        """What a step should take."""
        features = Sample(point, 0.0, self.knee).features
        values = (self.base_s, self.token_s, self.row_s, self.context_s, self.pair_s)
        return sum(value * feature for value, feature in zip(values, features, strict=True))

    def error(self, sample: Sample) -> float:
        """As a share of the measured time."""
        return abs(self.step_s(sample.point) / sample.seconds - 1)


class Curve:
    """A started executor and the steps that it is given."""

    def __init__(self, executor: InlineExecutor, kv: KVPlan, vocab_size: int) -> None:
        self._executor = executor
        self._kv = kv
        self._vocab_size = vocab_size
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
                (row * 131 + place * 7) % self._vocab_size for place in range(point.num_known)
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
    curve: Curve, points: Sequence[Point], num_runs: int
) -> tuple[list[Sample], list[Point]]:
    """A sample for each point that has room, and the points that have none."""
    samples, left_out = [], []
    for point in points:
        if curve.has_room(point, num_runs + 1):
            samples.append(Sample(point, curve.seconds(point, num_runs)))
        else:
            left_out.append(point)
    return samples, left_out


def fit_with_knee(samples: Sequence[Sample], origin: str) -> Formula:
    """The formula with the knee whose 90th percentile of errors is the smallest.

    Raises ValueError when there are too few samples.
    """
    found = [_fitted(samples, knee, origin) for knee in _KNEES]
    return min(found, key=lambda formula: formula.p90_error)


def _fitted(samples: Sequence[Sample], knee: int, origin: str) -> Formula:
    values = non_negative_fit([replace(sample, knee=knee) for sample in samples], NAMES)
    formula = Formula(origin=origin, knee=knee, **dict(zip(NAMES, values, strict=True)))
    errors = [formula.error(sample) for sample in samples]
    return msgspec.structs.replace(
        formula,
        median_error=quantile(errors, 0.5),
        p90_error=quantile(errors, 0.9),
        max_error=max(errors),
    )


def grid(longest: int, most: int) -> list[Point]:
    """Decoding over batch and context, and chunks of one prompt at its begin and within."""
    contexts = [context for context in CONTEXTS if context + 64 <= longest]
    points = [Point(batch, context) for context in contexts for batch in BATCHES if batch <= most]
    points += [Point(1, 0, chunk) for chunk in CHUNKS]
    points += [Point(1, context, chunk) for context in contexts[1:] for chunk in CHUNKS[1:]]
    return [point for point in points if point.num_known < longest]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, fit, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cost_curve")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--runs", type=int, default=7, help="Steps of each kind [7].")
    parser.add_argument(
        "--pool-tokens", type=int, default=1 << 17, help="Room for keys and values [131072]."
    )
    parser.add_argument("--max-batch", type=int, default=max(BATCHES))
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    checkpoint = open_checkpoint(options.model)
    executor = InlineExecutor(_config(options), checkpoint)
    memory_plan = executor.start(lambda phase, share: None)
    try:
        curve = Curve(executor, memory_plan.kv, checkpoint.facts.vocab_size)
        points = grid(memory_plan.max_model_len, options.max_batch)
        samples, left_out = measure(curve, points, options.runs)
        origin = f"fitted to a cost curve: {checkpoint.name}, {executor.describe()}"
    finally:
        executor.stop()
    found = fit_with_knee(samples, origin)
    _print(samples, found, left_out)
    if options.out:
        write_results(options.out, _document(samples, found, left_out))


def _config(options: argparse.Namespace) -> EngineConfig:
    block_size = CacheConfig().block_size
    return EngineConfig(
        model=ModelConfig(model=options.model, threads=options.threads, max_model_len=-1),
        cache=CacheConfig(num_gpu_blocks_override=max(8, options.pool_tokens // block_size)),
        scheduler=SchedulerConfig(max_num_seqs=options.max_batch),
    )


def _print(samples: Sequence[Sample], found: Formula, left_out: Sequence[Point]) -> None:
    print(f"{'rows':>5} {'context':>8} {'chunk':>6} {'ms':>9} {'formula':>9} {'error':>6}")
    for sample in samples:
        point = sample.point
        print(
            f"{point.batch:>5} {point.context:>8} {point.chunk:>6} {1e3 * sample.seconds:>9.2f} "
            f"{1e3 * found.step_s(point):>9.2f} {found.error(sample):>6.0%}"
        )
    print(
        f"error: median {found.median_error:.1%}, p90 {found.p90_error:.1%}, "
        f"largest {found.max_error:.1%}"
    )
    print(found)
    for point in left_out:
        print(f"no room in the pool for {point.batch} rows of {point.context} tokens")


def _document(
    samples: Sequence[Sample], found: Formula, left_out: Sequence[Point]
) -> dict[str, Any]:
    return {
        "benchmark": "cost_curve",
        "fit": msgspec.to_builtins(found),
        "steps": [
            {"ms": round(1e3 * sample.seconds, 4), **asdict(sample.point)} for sample in samples
        ],
        "left_out": [asdict(point) for point in left_out],
    }


if __name__ == "__main__":
    main()
