"""Views of parts of a stored tensor. Nothing is copied here: rows are put in order when read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from octavo import _native
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import RowSource, TensorView, WeightType

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


def is_float(view: TensorView) -> bool:
    """Whether elements stand alone."""
    return view.type in _FLOATS


def turned_floats(view: TensorView) -> TensorView:
    """A quantised matrix turned, as float32 numbers.

    Raises UnsupportedModelError where its columns stand in another order.
    """
    check_columns(view)
    rows, cols = view.shape
    return TensorView(
        view.name, WeightType.F32, (cols, rows), memoryview(b""), source=_TurnedFloats(view)
    )


def check_rows(view: TensorView, needed: int) -> None:
    """Raises CorruptFileError unless a tensor has so many rows."""
    if view.shape[0] != needed:
        raise CorruptFileError(
            f"tensor {view.name} has {view.shape[0]} rows, the model needs {needed}"
        )


def rows_of(view: TensorView, name: str, rows: Sequence[int]) -> TensorView:
    """Some rows of a view. Neighbours are a slice of its bytes."""
    shape = (len(rows), *view.shape[1:])
    is_plain = view.row_order is None and view.source is None
    if is_plain and isinstance(rows, range) and rows.step == 1:
        data = view.data[rows.start * view.row_bytes : rows.stop * view.row_bytes]
        return replace(view, name=name, shape=shape, data=data)
    if view.row_order is not None:
        rows = [view.row_order[row] for row in rows]
    return replace(view, name=name, shape=shape, row_order=rows)


def matrix_of(view: TensorView, name: str, index: int) -> TensorView:
    """One of the matrices, or of the vectors, that a tensor stacks along its first dimension."""
    assert view.row_order is None, view.name
    own = replace(view, name=name, shape=view.shape[1:])
    if view.source is not None:
        num_rows = math.prod(view.shape[1:-1])
        return replace(own, source=_LaterRows(view.source, index * num_rows))
    size = view.row_bytes
    return replace(own, data=view.data[index * size : (index + 1) * size])


def check_columns(view: TensorView) -> None:
    """Raises UnsupportedModelError for a matrix whose input has to be put into another order."""
    if view.columns:
        raise UnsupportedModelError(
            f"tensor {view.name} has its columns in another order (desc_act of GPTQ), which is "
            "not supported for experts and latent attention; use a checkpoint without desc_act"
        )


class _TurnedFloats(msgspec.Struct, frozen=True):
    """Columns of a quantised matrix as rows of floats. Satisfies `RowSource`."""

    view: TensorView

    @property
    def data(self) -> Sequence[memoryview]:
        """See `RowSource`."""
        return self.view.parts

    @property
    def recipe(self) -> tuple[object, ...]:
        """See `RowSource`."""
        return ("turned", *self.view.recipe)

    def rows(self, first: int, end: int) -> bytes:
        """See `RowSource`."""
        cols = self.view.shape[1]
        numbers = _native.float_rows(self.view.type, self.view.rows_in_order(), cols)
        elements = memoryview(numbers).cast("f")
        return b"".join(elements[column::cols].tobytes() for column in range(first, end))


class _LaterRows(msgspec.Struct, frozen=True):
    """The rows of a source from one of them on. Satisfies `RowSource`."""

    source: RowSource
    skipped: int

    @property
    def data(self) -> Sequence[memoryview]:
        """See `RowSource`."""
        return self.source.data

    @property
    def recipe(self) -> tuple[object, ...]:
        """See `RowSource`."""
        return (self.skipped, *self.source.recipe)

    def rows(self, first: int, end: int) -> bytes:
        """See `RowSource`."""
        return self.source.rows(self.skipped + first, self.skipped + end)
