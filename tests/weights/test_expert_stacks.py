"""Experts that lie on top of each other are taken apart without a copy, whatever their layout."""

from __future__ import annotations

from array import array

import pytest

from octavo.config.model_facts import MoeFacts
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.expert_stacks import StackLayout, experts_apart

STEM = "model.layers.0.mlp.experts"
MOE = MoeFacts(num_experts=2, num_chosen=1, intermediate_size=2, layers=(0,))


def stack(shape: tuple[int, ...], part: str = "gate_up_proj.weight") -> TensorView:
    count = 1
    for length in shape:
        count *= length
    numbers = array("f", range(count))
    return TensorView(f"{STEM}.{part}", WeightType.F32, shape, memoryview(numbers).cast("B"))


def rows(view: TensorView) -> list[list[float]]:
    numbers = list(view.rows_in_order().cast("B").cast("f"))
    width = len(numbers) // view.shape[0]
    return [numbers[i : i + width] for i in range(0, len(numbers), width)]


def apart(view: TensorView, layout: StackLayout) -> dict[str, list[list[float]]]:
    parts = experts_apart(view.name, view, MOE, layout)
    return {part.name.removeprefix(f"{STEM}."): rows(part) for part in parts}


def test_gate_and_up_are_halves_of_each_expert() -> None:
    """Two experts of four rows: the first two are the gate's."""
    found = apart(stack((2, 4, 3)), StackLayout())
    assert found["0.gate_proj.weight"] == [[0, 1, 2], [3, 4, 5]]
    assert found["1.up_proj.weight"] == [[18, 19, 20], [21, 22, 23]]


def test_rows_may_alternate_and_matrices_lie_transposed() -> None:
    """As gpt-oss keeps them: [in_features, out_features], gate and up in turns; biases alike."""
    layout = StackLayout(transposed=True, alternating=True)
    found = apart(stack((2, 3, 4)), layout)
    assert found["0.gate_proj.weight"] == [[0, 4, 8], [2, 6, 10]]
    assert found["1.up_proj.weight"] == [[13, 17, 21], [15, 19, 23]]
    assert apart(stack((2, 4), "gate_up_proj.bias"), layout)["1.up_proj.bias"] == [[5], [7]]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 4, 3), "it must stack 2 matrices"),
        ((2, 12), "it must stack 2 matrices"),
        ((2, 6, 3), "6 rows for an expert, the model needs 4"),
    ],
)
def test_stacks_of_the_wrong_size_are_refused(shape: tuple[int, ...], message: str) -> None:
    """With the tensor's name and what is needed."""
    with pytest.raises(CorruptFileError, match=message):
        apart(stack(shape), StackLayout())


def test_quantised_matrices_are_not_turned() -> None:
    """Rather than read as if they lay the other way."""
    view = TensorView(
        f"{STEM}.down_proj.weight", WeightType.Q8_0, (2, 1, 32), memoryview(bytes(68))
    )
    with pytest.raises(UnsupportedModelError, match="lies transposed"):
        apart(view, StackLayout(transposed=True))
