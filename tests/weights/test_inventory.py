"""What a model file has against what its architecture needs."""

from __future__ import annotations

import pytest

from octavo.errors import CorruptFileError
from octavo.weights.inventory import MAX_LISTED, MAX_MISSING, Inventory
from tests.support.random_checkpoint import tensor_of


def inventory(*names: str) -> Inventory:
    return Inventory({name: tensor_of(name, (2,), [1.0, 2.0]) for name in names})


def test_a_file_with_exactly_what_is_needed_passes() -> None:
    tensors = inventory("a.weight", "b.weight")
    for name in ("a.weight", "b.weight", "a.weight"):
        assert tensors.find(name, (2,)) is not None
    tensors.verify()


def test_what_is_missing_and_what_is_left_over_are_told_in_one_sentence() -> None:
    """With the shape that is needed."""
    tensors = inventory("a.weight", "c.weight", "d.weight")
    tensors.find("a.weight", (2,))
    assert tensors.find("b.weight", (3, 4)) is None
    with pytest.raises(CorruptFileError) as caught:
        tensors.verify()
    assert "no tensor b.weight [3, 4]" in str(caught.value)
    assert "no place for the tensor c.weight, d.weight" in str(caught.value)


def test_a_long_list_is_cut_and_counted() -> None:
    tensors = inventory(*(f"t{number}" for number in range(MAX_LISTED + 3)))
    with pytest.raises(CorruptFileError, match="and 3 more") as caught:
        tensors.verify()
    assert f"t{MAX_LISTED}" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.rotary_emb.inv_freq", "h.0.attn.bias", "lm_head.weight"]
)
def test_what_follows_from_the_rest_may_be_there(name: str) -> None:
    tensors = inventory(name)
    tensors.verify()
    assert tensors.surplus == []


def test_a_search_for_far_too_much_ends_early() -> None:
    """A false number of layers or experts must not ask for millions of tensors."""
    tensors = inventory("a.weight")
    for number in range(MAX_MISSING):
        assert tensors.find(f"t{number}.weight", (2,)) is None

    with pytest.raises(CorruptFileError, match=r"no tensor t0\.weight \[2\].* more$"):
        tensors.find("one.weight", (2,))
