"""Floats that are quantised while they are loaded: --quantization int8, int4 or fp8.

Owns which matrices that is: the projections of the layers. Embeddings, the output matrix, routers
and norms stay as they are, as in vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from octavo import _native
from octavo.config.engine import QUANTISATION_ALIASES
from octavo.errors import ConfigError, UnsupportedModelError
from octavo.weights.blame import about
from octavo.weights.checkpoint import Checkpoint, TensorView, WeightType
from octavo.weights.stored_tensor import FLOATS

# Option -> types, the first whose block divides a row is taken.
ONLINE: dict[str, tuple[WeightType, ...]] = {
    "int8": (WeightType.Q8_0,),
    "int4": (WeightType.Q4_1,),
    "fp8": (WeightType.FP8_128, WeightType.FP8_32),
}
_LAYERS, _PROJECTION = "model.layers.", "_proj.weight"


@dataclass(frozen=True, slots=True)
class QuantisedRows:
    """Float rows, rounded when they are read. Satisfies `RowSource`."""

    view: TensorView
    to: WeightType

    @property
    def data(self) -> tuple[memoryview, ...]:
        """See `RowSource`."""
        return tuple(self.view.parts)

    @property
    def recipe(self) -> tuple[object, ...]:
        """See `RowSource`."""
        return ("rounded", int(self.to), *self.view.recipe)

    def rows(self, first: int, end: int) -> bytes:
        """See `RowSource`."""
        floats = self.view.rows(first, end)
        return _native.quantise_rows(self.view.type, floats, self.view.shape[1], self.to)


def is_projection(view: TensorView) -> bool:
    """Whether a tensor is a matrix that is quantised."""
    name = view.name
    is_named = name.startswith(_LAYERS) and name.endswith(_PROJECTION)
    return is_named and len(view.shape) == 2 and view.type in FLOATS.values()


def quantised(view: TensorView, types: tuple[WeightType, ...]) -> TensorView:
    """The matrix in the first of `types` whose blocks divide its rows.

    Raises UnsupportedModelError where there is none.
    """
    cols = view.shape[1]
    fitting = [type for type in types if cols % type.block_elements == 0]
    if not fitting:
        raise UnsupportedModelError(
            f"tensor {view.name} has rows of {cols}, which cannot be quantised: no multiple of "
            f"{min(type.block_elements for type in types)}"
        )
    return replace(
        view,
        type=fitting[0],
        data=memoryview(b""),
        source=QuantisedRows(view, fitting[0]),
        row_order=None,
        transposed=False,
    )


def online_types(asked: str, found: str | None, name: str) -> tuple[WeightType, ...] | None:
    """What --quantization makes of the checkpoint `name`, which has the method `found`; None: what
    it is already.

    Raises ConfigError where the option contradicts the checkpoint.
    """
    method = QUANTISATION_ALIASES.get(asked, asked)
    if method in ("auto", found):
        return None
    if found is not None:
        raise ConfigError(
            f"--quantization {asked} contradicts the checkpoint {name}, which is quantised with "
            f"{found}; leave --quantization out"
        )
    if method not in ONLINE:
        raise ConfigError(
            f"--quantization {asked} contradicts the checkpoint {name}, which is not quantised; "
            f"use {', '.join(ONLINE)} to quantise it while it is loaded"
        )
    return ONLINE[method]


def with_quantisation(checkpoint: Checkpoint, asked: str) -> Checkpoint:
    """The checkpoint as --quantization wants it; "auto" takes it as it is.

    Raises ConfigError where the option contradicts the checkpoint, UnsupportedModelError for a
    matrix that cannot be quantised.
    """
    types = online_types(asked, checkpoint.quantisation, checkpoint.name)
    if types is None:
        return checkpoint
    with about(checkpoint.where):
        tensors = {
            name: quantised(view, types) if is_projection(view) else view
            for name, view in checkpoint.tensors.items()
        }
    return cast(Checkpoint, replace(cast(Any, checkpoint), tensors=tensors))
