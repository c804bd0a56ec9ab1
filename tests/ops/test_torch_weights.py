"""What the reference's weights check while a model asks for them, and what they read."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from octavo.backends.torch.weights import LinearHandle, TorchWeights
from octavo.errors import CorruptFileError
from octavo.weights.checkpoint import TensorView, WeightType
from tests.support.random_weights import random_view

CPU = torch.device("cpu")


def float_view(name: str, values: list[float]) -> TensorView:
    data = memoryview(np.array(values, dtype=np.float32).tobytes())
    return TensorView(name, WeightType.F32, (len(values),), data)


def make_weights(dtype: torch.dtype | None = None) -> TorchWeights:
    tensors = {
        "a.weight": random_view("a.weight", WeightType.F32, 3, 32, seed=1),
        "b.weight": random_view("b.weight", WeightType.Q8_0, 2, 32, seed=2),
        "a.bias": float_view("a.bias", [0.1, 0.2, 0.3]),
        "b.bias": float_view("b.bias", [0.4, 0.5]),
        "norm.weight": float_view("norm.weight", [1.5, 0.1]),
    }
    return TorchWeights(tensors, dtype)


def test_a_missing_tensor_is_named_when_the_model_has_asked_for_everything() -> None:
    """Before anything is read; a missing bias as well as a missing matrix."""
    lone = TorchWeights({"lone.weight": random_view("lone.weight", WeightType.F32, 2, 4, seed=3)})
    lone.linear(["lone"], [2], 4, bias=True)
    lone.linear(["other"], [2], 4)
    with pytest.raises(CorruptFileError, match=r"no tensor lone\.bias \[2\], other\.weight"):
        lone.verify()


def test_a_tensor_of_another_shape_is_named_with_both_shapes() -> None:
    """A file whose config does not fit its tensors."""
    with pytest.raises(CorruptFileError, match=r"b\.weight has shape \[2, 32\].*needs \[2, 64\]"):
        make_weights().linear(["b"], [2], 64)
    with pytest.raises(CorruptFileError, match=r"norm\.weight has shape \[2\].*needs \[3\]"):
        make_weights().vector("norm", 3)


def test_stacked_tensors_lie_on_top_of_each_other_with_their_biases() -> None:
    """In the order of the names, whatever their types."""
    weights = make_weights()

    linear = weights.linear(["b", "a"], [2, 3], 32, bias=True)

    assert (5, 32, (2, 3)) == (linear.out_features, linear.in_features, linear.parts)
    loaded = weights.load(CPU, lambda done: None)
    assert isinstance(linear.handle, LinearHandle)
    assert linear.handle.bias is not None
    expected = torch.tensor([0.4, 0.5, 0.1, 0.2, 0.3])
    torch.testing.assert_close(loaded[linear.handle.bias], expected)
    assert (5, 32) == loaded[linear.handle.matrix].shape


def test_loading_reports_its_progress() -> None:
    """The share done ends at one; bytes are those of float32."""
    weights = make_weights()
    weights.vector("norm", 2)
    weights.linear(["a"], [3], 32)
    shares: list[float] = []

    weights.load(CPU, shares.append)

    assert [0.5, 1.0] == shares
    assert weights.num_bytes == 4 * (2 + 3 * 32)


def test_an_offset_is_added_to_a_vector_and_two_offsets_are_two_vectors() -> None:
    """Gemma's norms count from one."""
    weights = make_weights()
    plain, shifted = weights.vector("norm", 2), weights.vector("norm", 2, offset=1.0)

    loaded = weights.load(CPU, lambda done: None)

    torch.testing.assert_close(loaded[plain.handle], torch.tensor([1.5, 0.1]))  # type: ignore[index]
    torch.testing.assert_close(loaded[shifted.handle], torch.tensor([2.5, 1.1]))  # type: ignore[index]


def test_a_wanted_type_rounds_unquantised_matrices_only() -> None:
    """Quantised ones keep their own numbers, vectors stay in float32."""
    exact, rounded = make_weights(), make_weights(torch.bfloat16)
    tables = []
    for weights in (exact, rounded):
        matrix = weights.linear(["a", "b"], [3, 2], 32, bias=True).handle
        assert isinstance(matrix, LinearHandle)
        assert matrix.bias is not None
        loaded = weights.load(CPU, lambda done: None)
        tables.append((loaded[matrix.matrix], loaded[matrix.bias]))

    (exact_matrix, exact_bias), (rounded_matrix, rounded_bias) = tables
    assert torch.equal(exact_matrix[:3].to(torch.bfloat16).float(), rounded_matrix[:3])
    assert not torch.equal(exact_matrix[:3], rounded_matrix[:3])
    assert torch.equal(exact_matrix[3:], rounded_matrix[3:])
    assert torch.equal(exact_bias, rounded_bias)
