"""What stands on top of the layers: the logits of a vocabulary, or vectors of whole prompts.

Owns the last norm, which rows are taken, and what is computed of them. Does not know which tokens a
wanted row stands for: that is the step's knowledge.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import DenseFacts, ModelFacts
from octavo.models.layers import Norm, output_head
from octavo.ops.ops import Ops
from octavo.ops.weights import Embedding, Weights

T = TypeVar("T")


class LogitsHead:
    """Norm, then the product with the vocabulary."""

    def __init__(self, facts: ModelFacts, weights: Weights, embedding: Embedding) -> None:
        self._norm = Norm(facts, weights, "model.norm")
        self._matrix = output_head(facts, weights, embedding)
        self._scale, self._soft_cap = facts.logits_scale, facts.logits_soft_cap

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size] -> logits of the wanted rows: [num_wanted, vocab_size]."""
        x = self._norm(ops, ops.wanted_rows(x))
        return ops.logits(x, self._matrix, scale=self._scale, soft_cap=self._soft_cap)


class PoolingHead:
    """Norm where the model has one, pooling, then small layers."""

    def __init__(self, facts: ModelFacts, weights: Weights) -> None:
        assert facts.pooling is not None, facts
        self._norm = Norm(facts, weights, "model.norm") if facts.final_norm else None
        self._averages = facts.pooling.method == "mean"
        self._layers: list[Dense] = []
        width = facts.hidden_size
        for layer in facts.pooling.layers:
            self._layers.append(Dense(facts, weights, layer, width))
            width = layer.out_features

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size] -> [num_wanted, width of the last layer]."""
        if not self._averages:
            x = ops.wanted_rows(x)
        if self._norm is not None:
            x = self._norm(ops, x)
        if self._averages:
            x = ops.mean_rows(x)
        for layer in self._layers:
            x = layer(ops, x)
        return x


class Dense:
    """`norm(act(x W + b))`, each part where the facts have it."""

    def __init__(
        self, facts: ModelFacts, weights: Weights, layer: DenseFacts, in_features: int
    ) -> None:
        self._matrix = weights.linear(
            [layer.name], [layer.out_features], in_features, bias=layer.bias
        )
        self._activation = layer.activation
        self._norm = Norm(facts, weights, layer.norm) if layer.norm else None

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, in_features] -> [rows, out_features]."""
        x = ops.linear(x, self._matrix)
        if self._activation is not None:
            x = ops.activation(x, self._activation)
        return x if self._norm is None else self._norm(ops, x)


def head(facts: ModelFacts, weights: Weights, embedding: Embedding) -> LogitsHead | PoolingHead:
    """The head of the kind that the facts say."""
    if facts.pooling is not None:
        return PoolingHead(facts, weights)
    return LogitsHead(facts, weights, embedding)
