"""Gemma 2 and 3 (Gemma Team 2024, 2025): every block is normed before and after.

Embeddings are scaled and norm weights start from one; Gemma 2 caps its scores, Gemma 3 norms its
queries and keys. Some layers look back through a window only, in Gemma 3 with frequencies of their
own. GLM-4 (2024) is wired in the same way.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts
from octavo.models.decoder import Decoder, Layer
from octavo.models.layers import Attention, Norm
from octavo.models.moe import feed_forward
from octavo.ops.ops import Ops
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Weights

T = TypeVar("T")


class SandwichLayer:
    """Attention, then MLP, each between two norms and added to the residual stream."""

    def __init__(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> None:
        name = f"model.layers.{index}"
        self._before_attention = Norm(facts, weights, f"{name}.input_layernorm")
        self._attention = Attention(facts, weights, index, f"{name}.self_attn", rope)
        self._after_attention = Norm(facts, weights, f"{name}.post_attention_layernorm")
        self._before_mlp = Norm(facts, weights, f"{name}.pre_feedforward_layernorm")
        self._mlp = feed_forward(facts, weights, index)
        self._after_mlp = Norm(facts, weights, f"{name}.post_feedforward_layernorm")

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        attended = self._attention(ops, self._before_attention(ops, x))
        x = ops.add(x, self._after_attention(ops, attended))
        transformed = self._mlp(ops, self._before_mlp(ops, x))
        return ops.add(x, self._after_mlp(ops, transformed))


class Gemma2(Decoder):
    """Gemma2ForCausalLM, Gemma3 with its part for images left out, and Glm4ForCausalLM."""

    def make_layer(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> Layer:
        """See `Decoder`."""
        return SandwichLayer(facts, weights, index, rope)
