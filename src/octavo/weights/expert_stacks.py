"""Experts that a file keeps on top of each other -> each expert on its own.

Owns the taking apart of `mlp.experts.*` tensors, whose first dimension counts experts. Nothing is
copied here: a part is a view of some rows. Does not know names in a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from octavo.config.model_facts import MoeFacts
from octavo.errors import CorruptFileError
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.views import matrix_of, rows_of, transposed

_PARTS = "gate_up_proj|gate_proj|up_proj|down_proj"
_STACK = re.compile(rf"(.+\.mlp\.experts)\.({_PARTS})\.(weight|bias)")


class StackLayout(msgspec.Struct, frozen=True):
    """How a file lays out its stacks."""

    # A matrix is [in_features, out_features]; in MXFP4, as gpt-oss is published, it is not.
    transposed: bool = False
    alternating: bool = False  # of gate and up, fused: a row of one, a row of the other


def is_stack(name: str) -> bool:
    """Whether a tensor, by our name, holds all experts of a layer."""
    return _STACK.fullmatch(name) is not None


def experts_apart(
    name: str, view: TensorView, moe: MoeFacts, layout: StackLayout
) -> Iterator[TensorView]:
    """The tensor of each expert, gate and up apart.

    Raises CorruptFileError for a stack of another number of experts, or of other sizes.
    """
    match = _STACK.fullmatch(name)
    assert match is not None, name
    stem, part, ending = match.groups()
    if view.shape[0] != moe.num_experts or len(view.shape) != (3 if ending == "weight" else 2):
        raise CorruptFileError(
            f"tensor {view.name} has shape {list(view.shape)}; it must stack {moe.num_experts} "
            f"{'matrices' if ending == 'weight' else 'vectors'}"
        )
    for expert in range(moe.num_experts):
        own = matrix_of(view, view.name, expert)
        if layout.transposed and ending == "weight" and own.type is not WeightType.MXFP4:
            own = transposed(own)
        for own_part, rows in _parts(part, own, moe, layout):
            own_name = f"{stem}.{expert}.{own_part}.{ending}"
            yield replace(own, name=own_name) if rows is None else rows_of(own, own_name, rows)


def _parts(
    part: str, view: TensorView, moe: MoeFacts, layout: StackLayout
) -> Iterator[tuple[str, Sequence[int] | None]]:
    """What a tensor is made of, and which rows are what; None: all of them."""
    if part != "gate_up_proj":
        yield part, None
        return
    inner = moe.intermediate_size
    if view.shape[0] != 2 * inner:
        raise CorruptFileError(
            f"tensor {view.name} has {view.shape[0]} rows for an expert, "
            f"the model needs {2 * inner}"
        )
    halves = (range(inner), range(inner, 2 * inner))
    yield from zip(
        ("gate_proj", "up_proj"),
        (range(0, 2 * inner, 2), range(1, 2 * inner, 2)) if layout.alternating else halves,
        strict=True,
    )
