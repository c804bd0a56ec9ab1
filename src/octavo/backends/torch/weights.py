"""TorchWeights: what a model asked for, and later the tensors themselves.

Owns the checks of names and shapes while a model is built, and the reading afterwards. A handle is
the description of a tensor (`Stack`), so nothing is read before `load`; ops look it up in the
result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from octavo.backends.torch.dequantise import dequantise
from octavo.ops.weights import Embedding, Linear, Vector, VectorEnding
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.inventory import Inventory

_TYPES = {
    torch.float32: WeightType.F32,
    torch.float16: WeightType.F16,
    torch.bfloat16: WeightType.BF16,
}
_FLOAT_TYPES = tuple(_TYPES.values())


@dataclass(frozen=True, slots=True)
class Stack:
    """Tensors of the checkpoint on top of each other, plus a constant."""

    names: tuple[str, ...]
    offset: float = 0.0


@dataclass(frozen=True, slots=True)
class LinearHandle:
    """Where the parts of a `Linear` are found."""

    matrix: Stack
    bias: Stack | None = None
    activation_dtype: str = "float32"  # to which some parts round activations
    rounded_parts: tuple[bool, ...] = ()  # which ones; empty: none


class ModelWeights(Protocol):
    """What the runner does with weights, whoever reads them."""

    @property
    def num_bytes(self) -> int:
        """Memory of all of them."""

    @property
    def has_rounded_inputs(self) -> bool:
        """Whether any matrix multiplies rounded activations."""

    def verify(self) -> None:
        """Raises CorruptFileError that lists tensors that are missing or left over."""

    def load(self, device: torch.device, report: Callable[[float], None]) -> dict[Stack, Tensor]:
        """Read everything onto `device`; `report` is told the share done."""


class TorchWeights:
    """The `Weights` of the torch back end. All tensors become float32.

    `matrix_dtype` rounds unquantised matrices first; None keeps the checkpoint's own numbers.
    `activation_dtype`: to what activations are rounded where a matrix takes it.
    """

    def __init__(
        self,
        tensors: Mapping[str, TensorView],
        matrix_dtype: torch.dtype | None = None,
        *,
        activation_dtype: str = "float32",
    ) -> None:
        self._views = tensors
        self._inventory = Inventory(tensors)
        self._activation_dtype = activation_dtype
        self._matrix_dtype = matrix_dtype
        self._shapes: dict[Stack, tuple[int, ...]] = {}  # what was asked for, in order

    def embedding(self, name: str, vocab_size: int, hidden_size: int) -> Embedding:
        """See `ops.weights.Weights`."""
        handle = self._ask(Stack((f"{name}.weight",)), [(vocab_size, hidden_size)])
        return Embedding(vocab_size, hidden_size, handle)

    def linear(
        self, names: list[str], out_features: list[int], in_features: int, *, bias: bool = False
    ) -> Linear:
        """See `ops.weights.Weights`."""
        matrix = self._ask(
            Stack(tuple(f"{name}.weight" for name in names)),
            [(out, in_features) for out in out_features],
        )
        bias_stack = None
        if bias:
            bias_stack = self._ask(
                Stack(tuple(f"{name}.bias" for name in names)), [(out,) for out in out_features]
            )
        handle = self._handle(matrix, bias_stack)
        order = self._inventory.columns_of(names) or None
        return Linear(sum(out_features), in_features, tuple(out_features), handle, order)

    def tied_linear(self, embedding: Embedding) -> Linear:
        """See `ops.weights.Weights`."""
        assert isinstance(embedding.handle, Stack)
        handle = self._handle(embedding.handle)
        rows = embedding.vocab_size
        return Linear(rows, embedding.hidden_size, (rows,), handle)

    def constant(self, size: int, value: float) -> Vector:
        """See `ops.weights.Weights`."""
        stack = Stack((), value)
        self._shapes[stack] = (size,)
        return Vector(size, stack)

    def vector(
        self, name: str, size: int, *, offset: float = 0.0, ending: VectorEnding = "weight"
    ) -> Vector:
        """See `ops.weights.Weights`."""
        return Vector(size, self._ask(Stack((f"{name}.{ending}",), offset), [(size,)]))

    @property
    def num_bytes(self) -> int:
        """Memory of all that was asked for."""
        return 4 * sum(math.prod(shape) for shape in self._shapes.values())

    def verify(self) -> None:
        """Raises CorruptFileError that lists tensors that are missing or left over."""
        self._inventory.verify()

    def load(self, device: torch.device, report: Callable[[float], None]) -> dict[Stack, Tensor]:
        """Read everything onto `device`; `report` is told the share done."""
        loaded: dict[Stack, Tensor] = {}
        for done, (stack, shape) in enumerate(self._shapes.items(), start=1):
            parts = [self._read(self._views[name]) for name in stack.names]
            rows = torch.cat(parts) if parts else torch.zeros(shape)
            loaded[stack] = rows.add_(stack.offset).reshape(shape).to(device)
            report(done / len(self._shapes))
        return loaded

    def _read(self, view: TensorView) -> Tensor:
        elements = dequantise(view)
        if self._matrix_dtype is None or elements.dim() == 1 or view.type not in _FLOAT_TYPES:
            return elements
        return elements.to(self._matrix_dtype).float()

    def _handle(self, matrix: Stack, bias: Stack | None = None) -> LinearHandle:
        parts = tuple(map(self._takes_rounded, matrix.names))
        return LinearHandle(matrix, bias, self._activation_dtype, parts if any(parts) else ())

    @property
    def has_rounded_inputs(self) -> bool:
        """Whether anything that was asked for is of a type that takes them."""
        names = {name for stack in self._shapes for name in stack.names}
        return any(map(self._takes_rounded, names))

    def _takes_rounded(self, name: str) -> bool:
        view = self._views.get(name)
        if view is None or len(view.shape) == 1:
            return False
        type = view.type
        if self._matrix_dtype is not None and type in _FLOAT_TYPES:
            type = _TYPES[self._matrix_dtype]
        return type.takes(self._activation_dtype)

    def _ask(self, stack: Stack, shapes: list[tuple[int, ...]]) -> Stack:
        """Note that `stack` is used, after a look at the shape of each of its tensors."""
        for name, shape in zip(stack.names, shapes, strict=True):
            self._inventory.find(name, shape)
        rows = sum(shape[0] for shape in shapes)
        self._shapes[stack] = (rows, *shapes[0][1:])
        return stack
