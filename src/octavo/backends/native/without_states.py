"""WithoutStates: the ops that the native back end does not have, those of layers with a state.

Owns the refusal.
"""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

from octavo.errors import UnsupportedModelError
from octavo.ops.ops import StateSpec
from octavo.ops.weights import Linear, StateSpaceWeights, Vector

T = TypeVar("T")


class WithoutStates(Generic[T]):
    """Raises UnsupportedModelError for each of them."""

    def group_norm(self, x: T, weight: Vector, num_groups: int, eps: float) -> T:
        """See `ops.ops.Ops`."""
        refuse_states()

    def short_conv(self, x: T, kernel: Linear, layer: int) -> T:
        """See `ops.ops.Ops`."""
        refuse_states()

    def state_space(
        self, x: T, steps: T, inputs: T, outputs: T, weights: StateSpaceWeights, spec: StateSpec
    ) -> T:
        """See `ops.ops.Ops`."""
        refuse_states()

    def delta_rule(
        self, q: T, k: T, v: T, gates: tuple[T, T], weights: StateSpaceWeights, spec: StateSpec
    ) -> T:
        """See `ops.ops.Ops`."""
        refuse_states()


def refuse_states() -> NoReturn:
    """Raise UnsupportedModelError."""
    raise UnsupportedModelError(
        "this model has layers that carry a state from token to token (Mamba, gated delta rule), "
        "which the native back end does not compute; use --backend torch"
    )
