"""Cost models: the formula, and the fit that finds it again."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from benchmarks.cost_model import GPU, CostModel, MeasuredStep, fit, read_cost_model

TRUTH = CostModel(origin="truth", base_s=4e-3, token_s=2e-4, row_s=1e-4, context_s=3e-7)


def measured(model: CostModel, noise: float = 0.0, count: int = 400) -> list[MeasuredStep]:
    source = random.Random(1)
    steps = []
    for _ in range(count):
        rows = source.randint(1, 64)
        tokens, context = rows + source.choice([0, 0, 200]), rows * source.randint(10, 900)
        seconds = model.step_s(tokens, rows, context) * (1 + source.uniform(-noise, noise))
        steps.append(MeasuredStep(seconds, tokens, rows, context))
    return steps


def test_a_fit_finds_the_formula_that_made_the_steps() -> None:
    """To rounding."""
    found = fit(measured(TRUTH), "a test")

    assert TRUTH.base_s == pytest.approx(found.model.base_s, rel=1e-6)
    assert TRUTH.token_s == pytest.approx(found.model.token_s, rel=1e-6)
    assert TRUTH.row_s == pytest.approx(found.model.row_s, rel=1e-6)
    assert TRUTH.context_s == pytest.approx(found.model.context_s, rel=1e-6)
    assert 1.0 == pytest.approx(found.r_squared)


def test_noise_moves_the_fit_little_and_shows_in_its_quality() -> None:
    """Five percent of noise."""
    found = fit(measured(TRUTH, noise=0.05), "a test")

    assert TRUTH.token_s == pytest.approx(found.model.token_s, rel=0.05)
    assert 0.005 < found.median_error < 0.05
    assert 0.95 < found.r_squared < 1


def test_no_coefficient_is_negative() -> None:
    """Steps that get shorter with their context are noise, not physics."""
    steps = [
        MeasuredStep(0.01 + 1e-4 * tokens - 1e-9 * context, tokens, 4, context)
        for tokens in range(1, 40)
        for context in (0, 1000, 100000)
    ]

    found = fit(steps, "a test").model

    assert 0 == found.context_s
    assert 0 < found.token_s


def test_a_feature_that_never_varies_does_no_harm() -> None:
    """All steps have one row: it cannot be told from the base."""
    steps = [MeasuredStep(0.5 + 0.1 * tokens, tokens, 1, 7 * tokens) for tokens in range(1, 30)]

    found = fit(steps, "a test").model

    assert 0.5 + 0.1 * 50 == pytest.approx(found.step_s(50, 1, 350), rel=1e-6)


def test_too_few_steps_are_refused() -> None:
    """A fit through three points says nothing."""
    with pytest.raises(ValueError, match="3 steps are too few"):
        fit(measured(TRUTH, count=3), "a test")


def test_the_gpu_is_flat_until_its_arithmetic_is_full() -> None:
    """Thirty rows cost nearly what one costs; a long prompt does not."""
    assert GPU.step_s(30, 30, 0) == GPU.step_s(1, 1, 0)
    assert 5 * GPU.step_s(1, 1, 0) < GPU.step_s(2048, 1, 0)


def test_a_cost_model_is_read_from_the_file_of_a_fit(tmp_path: Path) -> None:
    """Or from one that holds it alone; anything else is refused by name."""
    path = tmp_path / "cost.json"
    path.write_bytes(msgspec.json.encode({"fit": {"model": TRUTH}, "date": "today"}))
    alone = tmp_path / "alone.json"
    alone.write_bytes(msgspec.json.encode(TRUTH))
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[]")

    assert TRUTH == read_cost_model(path) == read_cost_model(alone)
    with pytest.raises(ValueError, match=r"wrong\.json is no cost model"):
        read_cost_model(wrong)
