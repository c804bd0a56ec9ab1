"""Llama (Touvron et al. 2023): pre-norm layers of grouped-query attention and a SiLU-gated MLP.

Most decoders since are this wiring with other facts: biases, q/k norms, windows, layers without
rotary positions, layer norms, plain MLPs, learned positions, multipliers. The registry lists them.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts
from octavo.models.decoder import Decoder, Layer
from octavo.models.latent_attention import self_attention
from octavo.models.layers import Norm
from octavo.models.moe import feed_forward
from octavo.ops.ops import Ops
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Weights

T = TypeVar("T")


class PreNormLayer:
    """Attention, then MLP, each behind a norm and added to the residual stream."""

    def __init__(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> None:
        name = f"model.layers.{index}"
        self._attention_norm = Norm(facts, weights, f"{name}.input_layernorm")
        self._attention = self_attention(facts, weights, index, f"{name}.self_attn", rope)
        self._mlp_norm = Norm(facts, weights, f"{name}.post_attention_layernorm")
        self._mlp = feed_forward(facts, weights, index)
        self._scale = facts.residual_scale

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        x = self._add(ops, x, self._attention(ops, self._attention_norm(ops, x)))
        return self._add(ops, x, self._mlp(ops, self._mlp_norm(ops, x)))

    def _add(self, ops: Ops[T], x: T, change: T) -> T:
        return ops.add(x, change if self._scale == 1.0 else ops.scale(change, self._scale))


class Llama(Decoder):
    """LlamaForCausalLM and its many kin."""

    def make_layer(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> Layer:
        """See `Decoder`."""
        return PreNormLayer(facts, weights, index, rope)
