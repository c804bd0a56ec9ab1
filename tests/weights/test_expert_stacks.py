"""Experts that lie on top of each other are taken apart without a copy, whatever their layout."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest

from octavo.config.model_facts import MoeFacts
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.arrangement import Arrangement, arranged
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.expert_stacks import StackLayout, experts_apart
from octavo.weights.gguf_repack import repacked_view
from tests.support.random_checkpoint import tiny_facts
from tests.support.random_weights import random_repacked_rows

STEM = "model.layers.0.mlp.experts"
MOE = MoeFacts(num_experts=2, num_chosen=1, intermediate_size=2, layers=(0,))
FACTS = tiny_facts()


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


def test_experts_of_a_type_without_kernels_are_made_row_by_row() -> None:
    """Each expert's rows are those of the whole stack, in their place."""
    data = memoryview(random_repacked_rows(16, 8, 256, seed=1).tobytes())
    whole = repacked_view(f"{STEM}.gate_up_proj.weight", 16, (2, 4, 256), data)
    size = whole.type.num_bytes(2 * 256)  # two rows
    stored = whole.rows_in_order()

    parts = list(experts_apart(whole.name, whole, MOE, StackLayout()))
    made = {part.name.removeprefix(f"{STEM}."): part.rows_in_order() for part in parts}
    places = ("0.gate_proj.weight", "0.up_proj.weight", "1.gate_proj.weight", "1.up_proj.weight")
    assert made == {name: stored[i * size : (i + 1) * size] for i, name in enumerate(places)}
    assert parts[3].rows(1, 2) == stored[7 * size // 2 :]


def test_experts_with_their_columns_out_of_order_are_refused() -> None:
    """One input goes to many experts, so none can have it in an order of its own."""
    name = f"{STEM}.1.up_proj.weight"
    view = TensorView(name, WeightType.INT4_32, (1, 32), memoryview(bytes(24)))
    assert list(arranged({name: view}, FACTS, Arrangement())) == [name]
    with pytest.raises(UnsupportedModelError, match=rf"{name} has its columns in another order"):
        arranged({name: replace(view, columns=tuple(range(31, -1, -1)))}, FACTS, Arrangement())
