"""The reference's reading of stored numbers, against the gguf package."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from octavo.backends.torch.dequantise import dequantise
from octavo.weights.checkpoint import TensorView, WeightType
from tests.support.random_weights import numbers_of, random_rows, random_view


@pytest.mark.parametrize("type", WeightType)
def test_every_type_means_the_numbers_of_an_independent_reading(type: WeightType) -> None:
    """To the bit, for random bytes of several blocks a row."""
    rows = random_rows(type, 7, 768, seed=3)
    view = TensorView("x", type, (7, 768), memoryview(rows.tobytes()))

    expected = numbers_of(type, rows)

    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(expected, dequantise(view).numpy())


def test_a_table_of_more_blocks_than_are_decoded_at_once_keeps_its_order() -> None:
    """Large tables are decoded piece by piece."""
    rows = random_rows(WeightType.Q8_0, 70_000, 32, seed=4)
    view = TensorView("x", WeightType.Q8_0, (70_000, 32), memoryview(rows.tobytes()))

    np.testing.assert_array_equal(numbers_of(WeightType.Q8_0, rows), dequantise(view).numpy())


@pytest.mark.parametrize("type", [WeightType.F32, WeightType.Q4_0])
def test_rows_in_rotary_pairs_are_put_back_into_halves(type: WeightType) -> None:
    """Stored row h*d + 2*i + j is wanted row h*d + j*d/2 + i."""
    view = random_view("q", type, 3 * 8, 64, seed=5)
    stored = dequantise(view)

    wanted = dequantise(replace(view, interleaved_heads=3))

    for head in range(3):
        for i in range(4):
            for j in range(2):
                assert torch.equal(stored[head * 8 + 2 * i + j], wanted[head * 8 + j * 4 + i])


def test_a_bias_is_put_back_into_halves_as_well() -> None:
    """The converter reorders q and k biases like the rows that they belong to."""
    values = np.arange(8, dtype=np.float32)
    view = TensorView("q", WeightType.F32, (8,), memoryview(values.tobytes()), interleaved_heads=2)

    assert [0.0, 2.0, 1.0, 3.0, 4.0, 6.0, 5.0, 7.0] == dequantise(view).tolist()
