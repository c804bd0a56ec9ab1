"""Codes, scales and zero points of a matrix, wherever a format puts them, as a source of rows.

Owns the choice of the type in memory and the checks that belong to all formats. Does not know the
formats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from octavo import _native
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.stored_tensor import StoredTensor, float_view

NATURAL, AWQ_ORDER, UPPER_HALF_FIRST = 0, 1, 2  # WordOrder of csrc/convert.hpp
SCALE_TYPES = {"F32": 0, "F16": 1, "BF16": 30, "F8_E4M3": 200, "F8_E8M0": 201}
FLOAT_SCALES = ("F16", "BF16", "F32")


@dataclass(frozen=True, slots=True)
class Groups:
    """Which scale an element has."""

    cols: int  # that share one
    rows: int = 1
    of_columns: Sequence[int] = ()  # group of each stored column; empty: column // cols
    order: Sequence[int] = ()  # stored column of each column of the result; empty: the same


@dataclass(frozen=True, slots=True)
class Zeros:
    """Zero points: one for all, or a table with a constant that is added to it."""

    constant: int = 0
    table: _native.PackedInts | None = None


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of codes with their scales. Satisfies `RowSource`."""

    to: WeightType
    codes: _native.PackedInts
    scales: _native.Scales
    zeros: Zeros = field(default_factory=Zeros)
    groups: Groups = field(default_factory=lambda: Groups(1))

    @property
    def data(self) -> tuple[memoryview, ...]:
        """See `RowSource`."""
        table = self.zeros.table
        return (self.codes.data, self.scales.data, *(() if table is None else (table.data,)))

    @property
    def recipe(self) -> tuple[object, ...]:
        """See `RowSource`."""
        table, groups = self.zeros.table, self.groups
        zeros = (self.zeros.constant, None if table is None else table.layout)
        order = (tuple(groups.of_columns), tuple(groups.order))
        return (int(self.to), self.codes.layout, self.scales.layout, *zeros, *order)

    def rows(self, first: int, end: int) -> bytes:
        """See `RowSource`."""
        return _native.convert_rows(
            self.to,
            self.codes,
            self.scales,
            self.zeros.table,
            self.zeros.constant,
            self.groups.order,
            self.groups.of_columns,
            (first, end),
        )


def type_for(kind: str, name: str, cols: int, group: int) -> WeightType:
    """INT4, INT8 or FP8 with the block that rows of `cols` columns and their groups allow.

    Raises CorruptFileError for groups that do not divide a row, UnsupportedModelError for those
    that 32 does not divide.
    """
    if group < 1 or cols % group:
        raise CorruptFileError(f"tensor {name}: groups of {group} do not divide rows of {cols}")
    for block in (128, 32):
        if cols % block == 0 and group % block == 0:
            return WeightType[f"{kind}_{block}"]
    raise UnsupportedModelError(
        f"tensor {name}: rows of {cols} in groups of {group}; both must be multiples of 32"
    )


def matrix_view(name: str, shape: tuple[int, int], source: TableRows) -> TensorView:
    """A matrix [out_features, in_features] whose rows are made when they are read."""
    columns = tuple(source.groups.order)
    return TensorView(name, source.to, shape, memoryview(b""), source=source, columns=columns)


def scale_table(
    tensor: StoredTensor,
    shape: tuple[int, int],
    strides: tuple[int, int],
    groups: Groups,
    factor: float = 1.0,
) -> _native.Scales:
    """`shape`: rows and groups of the table, `strides`: elements from one to the next."""
    kind = SCALE_TYPES[tensor.dtype]
    return _native.Scales(tensor.data, kind, shape, strides, (groups.rows, groups.cols), factor)


class Stems:
    """The tensors of a checkpoint, taken by those that know them; what is left must be floats."""

    def __init__(self, tensors: Mapping[str, StoredTensor]) -> None:
        self._left = dict(tensors)

    def with_ending(self, ending: str) -> list[str]:
        """Names of modules that have a tensor with this ending, without it and its dot."""
        dotted = f".{ending}"
        return [name.removesuffix(dotted) for name in self._left if name.endswith(dotted)]

    def names_ending(self, ending: str) -> list[str]:
        """Whole names without their ending, whatever stands before it."""
        return [name.removesuffix(ending) for name in self._left if name.endswith(ending)]

    def take_named(self, name: str) -> StoredTensor:
        """A tensor by its whole name, which must be there."""
        tensor = self._left.pop(name, None)
        if tensor is None:
            raise CorruptFileError(f"the model file has no tensor {name}")
        return tensor

    def find(self, stem: str, ending: str) -> StoredTensor | None:
        """`<stem>.<ending>`, left where it is; None where there is no such tensor."""
        return self._left.get(f"{stem}.{ending}")

    def take(self, stem: str, ending: str) -> StoredTensor:
        """`<stem>.<ending>`, which must be there."""
        return self.take_named(f"{stem}.{ending}")

    def take_optional(self, stem: str, ending: str) -> StoredTensor | None:
        """The same, or None where there is no such tensor."""
        return self._left.pop(f"{stem}.{ending}", None)

    def drop(self, is_dropped: Callable[[str], bool]) -> None:
        """Leave out tensors by name."""
        self._left = {name: tensor for name, tensor in self._left.items() if not is_dropped(name)}

    def floats(self) -> dict[str, TensorView]:
        """Views of all that was not taken. Raises UnsupportedModelError for other types."""
        return {name: float_view(tensor) for name, tensor in self._left.items()}
