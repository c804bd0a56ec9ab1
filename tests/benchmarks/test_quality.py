"""The quality benchmark: rounding to weight types, comparing readings, its page."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from benchmarks.quality.__main__ import KV_TYPES, WEIGHTS, cases
from benchmarks.quality.page import page
from benchmarks.quality.reading import Reading, Types, compare, divergence, read
from benchmarks.quality.requantise import ENCODERS, FALLBACK, as_type
from octavo.backends.torch.dequantise import dequantise
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.gguf_checkpoint import open_gguf
from octavo.weights.hf_folder import open_folder
from tests.support.data import smollm2_path
from tests.support.tiny_models import make_oracle, save_folder

MODEL = "llama"
# Largest error in shares of the largest number of a row of 256 normal ones.
ERRORS = {
    WeightType.F32: 0.0,
    WeightType.F16: 2**-11,
    WeightType.BF16: 2**-8,
    WeightType.Q8_0: 0.5 / 127,
    WeightType.Q6_K: 1 / 31,
    WeightType.Q5_1: 1 / 31,
    WeightType.Q5_K: 1 / 31 + 1 / 63,
    WeightType.Q5_0: 1 / 16,
    WeightType.Q4_1: 1 / 15,
    WeightType.Q4_K: 1 / 15 + 1 / 63,
    WeightType.Q4_0: 1 / 8,
}


def matrix(cols: int = 256) -> TensorView:
    numbers = torch.randn(24, cols, generator=torch.Generator().manual_seed(3))
    return TensorView("w", WeightType.F32, (24, cols), memoryview(numbers.numpy().tobytes()))


@pytest.mark.parametrize("type", ENCODERS)
def test_rounding_to_a_weight_type_comes_back_near(type: WeightType) -> None:
    """Every type that it makes, read by the definition of its bytes."""
    exact = dequantise(matrix())
    found = dequantise(as_type(matrix(), type))
    largest = exact.abs().amax(dim=1, keepdim=True)

    assert set(ENCODERS) == set(ERRORS)
    assert float(((found - exact).abs() / largest).max()) <= ERRORS[type] * 1.02
    assert type is WeightType.F32 or float((found - exact).abs().max()) > 0


def test_rows_too_short_for_a_type_of_256_get_one_of_32() -> None:
    assert as_type(matrix(96), WeightType.Q4_K).type is FALLBACK[WeightType.Q4_K]


def test_zeros_stay_zeros() -> None:
    """A scale of zero divides nothing."""
    empty = TensorView("w", WeightType.F32, (2, 256), memoryview(bytes(2048)))
    for type in ENCODERS:
        assert not dequantise(as_type(empty, type)).any()


def test_a_reading_is_the_models_own_losses_and_distributions(tmp_path: Any) -> None:
    """Against transformers, over two pieces of different lengths."""
    oracle = make_oracle(MODEL)
    save_folder(oracle, MODEL, tmp_path)
    pieces = [list(range(5, 90)), list(range(100, 130))]
    expected = []
    for piece in pieces:
        with torch.inference_mode():
            scores = oracle(torch.tensor([piece])).logits[0].log_softmax(dim=1)
        expected.append(scores)
    losses = torch.cat(
        [
            -scores[:-1].gather(1, torch.tensor(piece[1:])[:, None])[:, 0]
            for scores, piece in zip(expected, pieces, strict=True)
        ]
    )

    found = read(open_folder(tmp_path), pieces, Types(), every=16)

    torch.testing.assert_close(found.losses.float(), losses, rtol=1e-4, atol=1e-4)
    places = torch.cat([s[:-1][::16] for s in expected])
    torch.testing.assert_close(found.distributions, places, rtol=1e-4, atol=1e-3)


def reading(losses: list[float], distributions: torch.Tensor) -> Reading:
    return Reading(torch.tensor(losses, dtype=torch.float64), distributions, 1, 2.0)


def test_growth_is_the_mean_difference_of_losses() -> None:
    even = torch.full((1, 4), 0.25).log()
    found = compare(reading([1.0, 2.0, 3.0], even), reading([1.1, 2.1, 3.1], even))

    assert found["growth_percent"] == pytest.approx(100 * math.expm1(0.1))
    assert found["standard_error_percent"] == pytest.approx(0, abs=1e-9)
    assert found["perplexity"] == pytest.approx(math.exp(2.1))
    assert found["divergence_nats"] == 0


def test_divergence_is_kullback_leiblers() -> None:
    first, second = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.9, 0.1]])
    expected = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)

    assert divergence(first.log(), second.log()) == pytest.approx(expected, rel=1e-5)


def test_weights_are_read_with_all_activations_that_they_take() -> None:
    found = cases(WEIGHTS, KV_TYPES)

    assert {case.types.kv_cache_dtype for case in found} == {"float32", *KV_TYPES}
    for name in WEIGHTS:
        activations = {case.types.activation_dtype for case in found if case.weights == name}
        more = {"F16": set(), "BF16": {"bfloat16"}}.get(name, {"int8"})
        assert activations == {"float32", *more}


def row(weights: str, activations: str, growth: float) -> dict[str, Any]:
    return {
        "weights": weights,
        "activations": activations,
        "kv": "float32",
        "perplexity": 20.0,
        "growth_percent": growth,
        "standard_error_percent": 0.1,
        "divergence_nats": 0.01,
    }


def test_the_page_says_which_limits_are_kept() -> None:
    rows = [row("Q8_0", "float32", 0.7), row("Q4_1", "float32", 3.0), row("Q4_1", "int8", 3.5)]
    text = page(
        [
            {
                "model": "m",
                "text": "a play",
                "scored_tokens": 10,
                "compared_distributions": 2,
                "date": "today",
                "commit": "abc",
                "cpu": "a cpu",
                "rows": rows,
            }
        ]
    )

    assert "| Q8_0 | float32 | float32 | 20.000 | +0.70 ± 0.10 | 0.01000 |" in text
    assert "m, Q8_0 weights: +0.70 % of 0.5 %, **broken**" in text
    assert "m, int8 activations with weights Q4_1: +0.49 % of 1.0 %, kept" in text


def test_the_real_model_can_be_stored_in_every_type() -> None:
    """Rows of SmolLM2 have 576 and 1536 numbers."""
    tensors = open_gguf(smollm2_path()).tensors
    view = tensors["model.layers.0.self_attn.k_proj.weight"]
    for type in ENCODERS:
        stored = as_type(view, type)
        assert len(stored.data) == stored.type.num_bytes(math.prod(view.shape))
