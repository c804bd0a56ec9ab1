"""Llama (Touvron et al. 2023): pre-norm layers of grouped-query attention and a SiLU-gated MLP.

Most decoders since are this wiring with other facts: biases, q/k norms, windows, layers without
rotary positions or without attention, layer norms, plain MLPs, learned positions, multipliers. The
registry lists them.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts
from octavo.models.decoder import Decoder, Layer
from octavo.models.layers import Norm
from octavo.models.moe import feed_forward
from octavo.models.token_mixer import token_mixer
from octavo.ops.ops import Ops
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Weights

T = TypeVar("T")


class PreNormLayer:
    """A token mixer, then an MLP, each behind a norm and added to the residual stream."""

    def __init__(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> None:
        name = f"model.layers.{index}"
        self._mixer_norm = Norm(facts, weights, f"{name}.input_layernorm")
        self._mixer = token_mixer(facts, weights, index, rope)
        self._mlp_norm = Norm(facts, weights, f"{name}.post_attention_layernorm")
        self._mlp = feed_forward(facts, weights, index)
        self._scale = facts.residual_scale

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        x = self._add(ops, x, self._mixer(ops, self._mixer_norm(ops, x)))
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
