"""Cost models: how long a step takes, as a formula of its size.

    step_s = base_s + max(floor_s, token_s * tokens) + row_s * rows + context_s * context

`tokens` are computed in the step, `rows` take part in it, `context` is the sum of their lengths.
With `floor_s` 0 the formula is linear and can be fitted to measured steps. With it, it is a
roofline: a step reads all weights once, or does the arithmetic of its tokens, whichever takes
longer.

Fitting is least squares on relative errors, by the normal equations, in plain Python; coefficients
that would be negative are set to 0 and the rest is fitted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

NAMES = ("base_s", "token_s", "row_s", "context_s")


class CostModel(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. `origin` says for people where the numbers come from."""

    origin: str
    base_s: float = 0.0
    floor_s: float = 0.0
    token_s: float = 0.0
    row_s: float = 0.0
    context_s: float = 0.0
    moved_block_s: float = 0.0  # a block that is swapped or copied

    def step_s(self, num_tokens: int, num_rows: int, num_context_tokens: int) -> float:
        """Seconds of one step."""
        work_s = max(self.floor_s, self.token_s * num_tokens)
        return self.base_s + work_s + self.row_s * num_rows + self.context_s * num_context_tokens

    def relative_error(self, step: MeasuredStep) -> float:
        """How far the formula is from a measured step, as a share of it."""
        guess_s = self.step_s(step.num_tokens, step.num_rows, step.num_context_tokens)
        return abs(guess_s - step.seconds) / step.seconds


# OPT-13B on one A100 with 40 GB, the smallest machine of the PagedAttention paper, by data sheets:
# 26 GB of weights at 80 % of 1,555 GB/s; 26 GFLOP a token at half of 312 TFLOP/s; 819,200 bytes of
# keys and values a token at 80 % of the bandwidth; 2 ms for the launches and the host of a step.
# Not measured: it stands for machines whose steps take nearly as long for one row as for thirty.
GPU = CostModel(
    origin="formula from data sheets: OPT-13B in float16 on an A100 with 40 GB; not measured",
    base_s=2e-3,
    floor_s=26e9 / (0.8 * 1555e9),
    token_s=26e9 / (0.5 * 312e12),
    context_s=819200 / (0.8 * 1555e9),
    moved_block_s=16 * 819200 / 25e9,
)
GPU_KV_SLOTS = 15728  # 12 GiB of keys and values, as the paper leaves for this machine


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """One step of a real engine."""

    seconds: float
    num_tokens: int
    num_rows: int
    num_context_tokens: int

    @property
    def features(self) -> tuple[float, float, float, float]:
        """In the order of NAMES."""
        return 1.0, float(self.num_tokens), float(self.num_rows), float(self.num_context_tokens)


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """A cost model with the quality of its fit."""

    model: CostModel
    num_steps: int
    r_squared: float  # of the seconds
    median_error: float  # relative
    p90_error: float


def fit(steps: Sequence[MeasuredStep], origin: str) -> Fit:
    """The linear model nearest to the steps. Raises ValueError when there are too few."""
    values = non_negative_fit(steps, NAMES)
    model = CostModel(origin=origin, **dict(zip(NAMES, values, strict=True)))
    return _judged(model, steps)


class Measured(Protocol):
    """Something that took a time, and what the time may depend on."""

    @property
    def seconds(self) -> float: ...

    @property
    def features(self) -> Sequence[float]: ...


def non_negative_fit(steps: Sequence[Measured], names: Sequence[str]) -> list[float]:
    """A coefficient from 0 for each feature. Raises ValueError when there are too few steps."""
    if len(steps) < 2 * len(names):
        raise ValueError(f"{len(steps)} steps are too few to fit {len(names)} numbers")
    kept = list(range(len(names)))
    values = _least_squares(steps, kept)
    while min(values) < 0:
        del kept[values.index(min(values))]
        values = _least_squares(steps, kept)
    found = [0.0] * len(names)
    for place, value in zip(kept, values, strict=True):
        found[place] = value
    return found


def read_cost_model(path: Path) -> CostModel:
    """The cost model of a results file with a `fit`, or of a file with its fields alone.

    Raises ValueError that names the file.
    """
    try:
        document = msgspec.json.decode(path.read_bytes())
        entry = document.get("fit", {}).get("model", document)
        return msgspec.convert(entry, CostModel)
    except (msgspec.MsgspecError, AttributeError) as error:
        raise ValueError(f"{path} is no cost model: {error}") from None


def _judged(model: CostModel, steps: Sequence[MeasuredStep]) -> Fit:
    predicted = [
        model.step_s(step.num_tokens, step.num_rows, step.num_context_tokens) for step in steps
    ]
    mean = sum(step.seconds for step in steps) / len(steps)
    pairs = list(zip(steps, predicted, strict=True))
    residual = sum((step.seconds - guess) ** 2 for step, guess in pairs)
    total = sum((step.seconds - mean) ** 2 for step in steps)
    errors = sorted(model.relative_error(step) for step in steps)
    return Fit(
        model=model,
        num_steps=len(steps),
        r_squared=1 - residual / total if total else 1.0,
        median_error=errors[len(errors) // 2],
        p90_error=errors[len(errors) * 9 // 10],
    )


def _least_squares(steps: Sequence[Measured], kept: Sequence[int]) -> list[float]:
    """Coefficients of the kept features that minimise the sum of squared relative errors."""
    size = len(kept)
    matrix = [[0.0] * (size + 1) for _ in range(size)]
    for step in steps:
        row = [step.features[place] / step.seconds for place in kept]
        for i in range(size):
            for j in range(size):
                matrix[i][j] += row[i] * row[j]
            matrix[i][size] += row[i]
    return _solve(matrix)


def _solve(matrix: list[list[float]]) -> list[float]:
    """Gauss-Jordan with pivots; a feature that is a copy of others gets 0."""
    size = len(matrix)
    scale = [abs(matrix[i][i]) for i in range(size)]
    pivots: list[int] = []
    for column in range(size):
        free = [i for i in range(size) if i not in pivots]
        best = max(free, key=lambda i: abs(matrix[i][column]))
        if abs(matrix[best][column]) <= 1e-12 * scale[column]:
            continue
        pivots.append(best)
        pivot = matrix[best]
        divisor = pivot[column]
        matrix[best] = [value / divisor for value in pivot]
        for i in range(size):
            factor = matrix[i][column]
            if i != best and factor:
                matrix[i] = [a - factor * b for a, b in zip(matrix[i], matrix[best], strict=True)]
    found = [0.0] * size
    for row in pivots:
        column = next(j for j in range(size) if abs(matrix[row][j] - 1) < 1e-9)
        found[column] = matrix[row][size]
    return found
