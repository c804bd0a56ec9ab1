"""Decoder: what all models share, encoders too. An architecture says how one layer is wired.

Owns the way from tokens to the head and which layer rotates by which frequencies. Does not know
what a layer computes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, TypeVar

from octavo.config.model_facts import ModelFacts, RopeFacts
from octavo.models.heads import head
from octavo.models.layers import EmbeddingSum
from octavo.ops.ops import Ops
from octavo.ops.rope import RopeTable, rope_table
from octavo.ops.weights import Weights

T = TypeVar("T")


class Layer(Protocol):
    """One layer."""

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""


class Decoder(ABC):
    """Embeddings, layers, head."""

    def __init__(self, facts: ModelFacts, weights: Weights, max_model_len: int) -> None:
        self._embeddings = EmbeddingSum(facts, weights)
        tables = {
            rope: rope_table(rope, max_model_len)
            for rope in {_rope_of(facts, layer): None for layer in range(facts.num_layers)}
            if rope is not None
        }
        self._layers = []
        for index in range(facts.num_layers):
            rope = _rope_of(facts, index)
            table = None if rope is None else tables[rope]
            self._layers.append(self.make_layer(facts, weights, index, table))
        self._head = head(facts, weights, self._embeddings.tokens)

    @abstractmethod
    def make_layer(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> Layer:
        """Layer `index`, which asks for its weights; `rope` is None where nothing is rotated."""

    def forward(self, ops: Ops[T]) -> T:
        """Logits or vectors of the wanted rows: [num_wanted, width]."""
        x = self._embeddings(ops)
        for layer in self._layers:
            x = layer(ops, x)
        return self._head(ops, x)


def _rope_of(facts: ModelFacts, layer: int) -> RopeFacts | None:
    """What the layer rotates by."""
    if facts.learned_positions or facts.alibi:
        return None
    if layer in facts.layers_without_rope or layer in facts.layers_without_attention:
        return None
    return (facts.local_rope or facts.rope) if facts.window_of(layer) else facts.rope
