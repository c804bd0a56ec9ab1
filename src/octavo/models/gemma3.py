"""Gemma 3 (Gemma Team 2025), the text decoder.

Every block is normed before and after, embeddings are scaled, queries and keys are normed per head,
and five of six layers look back through a window only, with rotary frequencies of their own.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts
from octavo.models.layers import Attention, GatedMlp, RmsNorm, embedding_table, output_head
from octavo.ops.ops import Ops
from octavo.ops.rope import RopeTable, rope_table
from octavo.ops.weights import Weights

T = TypeVar("T")


class Gemma3Layer:
    """Attention, then MLP, each between two norms and added to the residual stream."""

    def __init__(self, facts: ModelFacts, weights: Weights, layer: int, rope: RopeTable) -> None:
        name = f"model.layers.{layer}"
        self._before_attention = RmsNorm(facts, weights, f"{name}.input_layernorm")
        self._attention = Attention(facts, weights, layer, f"{name}.self_attn", rope)
        self._after_attention = RmsNorm(facts, weights, f"{name}.post_attention_layernorm")
        self._before_mlp = RmsNorm(facts, weights, f"{name}.pre_feedforward_layernorm")
        self._mlp = GatedMlp(facts, weights, f"{name}.mlp")
        self._after_mlp = RmsNorm(facts, weights, f"{name}.post_feedforward_layernorm")

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        attended = self._attention(ops, self._before_attention(ops, x))
        x = ops.add(x, self._after_attention(ops, attended))
        transformed = self._mlp(ops, self._before_mlp(ops, x))
        return ops.add(x, self._after_mlp(ops, transformed))


class Gemma3:
    """Gemma3ForCausalLM, and the text part of Gemma3ForConditionalGeneration."""

    def __init__(self, facts: ModelFacts, weights: Weights, max_model_len: int) -> None:
        rope = rope_table(facts.rope, max_model_len)
        window_rope = rope_table(facts.local_rope or facts.rope, max_model_len)
        self._facts = facts
        self._embedding = embedding_table(facts, weights)
        self._layers = [
            Gemma3Layer(facts, weights, i, window_rope if facts.window_of(i) else rope)
            for i in range(facts.num_layers)
        ]
        self._norm = RmsNorm(facts, weights, "model.norm")
        self._head = output_head(facts, weights, self._embedding)

    def forward(self, ops: Ops[T]) -> T:
        """Logits of the wanted rows: [num_wanted, vocab_size]."""
        facts = self._facts
        x = ops.embed(self._embedding, scale=facts.embedding_scale)
        for layer in self._layers:
            x = layer(ops, x)
        x = self._norm(ops, ops.wanted_rows(x))
        return ops.logits(x, self._head, scale=facts.logits_scale, soft_cap=facts.logits_soft_cap)
