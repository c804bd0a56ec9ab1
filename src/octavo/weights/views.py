"""Views of parts of a stored tensor. Nothing is copied here: rows are put in order when read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType

_FLOATS = (WeightType.F32, WeightType.F16, WeightType.BF16)


def transposed(view: TensorView) -> TensorView:
    """A matrix that lies as [in_features, out_features], turned.

    Raises UnsupportedModelError for a quantised one.
    """
    if view.type not in _FLOATS or len(view.shape) != 2:
        raise UnsupportedModelError(
            f"tensor {view.name} of type {view.type.name} lies transposed; only matrices of "
            f"{', '.join(kind.name for kind in _FLOATS)} can be turned"
        )
    rows = view.shape[1]
    return replace(view, shape=(rows, view.shape[0]), row_order=range(rows), transposed=True)


def check_rows(view: TensorView, needed: int) -> None:
    """Raises CorruptFileError unless a tensor has so many rows."""
    if view.shape[0] != needed:
        raise CorruptFileError(
            f"tensor {view.name} has {view.shape[0]} rows, the model needs {needed}"
        )


def rows_of(view: TensorView, name: str, rows: Sequence[int]) -> TensorView:
    """Some rows of a view. Neighbours are a slice of its bytes."""
    shape = (len(rows), *view.shape[1:])
    if isinstance(rows, range) and rows.step == 1 and view.row_order is None:
        data = view.data[rows.start * view.row_bytes : rows.stop * view.row_bytes]
        return replace(view, name=name, shape=shape, data=data)
    if view.row_order is not None:
        rows = [view.row_order[row] for row in rows]
    return replace(view, name=name, shape=shape, row_order=rows)
