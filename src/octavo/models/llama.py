"""Llama (Touvron et al. 2023): pre-norm layers of grouped-query attention and a SiLU-gated MLP.

Mistral (Jiang et al. 2023) is the same arithmetic; its window, where it has one, is in the facts.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts
from octavo.models.layers import PreNormLayer, RmsNorm, embedding_table, output_head
from octavo.ops.ops import Ops
from octavo.ops.rope import rope_table
from octavo.ops.weights import Weights

T = TypeVar("T")


class Llama:
    """LlamaForCausalLM and MistralForCausalLM."""

    def __init__(self, facts: ModelFacts, weights: Weights, max_model_len: int) -> None:
        rope = rope_table(facts.rope, max_model_len)
        self._facts = facts
        self._embedding = embedding_table(facts, weights)
        self._layers = [PreNormLayer(facts, weights, i, rope) for i in range(facts.num_layers)]
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
