"""The table of architectures."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.errors import UnsupportedModelError
from octavo.models.registry import ARCHITECTURES, model_class
from octavo.weights import hf_states as states
from octavo.weights.gguf_names import ARCHITECTURES as GGUF_ARCHITECTURES
from octavo.weights.hf_config import SUPPORTED_ARCHITECTURES
from octavo.weights.hf_families import FAMILIES, base_architecture


def test_every_architecture_that_can_be_read_can_be_computed() -> None:
    """The readers of both kinds of files promise nothing that has no model."""
    from_gguf = {architecture.hf_name for architecture in GGUF_ARCHITECTURES.values()}

    assert set(ARCHITECTURES) == SUPPORTED_ARCHITECTURES | from_gguf
    assert all(callable(model_class(name)) for name in ARCHITECTURES)


def test_every_architecture_has_a_line_in_the_table_of_measured_differences() -> None:
    """And the table has no others, so that it promises what a test ran."""
    page = Path(__file__).parents[2] / "docs" / "models.md"
    table, _, _ = page.read_text(encoding="utf-8").partition("# Quantisation")
    rows = [line.split("|") for line in table.splitlines()]
    measured = [cells for cells in rows if len(cells) == 7 and "e-" in "".join(cells[2:])]
    listed = {cells[1].strip() for cells in measured}
    on_torch_alone = {cells[1].strip() for cells in measured if "e-" not in cells[2] + cells[3]}

    assert set(ARCHITECTURES) == {base_architecture(name) or name for name in listed}
    with_states = {
        name for name, family in FAMILIES.items() if family.adjust.__module__ == states.__name__
    }
    assert on_torch_alone == with_states


def test_an_unknown_architecture_is_refused_with_the_known_ones() -> None:
    """The message names the nearest as well."""
    with pytest.raises(
        UnsupportedModelError, match=r"LlamaForCausalM.*mean.*LlamaForCausalLM.*Qwen3"
    ):
        model_class("LlamaForCausalM")
