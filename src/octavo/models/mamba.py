"""Layers of one part each: a state-space mixer, attention, or an MLP behind a norm (Mamba-2, Dao
and Gu 2024; Nemotron-H, NVIDIA 2025).
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


class SinglePartLayer:
    """One part behind a norm, added to the residual stream."""

    def __init__(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> None:
        assert facts.state is not None, facts
        self._norm = Norm(facts, weights, f"model.layers.{index}.input_layernorm")
        is_mixer = index in facts.state.layers or index not in facts.layers_without_attention
        self._part = (
            token_mixer(facts, weights, index, rope)
            if is_mixer
            else feed_forward(facts, weights, index)
        )

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        return ops.add(x, self._part(ops, self._norm(ops, x)))


class MambaModel(Decoder):
    """Mamba2ForCausalLM and NemotronHForCausalLM."""

    def make_layer(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> Layer:
        """See `Decoder`."""
        return SinglePartLayer(facts, weights, index, rope)
