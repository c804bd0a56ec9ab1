"""BERT (Devlin et al. 2018) and RoBERTa, XLM-RoBERTa (Liu et al. 2019, Conneau et al. 2020).

Every token sees every other. Norms stand behind attention and MLP, on the sum with the residual
stream, and one on the embeddings; positions are learned. Which of two texts a token belongs to is
part of its embedding where the model has segments.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts
from octavo.models.decoder import Decoder, Layer
from octavo.models.olmo2 import PostNormLayer
from octavo.ops.ops import Ops
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Weights

T = TypeVar("T")


class SumNormLayer(PostNormLayer):
    """The same parts in another order: `x = norm(x + attention(x))`, then so with the MLP."""

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        x = self._after_attention(ops, ops.add(x, self._attention(ops, x)))
        return self._after_mlp(ops, ops.add(x, self._mlp(ops, x)))


class Bert(Decoder):
    """BertModel, XLMRobertaModel and those with a classifier on top."""

    def make_layer(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> Layer:
        """See `Decoder`."""
        return SumNormLayer(facts, weights, index, rope)
