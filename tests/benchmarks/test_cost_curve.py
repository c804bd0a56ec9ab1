"""The cost curve and the kernel rows: the fit finds a formula again, and small runs go through."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import cost_curve, kernels
from benchmarks.cost_curve import (
    CONTEXTS,
    Formula,
    Point,
    Sample,
    decoding,
    fit_with_knees,
    grid,
    with_vocabulary,
)
from benchmarks.kernels import add_shares
from octavo.weights.source import open_checkpoint
from tests.support.data import smollm2_path

TRUE = Formula(
    origin="made up",
    token_knee=4,
    row_knee=8,
    base_s=2e-3,
    token_s=1e-3,
    row_s=1e-5,
    context_s=2e-6,
    pair_s=3e-7,
    logit_s=2e-9,
)


def made_up() -> list[Sample]:
    """Steps that take exactly what the formula says, with three vocabularies."""
    points = grid(50_000, 8192, 64, CONTEXTS)
    for vocabulary in (10_000, 200_000):
        points += decoding(vocabulary, 64, [128])
    return [Sample(point, TRUE.step_s(point)) for point in points]


def test_a_formula_is_found_again_from_what_it_says() -> None:
    """Its knees too."""
    found = fit_with_knees(made_up(), "fit")

    assert (4, 8) == (found.token_knee, found.row_knee)
    assert found.max_error < 1e-6
    assert found.logit_s == pytest.approx(2e-9)
    assert found.pair_s == pytest.approx(3e-7)
    assert found.row_s == pytest.approx(1e-5)


def test_errors_of_the_fit_are_those_of_its_samples() -> None:
    """One step that took ten times as long is the largest error."""
    samples = made_up()
    samples[3] = Sample(samples[3].point, 10 * samples[3].seconds)

    found = fit_with_knees(samples, "fit")

    assert found.max_error == pytest.approx(0.9, abs=0.05)
    assert found.median_error < 0.1


def test_a_token_that_decodes_has_no_pairs_of_its_own() -> None:
    """One reading of the row is all that it does; a chunk sees its context once for each token."""
    assert 0 == Point(50, 3, 100).num_pairs
    assert 8 * 100 + 36 - 108 == Point(50, 1, 100, 8).num_pairs


def test_the_grid_stays_inside_the_context() -> None:
    """And inside the batch."""
    points = grid(50, 1024, 8, CONTEXTS)

    assert max(point.num_known for point in points) < 1024
    assert 8 == max(point.batch for point in points)


def test_a_small_curve_of_a_real_model_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has no room in the pool is named; a second run adds another vocabulary to the first."""
    monkeypatch.setattr(cost_curve, "CONTEXTS", (128, 512))
    monkeypatch.setattr(cost_curve, "CHUNKS", (16, 32, 64, 128))
    out = tmp_path / "curve.json"
    words = (
        f"--model {smollm2_path()} --runs 1 --rounds 2 --max-batch 8 --pool-tokens 1500 --out {out}"
    )
    more = "--more --vocabulary 60000 --within 9"

    assert 1 == cost_curve.main([*words.split(), "--within", "0"])
    assert 0 == cost_curve.main([*words.split(), *more.split()])

    found = json.loads(out.read_text())
    vocabularies = {step["vocabulary"] for step in found["steps"]}
    assert {49152, 60000} == vocabularies
    assert len(found["steps"]) >= 10
    assert 2 == len(found["pieces"])
    assert found["is_met"]
    assert all(step["ms"] > 0 for step in found["steps"])
    assert {"vocabulary": 49152, "batch": 8, "context": 512, "chunk": 1} in found["left_out"]
    assert "no room in the pool for 8 rows of 512 tokens" in capsys.readouterr().out


def test_a_vocabulary_is_cut_or_repeated() -> None:
    """Row by row, so that a larger one costs what a model of that size would."""
    checkpoint = open_checkpoint(str(smollm2_path()))
    name = "model.embed_tokens.weight"
    table = checkpoint.tensors[name]

    larger = with_vocabulary(checkpoint, table.shape[0] + 2)
    smaller = with_vocabulary(checkpoint, 5)

    assert (table.shape[0] + 2, 5) == (larger.facts.vocab_size, smaller.facts.vocab_size)
    assert table.rows(0, 2) == larger.tensors[name].rows(table.shape[0], table.shape[0] + 2)
    assert table.rows(0, 5) == smaller.tensors[name].rows_in_order()
    assert checkpoint.tensors["model.norm.weight"] == larger.tensors["model.norm.weight"]


def test_kernel_rows_cover_types_tokens_and_operations(tmp_path: Path) -> None:
    """Every row has a share of a roof."""
    out = tmp_path / "kernels.json"
    words = "--types F32 Q4_1 Q6_K --tokens 1 3 --contexts 40 --rows 64 --cols 256 --memory 1"

    kernels.main([*words.split(), "--runs", "1", "--threads", "1", "--out", str(out)])

    rows = json.loads(out.read_text())["rows"]
    products = {
        (row["type"], row["activations"], row["tokens"]) for row in rows if row["op"] == "linear"
    }
    assert 2 * (1 + 2 + 2) == len(products)
    assert {"rms_norm", "quantise", "silu_gate", "silu", "add", "attention"} < {
        row["op"] for row in rows
    }
    assert all(row["share"] > 0 and row["us"] > 0 for row in rows)


def test_a_row_is_measured_by_the_nearer_roof() -> None:
    """Bandwidth for one token, operations for many; each kind of activations by its own best."""
    rows = [
        {"activations": "int8", "gb_s": 8.0, "gop_s": 20.0},
        {"activations": "int8", "gb_s": 1.0, "gop_s": 200.0},
        {"activations": "float32", "gb_s": 1.0, "gop_s": 50.0},
    ]

    roofs = add_shares(rows, 10.0)

    assert {"read_gb_s": 10.0, "float32_gop_s": 50.0, "int8_gop_s": 200.0} == roofs
    assert [0.8, 1.0, 1.0] == [row["share"] for row in rows]
