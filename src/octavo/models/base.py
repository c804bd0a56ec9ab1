"""The contract of a model file."""

from __future__ import annotations

from typing import Protocol, TypeVar

from octavo.config.model_facts import ModelFacts
from octavo.ops.ops import Ops
from octavo.ops.weights import Weights

T = TypeVar("T")


class CausalLM(Protocol):
    """A model. The constructor asks for all weights; `forward` is pure arithmetic over them."""

    def __init__(self, facts: ModelFacts, weights: Weights, max_model_len: int) -> None: ...

    def forward(self, ops: Ops[T]) -> T:
        """From the step's tokens to the logits, or vectors, of the wanted rows."""
