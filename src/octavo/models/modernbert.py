"""ModernBERT (Warner et al. 2024): an encoder with rotary positions and gated MLPs.

Layers are those of Llama, except that the first one has no norm before its attention: the
embeddings have just been normed. Two of three layers see a window to either side, with a base of
their own.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts
from octavo.models.decoder import Decoder, Layer
from octavo.models.layers import Attention, Norm
from octavo.models.llama import PreNormLayer
from octavo.models.moe import feed_forward
from octavo.ops.ops import Ops
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Weights

T = TypeVar("T")


class FirstLayer:
    """`x + attention(x)`, then the MLP behind a norm."""

    def __init__(self, facts: ModelFacts, weights: Weights, rope: RopeTable | None) -> None:
        name = "model.layers.0"
        self._attention = Attention(facts, weights, 0, f"{name}.self_attn", rope)
        self._mlp_norm = Norm(facts, weights, f"{name}.post_attention_layernorm")
        self._mlp = feed_forward(facts, weights, 0)

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        x = ops.add(x, self._attention(ops, x))
        return ops.add(x, self._mlp(ops, self._mlp_norm(ops, x)))


class ModernBert(Decoder):
    """ModernBertModel and ModernBertForSequenceClassification."""

    def make_layer(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> Layer:
        """See `Decoder`."""
        if index == 0:
            return FirstLayer(facts, weights, rope)
        return PreNormLayer(facts, weights, index, rope)
