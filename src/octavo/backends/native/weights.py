"""NativeWeights: tensors of a checkpoint, checked when a model asks, packed when they are loaded.

Owns the checks of names, shapes and types and the choice of the type in memory. Packing itself is
C++. Asking twice for the same thing gives the same handle, so a model may be built more than once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from octavo import _native
from octavo.backends.native.float_values import FLOAT_TYPES, float_values
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.ops.weights import Embedding, Linear, Vector, VectorEnding
from octavo.weights.checkpoint import DERIVED_ENDINGS, TensorView, WeightType


@dataclass(frozen=True, slots=True)
class _Fill:
    """A tensor that waits to be packed."""

    matrix: int
    source: int
    view: TensorView


class NativeWeights:
    """The `Weights` of the native back end; a handle is an id of `native`.

    `float_type` is the type in memory of unquantised matrices; None keeps the checkpoint's own.
    """

    def __init__(
        self, tensors: Mapping[str, TensorView], float_type: WeightType | None = None
    ) -> None:
        self.native = _native.Weights()
        self._tensors = tensors
        self._float_type = float_type
        self._used: set[str] = set()
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
        return Linear(sum(out_features), in_features, tuple(out_features), handle)

    def tied_linear(self, embedding: Embedding) -> Linear:
        """See `ops.weights.Weights`."""
        rows = embedding.vocab_size
        return Linear(rows, embedding.hidden_size, (rows,), embedding.handle)

    def vector(
        self, name: str, size: int, *, offset: float = 0.0, ending: VectorEnding = "weight"
    ) -> Vector:
        """See `ops.weights.Weights`."""
        key = ("vector", name, ending, size, offset)
        if key not in self._ids:
            values = float_values(self._find(f"{name}.{ending}", (size,)))
            if offset:
                values = array("f", [value + offset for value in values])
            self._ids[key] = self.native.add_vector(values)
        return Vector(size, self._ids[key])

    @property
    def num_bytes(self) -> int:
        """Memory of all that was asked for, whether loaded yet or not."""
        return self.native.num_bytes

    @property
    def quantised_matrices(self) -> dict[int, bool]:
        """Ids of matrices with quantised parts -> whether there are parts of another type too."""
        return {
            matrix: not types.isdisjoint(FLOAT_TYPES)
            for matrix, types in self._part_types.items()
            if not types.issubset(FLOAT_TYPES)
        }

    @property
    def unused_names(self) -> list[str]:
        """Tensors of the checkpoint that nobody asked for and that do not follow from the rest."""
        return [
            name
            for name in self._tensors
            if name not in self._used and not name.endswith(DERIVED_ENDINGS)
        ]

    def load(self, threads: _native.ThreadPool, report: Callable[[float], None]) -> None:
        """Read and pack everything, once; `report` is told the share done."""
        self.native.allocate()
        total = sum(fill.view.data.nbytes for fill in self._fills)
        done = 0
        for fill in self._fills:
            view = fill.view
            self.native.fill(
                threads,
                fill.matrix,
                fill.source,
                view.type,
                view.rows_in_order(),
                view.interleaved_heads,
            )
            done += view.data.nbytes
            report(done / total)
        for matrix, views in self._biases:
            values = array("f")
            for view in views:
                values.extend(float_values(view))
            self.native.set_bias(matrix, values)

    def _matrix(
        self, names: tuple[str, ...], rows: tuple[int, ...], cols: int, *, bias: bool = False
    ) -> int:
        key = ("matrix", names, rows, cols, bias)
        if key in self._ids:
            return self._ids[key]
        views = [
            self._find(f"{name}.weight", (part_rows, cols))
            for name, part_rows in zip(names, rows, strict=True)
        ]
        sources = [(self._type_in_memory(view), view.shape[0]) for view in views]
        matrix = self.native.add_matrix(cols, sources)
        self._part_types[matrix] = {type for type, _ in sources}
        self._fills += [_Fill(matrix, source, view) for source, view in enumerate(views)]
        if bias:
            shapes = zip(names, rows, strict=True)
            self._biases.append((matrix, [self._find(f"{n}.bias", (r,)) for n, r in shapes]))
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

    def _find(self, name: str, shape: tuple[int, ...]) -> TensorView:
        """The tensor `name`, marked as used."""
        view = self._tensors.get(name)
        if view is None:
            raise CorruptFileError(f"the model file has no tensor {name}")
        if tuple(view.shape) != shape:
            raise CorruptFileError(
                f"tensor {name} has shape {list(view.shape)}, the model needs {list(shape)}"
            )
        self._used.add(name)
        return view
