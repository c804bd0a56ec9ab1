"""Fused, transposed and reordered tensors become the ones that a model asks for."""

from __future__ import annotations

from array import array

import pytest

from octavo.errors import CorruptFileError
from octavo.weights.arrangement import Arrangement, arranged
from octavo.weights.checkpoint import TensorView, WeightType
from tests.support.random_checkpoint import tiny_facts

# Four query heads and two KV heads of four rows, in a hidden state of three.
FACTS = tiny_facts(num_heads=4, num_kv_heads=2, head_dim=4, hidden_size=3, intermediate_size=5)
ATTENTION, MLP = "model.layers.0.self_attn", "model.layers.0.mlp"


def numbered(name: str, num_rows: int, num_cols: int = 3) -> TensorView:
    """A matrix whose element at row r, column c is 100 r + c."""
    values = array("f", [100.0 * r + c for r in range(num_rows) for c in range(num_cols)])
    return TensorView(name, WeightType.F32, (num_rows, num_cols), memoryview(values).cast("B"))


def rows_of(view: TensorView) -> list[int]:
    """Which rows of the stored matrix a view has, in its order."""
    values = view.rows_in_order().cast("f")
    num_rows, num_cols = view.shape
    rows = [values[row * num_cols : (row + 1) * num_cols].tolist() for row in range(num_rows)]
    assert all(row == [row[0] + c for c in range(num_cols)] for row in rows)
    return [int(row[0]) // 100 for row in rows]


def parts_of(view: TensorView, arrangement: Arrangement) -> dict[str, TensorView]:
    return arranged({view.name: view}, FACTS, arrangement)


def heads(*numbers: int) -> list[int]:
    return [4 * number + row for number in numbers for row in range(4)]


def test_stacked_queries_keys_and_values_are_slices_of_the_file() -> None:
    """Nothing is copied for them."""
    view = numbered(f"{ATTENTION}.qkv_proj.weight", 32)

    parts = parts_of(view, Arrangement())

    expected = {"q_proj": heads(0, 1, 2, 3), "k_proj": heads(4, 5), "v_proj": heads(6, 7)}
    assert {f"{ATTENTION}.{name}.weight": rows for name, rows in expected.items()} == {
        name: rows_of(part) for name, part in parts.items()
    }
    assert all(part.row_order is None for part in parts.values())


def test_grouped_queries_keys_and_values_are_put_head_to_head() -> None:
    """The file has, for each KV head, its query heads, its key and its value."""
    view = numbered(f"{ATTENTION}.qkv_proj.weight", 32)

    parts = list(parts_of(view, Arrangement(grouped_qkv=True)).values())

    assert [heads(0, 1, 4, 5), heads(2, 6), heads(3, 7)] == [rows_of(part) for part in parts]


def test_a_fused_bias_is_taken_apart_like_its_matrix() -> None:
    """One number for each row."""
    values = array("f", range(32))
    name = f"{ATTENTION}.qkv_proj.bias"
    view = TensorView(name, WeightType.F32, (32,), memoryview(values).cast("B"))

    parts = list(parts_of(view, Arrangement(grouped_qkv=True)).values())

    found = [part.rows_in_order().cast("f").tolist() for part in parts]
    assert [heads(0, 1, 4, 5), heads(2, 6), heads(3, 7)] == found


def test_gate_and_up_are_the_halves_of_a_fused_matrix() -> None:
    """The gate comes first."""
    parts = parts_of(numbered(f"{MLP}.gate_up_proj.weight", 10), Arrangement())

    assert {
        f"{MLP}.gate_proj.weight": [0, 1, 2, 3, 4],
        f"{MLP}.up_proj.weight": [5, 6, 7, 8, 9],
    } == {name: rows_of(part) for name, part in parts.items()}


def test_rotary_pairs_become_halves_in_the_rotated_part_of_each_head() -> None:
    """Rows behind the rotated part stay where they are."""
    facts = tiny_facts(num_heads=2, num_kv_heads=1, head_dim=6, hidden_size=3)
    rope = type(facts.rope)(rotary_dim=4)
    facts = tiny_facts(num_heads=2, num_kv_heads=1, head_dim=6, hidden_size=3, rope=rope)
    tensors = {
        name: numbered(name, 12 if "q" in name[-13:] else 6)
        for name in (f"{ATTENTION}.q_proj.weight", f"{ATTENTION}.k_proj.weight")
    }

    parts = list(arranged(tensors, facts, Arrangement(rotary_pairs=True)).values())

    assert [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11] == rows_of(parts[0])
    assert [0, 2, 1, 3, 4, 5] == rows_of(parts[1])


def test_a_transposed_fused_matrix_gives_columns_as_rows() -> None:
    """As GPT-2 stores its projections."""
    values = array("f", [100.0 * r + c for c in range(3) for r in range(32)])
    name = f"{ATTENTION}.qkv_proj.weight"
    view = TensorView(name, WeightType.F32, (3, 32), memoryview(values).cast("B"))

    parts = parts_of(view, Arrangement(transposed=("self_attn.qkv_proj",)))

    found = [rows_of(part) for part in parts.values()]
    assert [heads(0, 1, 2, 3), heads(4, 5), heads(6, 7)] == found


def test_rows_that_belong_to_no_position_are_skipped() -> None:
    """OPT's table starts with two of them."""
    view = numbered("model.embed_positions.weight", 7)

    (part,) = parts_of(view, Arrangement(skipped_positions=2)).values()

    assert [2, 3, 4, 5, 6] == rows_of(part)


@pytest.mark.parametrize("name", [f"{ATTENTION}.qkv_proj.weight", f"{MLP}.gate_up_proj.weight"])
def test_a_fused_tensor_of_the_wrong_size_is_refused(name: str) -> None:
    """With both numbers."""
    with pytest.raises(CorruptFileError, match=rf"{name} has 33 rows, the model needs (32|10)"):
        parts_of(numbered(name, 33), Arrangement())


def test_a_quantised_matrix_lies_as_every_linear_one_does() -> None:
    """Tools that quantise GPT-2 turn its matrices, which lie transposed as floats."""
    name = f"{MLP}.up_proj.weight"
    view = TensorView(name, WeightType.Q8_0, (3, 32), memoryview(bytes(3 * 34)))

    (part,) = parts_of(view, Arrangement(transposed=("mlp.up_proj",))).values()

    assert part is view
