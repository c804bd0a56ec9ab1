"""OLMo 2 and 3 (OLMo Team 2024, 2025): norms stand behind attention and MLP, none before them.

Queries and keys are normed over all heads together. OLMo 3 looks through a window in three of four
layers, with frequencies that no scaling stretches.
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


class PostNormLayer:
    """Attention, then MLP, each normed before it is added to the residual stream."""

    def __init__(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> None:
        name = f"model.layers.{index}"
        self._attention = Attention(facts, weights, index, f"{name}.self_attn", rope)
        self._after_attention = Norm(facts, weights, f"{name}.post_attention_layernorm")
        self._mlp = feed_forward(facts, weights, index)
        self._after_mlp = Norm(facts, weights, f"{name}.post_feedforward_layernorm")

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        x = ops.add(x, self._after_attention(ops, self._attention(ops, x)))
        return ops.add(x, self._after_mlp(ops, self._mlp(ops, x)))


class Olmo2(Decoder):
    """Olmo2ForCausalLM and Olmo3ForCausalLM."""

    def make_layer(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> Layer:
        """See `Decoder`."""
        return PostNormLayer(facts, weights, index, rope)
