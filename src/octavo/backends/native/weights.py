"""NativeWeights: tensors of a checkpoint, checked when a model asks, packed when they are loaded.

Owns the checks of names, shapes and types and the choice of the type in memory. Packing itself is
C++. Asking twice for the same thing gives the same handle, so a model may be built more than once.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from octavo import _native
from octavo.backends.native.float_values import FLOAT_TYPES, float_values
from octavo.backends.native.operations import RoundedInputs
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.ops.weights import Embedding, Linear, Vector, VectorEnding
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.inventory import Inventory
from octavo.weights.mapped_file import let_go

PANEL_ROWS = 8
BATCH_BYTES = 4 << 20  # that are packed at a time, and let go of
PIECE_BYTES = 2 << 20  # of one tensor among them
MADE_BYTES = 1 << 20  # the same where rows are made first, by one thread for each piece
_ROUNDINGS = {"int8": _native.Rounding.INT8, "bfloat16": _native.Rounding.BFLOAT16}


class _Fill(msgspec.Struct, frozen=True):
    """A tensor that waits to be packed."""

    matrix: int
    source: int
    view: TensorView


class _Piece(NamedTuple):
    """Rows of it."""

    fill: _Fill
    first_row: int
    data: memoryview


class NativeWeights:
    """The `Weights` of the native back end; a handle is an id of `native`.

    `float_type` is the type in memory of unquantised matrices; None keeps the checkpoint's own.
    """

    def __init__(
        self, tensors: Mapping[str, TensorView], float_type: WeightType | None = None
    ) -> None:
        self.native = _native.Weights()
        self._inventory = Inventory(tensors)
        self._float_type = float_type
        self._ids: dict[tuple[object, ...], int] = {}
        self._fills: list[_Fill] = []
        self._biases: list[tuple[int, list[TensorView]]] = []
        self._part_types: dict[int, set[WeightType]] = {}

    def embedding(self, name: str, vocab_size: int, hidden_size: int) -> Embedding:
        """See `ops.weights.Weights`."""
        return Embedding(vocab_size, hidden_size, self._matrix((name,), (vocab_size,), hidden_size))

    def linear(
        self, names: list[str], out_features: list[int], in_features: int, *, bias: bool = False
    ) -> Linear:
        """See `ops.weights.Weights`."""
        handle = self._matrix(tuple(names), tuple(out_features), in_features, bias=bias)
        order = self._order(self._inventory.columns_of(names))
        return Linear(sum(out_features), in_features, tuple(out_features), handle, order)

    def tied_linear(self, embedding: Embedding) -> Linear:
        """See `ops.weights.Weights`."""
        rows = embedding.vocab_size
        return Linear(rows, embedding.hidden_size, (rows,), embedding.handle)

    def constant(self, size: int, value: float) -> Vector:
        """See `ops.weights.Weights`."""
        key = ("constant", size, value)
        if key not in self._ids:
            self._ids[key] = self.native.add_vector(array("f", [value]) * size)
        return Vector(size, self._ids[key])

    def vector(
        self, name: str, size: int, *, offset: float = 0.0, ending: VectorEnding = "weight"
    ) -> Vector:
        """See `ops.weights.Weights`."""
        key = ("vector", name, ending, size, offset)
        if key not in self._ids:
            view = self._inventory.find(f"{name}.{ending}", (size,))
            values = array("f") if view is None else _finite_values(view)
            if offset:
                values = array("f", [value + offset for value in values])
            self._ids[key] = self.native.add_vector(values)
        return Vector(size, self._ids[key])

    def _order(self, columns: tuple[int, ...]) -> int | None:
        if not columns:
            return None
        key = ("order", columns)
        if key not in self._ids:
            self._ids[key] = self.native.add_order(columns)
        return self._ids[key]

    @property
    def num_bytes(self) -> int:
        """Memory of all that was asked for, whether loaded yet or not."""
        return self.native.num_bytes

    def rounded_inputs(self, activation_dtype: str) -> RoundedInputs:
        """What multiplies activations of this type ("int8", "bfloat16"), where it is able to."""
        matrices = {
            matrix: not all(type.takes(activation_dtype) for type in types)
            for matrix, types in self._part_types.items()
            if any(type.takes(activation_dtype) for type in types)
        }
        return RoundedInputs(_ROUNDINGS[activation_dtype], matrices)

    def verify(self) -> None:
        """Raises CorruptFileError that lists tensors that are missing or left over."""
        self._inventory.verify()

    def load(self, threads: _native.ThreadPool, report: Callable[[float], None]) -> None:
        """Read and pack everything, once; `report` is told the share done.

        Pages of the file are let go of as soon as they are packed, so that memory never holds much
        more than the packed weights. Raises CorruptFileError for numbers that are not finite.
        """
        self.native.allocate()
        total = sum(fill.view.num_bytes for fill in self._fills)
        done = 0
        with ThreadPoolExecutor(threads.num_threads, "octavo-rows") as makers:
            for pieces in _batches(self._fills, makers, threads.num_threads):
                self._pack(pieces, threads)
                done += sum(piece.data.nbytes for piece in pieces)
                report(min(1.0, done / total))
        for matrix, views in self._biases:
            values = array("f")
            for view in views:
                values.extend(_finite_values(view))
            self.native.set_bias(matrix, values)

    def _pack(self, pieces: Sequence[_Piece], threads: _native.ThreadPool) -> None:
        """In one call, for each one more waits for whoever has the interpreter meanwhile."""
        count, why = self.native.fill_all(
            threads,
            [
                (fill.matrix, fill.source, fill.view.type, data, fill.view.interleaved_heads, first)
                for fill, first, data in pieces
            ],
        )
        if why:
            name = pieces[count].fill.view.name
            raise CorruptFileError(f"tensor {name} cannot be used: {why}")
        for part in {
            id(part.obj): part for piece in pieces for part in piece.fill.view.parts
        }.values():
            let_go(part)

    def _matrix(
        self, names: tuple[str, ...], rows: tuple[int, ...], cols: int, *, bias: bool = False
    ) -> int:
        key = ("matrix", names, rows, cols, bias)
        if key in self._ids:
            return self._ids[key]
        named_rows = list(zip(names, rows, strict=True))
        find = self._inventory.find
        views = [find(f"{name}.weight", (num_rows, cols)) for name, num_rows in named_rows]
        # What is missing takes a place all the same, so that everything that is missing gets known.
        types = [WeightType.F32 if view is None else self._type_in_memory(view) for view in views]
        matrix = self.native.add_matrix(cols, list(zip(types, rows, strict=True)))
        self._part_types[matrix] = set(types)
        self._fills += [
            _Fill(matrix, source, view) for source, view in enumerate(views) if view is not None
        ]
        if bias:
            found = [find(f"{name}.bias", (num_rows,)) for name, num_rows in named_rows]
            self._biases.append((matrix, [view for view in found if view is not None]))
        self._ids[key] = matrix
        return matrix

    def _type_in_memory(self, view: TensorView) -> WeightType:
        if view.type in FLOAT_TYPES:
            return self._float_type or view.type
        if view.shape[1] % view.type.block_elements:
            raise UnsupportedModelError(
                f"tensor {view.name} has rows of {view.shape[1]} elements, no multiple of the "
                f"{view.type.block_elements} that {view.type.name} stores together"
            )
        return view.type


def _batches(
    fills: Iterable[_Fill], makers: ThreadPoolExecutor, num_threads: int
) -> Iterator[list[_Piece]]:
    """All pieces, a few megabytes together."""
    batch: list[_Piece] = []
    num_bytes = 0
    for fill in fills:
        is_made = fill.view.source is not None
        pieces = _made_pieces(fill.view, makers, num_threads) if is_made else _pieces(fill.view)
        for first, data in pieces:
            batch.append(_Piece(fill, first, data))
            num_bytes += data.nbytes
            if num_bytes >= BATCH_BYTES:
                yield batch
                batch, num_bytes = [], 0
    if batch:
        yield batch


def _pieces(view: TensorView) -> Iterator[tuple[int, memoryview]]:
    """(first row, rows from there on) of a tensor, whole panels of a few megabytes each."""
    for first, end in _ranges(view, PIECE_BYTES):
        yield first, view.rows(first, end)


def _made_pieces(
    view: TensorView, makers: ThreadPoolExecutor, ahead: int
) -> Iterator[tuple[int, memoryview]]:
    """The same, made side by side, at most `ahead` of them before they are asked for."""
    pieces: deque[tuple[int, Future[memoryview]]] = deque()
    for first, end in _ranges(view, MADE_BYTES):
        pieces.append((first, makers.submit(view.rows, first, end)))
        if len(pieces) > ahead:
            done, rows = pieces.popleft()
            yield done, rows.result()
    for done, rows in pieces:
        yield done, rows.result()


def _ranges(view: TensorView, num_bytes: int) -> Iterator[tuple[int, int]]:
    """First rows and ends of pieces that are packed on their own."""
    num_rows = view.shape[0]
    if view.interleaved_heads or len(view.shape) != 2:
        yield 0, num_rows
        return
    step = max(num_bytes // view.row_bytes // PANEL_ROWS, 1) * PANEL_ROWS
    for first in range(0, num_rows, step):
        yield first, min(first + step, num_rows)


def _finite_values(view: TensorView) -> array[float]:
    """The elements of a vector. Raises CorruptFileError where one is no finite number."""
    values = float_values(view)
    if not all(map(math.isfinite, values)):
        raise CorruptFileError(f"tensor {view.name} holds a number that is not finite")
    return values
