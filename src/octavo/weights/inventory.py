"""Inventory: the tensors of a checkpoint, and which of them a model has asked for.

Owns the comparison of what a file has with what its architecture needs: a wrong shape is refused at
once, tensors that are missing or left over together, so that one attempt tells all. Does not know
who asks, nor what is done with a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping

from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import DERIVED_ENDINGS, TensorView

MAX_LISTED = 8
MAX_MISSING = 1000  # so many tell enough: a false count could ask for millions
# Stored by some files beside the embedding that it equals; a model that ties the two never asks.
TIED_HEADS = ("lm_head.weight",)


class Inventory:
    """Tensors by Hugging Face name."""

    def __init__(self, tensors: Mapping[str, TensorView]) -> None:
        self._tensors = tensors
        self._used: set[str] = set()
        self._missing: dict[str, tuple[int, ...]] = {}

    def find(self, name: str, shape: tuple[int, ...]) -> TensorView | None:
        """The tensor `name`, marked as used; None where the file lacks it, which `verify` tells.

        Raises CorruptFileError for another shape, and when far too much is missing.
        """
        view = self._tensors.get(name)
        if view is None:
            self._missing[name] = shape
            if len(self._missing) > MAX_MISSING:
                self.verify()
            return None
        if tuple(view.shape) != shape:
            raise CorruptFileError(
                f"tensor {name} has shape {list(view.shape)}, the model needs {list(shape)}"
            )
        self._used.add(name)
        return view

    def columns_of(self, names: list[str]) -> tuple[int, ...]:
        """The order of columns of the matrices `<name>.weight`, which must be one for all.

        Raises UnsupportedModelError where it is not.
        """
        found = {name: self._tensors.get(f"{name}.weight") for name in names}
        orders = {name: view.columns for name, view in found.items() if view is not None}
        first = next(iter(orders.values()), ())
        for name, columns in orders.items():
            if columns != first:
                raise UnsupportedModelError(
                    f"tensor {name}.weight has its columns in another order than "
                    f"{names[0]}.weight, with which it shares its input"
                )
        return first

    @property
    def surplus(self) -> list[str]:
        """Tensors that nobody asked for and that do not follow from the rest."""
        return [
            name
            for name in self._tensors
            if name not in self._used
            and name not in TIED_HEADS
            and not name.endswith(DERIVED_ENDINGS)
        ]

    def verify(self) -> None:
        """To be called when a model has asked for everything.

        Raises CorruptFileError that lists what is missing and what is left over.
        """
        faults = []
        if self._missing:
            needed = [f"{name} {list(shape)}" for name, shape in self._missing.items()]
            faults.append(f"the model file has no tensor {listed(needed)}")
        surplus = [] if len(self._missing) > MAX_MISSING else self.surplus
        if surplus:
            faults.append(f"the architecture has no place for the tensor {listed(surplus)}")
        if faults:
            raise CorruptFileError("; ".join(faults))


def listed(names: list[str]) -> str:
    """Some names, and how many there are besides."""
    more = len(names) - MAX_LISTED
    shown = ", ".join(names[:MAX_LISTED])
    return f"{shown} and {more} more" if more > 0 else shown
