"""Falcon-H1 (TII 2025): attention and Mamba-2 side by side in every layer, with factors instead of
learned scales.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts
from octavo.models.decoder import Decoder, Layer
from octavo.models.layers import Attention, Norm, down_projection, gate_up_projection, gated_by
from octavo.models.token_mixer import state_mixer
from octavo.ops.ops import Ops
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Weights

T = TypeVar("T")


class ParallelLayer:
    """Both mixers behind one norm, added up; then an MLP."""

    def __init__(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> None:
        name = f"model.layers.{index}"
        assert facts.branch_scales is not None, facts
        self._scales = facts.branch_scales
        self._mixer_norm = Norm(facts, weights, f"{name}.input_layernorm")
        self._state = state_mixer(facts, weights, index)
        self._attention = Attention(facts, weights, index, f"{name}.self_attn", rope)
        self._mlp_norm = Norm(facts, weights, f"{name}.post_attention_layernorm")
        size, bias = facts.intermediate_size, facts.mlp_bias
        self._gate_up = gate_up_projection(facts, weights, f"{name}.mlp", size, bias=bias)
        self._down = down_projection(facts, weights, f"{name}.mlp", size, bias=bias)
        self._size, self._activation = size, facts.hidden_act

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        scales, normed = self._scales, self._mixer_norm(ops, x)
        mixed = self._state(ops, ops.scale(normed, scales.state_in))
        attended = self._attention(ops, ops.scale(normed, scales.attention_in))
        mixed = ops.scale(mixed, scales.state_out)
        x = ops.add(x, ops.add(mixed, ops.scale(attended, scales.attention_out)))
        return ops.add(x, self._mlp(ops, self._mlp_norm(ops, x)))

    def _mlp(self, ops: Ops[T], x: T) -> T:
        gate, up = ops.split(ops.linear(x, self._gate_up), (self._size, self._size))
        gate = ops.scale(gate, self._scales.mlp_gate)
        inner = gated_by(ops, gate, up, self._size, self._activation)
        return ops.scale(ops.linear(inner, self._down), self._scales.mlp_down)


class FalconH1(Decoder):
    """FalconH1ForCausalLM."""

    def make_layer(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> Layer:
        """See `Decoder`."""
        return ParallelLayer(facts, weights, index, rope)
