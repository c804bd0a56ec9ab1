"""Decoder: what all decoders share. An architecture says how one layer is wired.

Owns the way from tokens to logits and which layer rotates by which frequencies. Does not know what
a layer computes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol, TypeVar

from octavo.config.model_facts import ModelFacts, RopeFacts
from octavo.models.layers import Norm, embedding_table, output_head, position_table
from octavo.ops.ops import Ops
from octavo.ops.rope import RopeTable, rope_table
from octavo.ops.weights import Weights

T = TypeVar("T")


class Layer(Protocol):
    """One layer of a decoder."""

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""


class Decoder(ABC):
    """Embedding, layers, norm, head."""

    def __init__(self, facts: ModelFacts, weights: Weights, max_model_len: int) -> None:
        self._facts = facts
        self._embedding = embedding_table(facts, weights)
        self._positions = position_table(facts, weights) if facts.learned_positions else None
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
        self._norm = Norm(facts, weights, "model.norm")
        self._head = output_head(facts, weights, self._embedding)

    @abstractmethod
    def make_layer(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> Layer:
        """Layer `index`, which asks for its weights; `rope` is None where nothing is rotated."""

    def forward(self, ops: Ops[T]) -> T:
        """Logits of the wanted rows: [num_wanted, vocab_size]."""
        facts = self._facts
        x = ops.embed(self._embedding, scale=facts.embedding_scale)
        if self._positions is not None:
            x = ops.add(x, ops.embed_positions(self._positions))
        for layer in self._layers:
            x = layer(ops, x)
        x = self._norm(ops, ops.wanted_rows(x))
        return ops.logits(x, self._head, scale=facts.logits_scale, soft_cap=facts.logits_soft_cap)


def _rope_of(facts: ModelFacts, layer: int) -> RopeFacts | None:
    """What the layer rotates by."""
    if facts.learned_positions or layer in facts.layers_without_rope:
        return None
    return (facts.local_rope or facts.rope) if facts.window_of(layer) else facts.rope
