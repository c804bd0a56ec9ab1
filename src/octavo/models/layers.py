"""Parts that several architectures share: norms, self-attention, gated MLP, embedding and head.

Owns which weights a part asks for and in what order its arithmetic runs. Does not know devices,
batches or caches. A part is called with the ops and the activations: `x = part(ops, x)`.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts
from octavo.ops.ops import AttentionSpec, Ops
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Embedding, Linear, Weights

T = TypeVar("T")


class RmsNorm:
    """Root mean square norm of whole rows."""

    def __init__(self, facts: ModelFacts, weights: Weights, name: str) -> None:
        self._weight = weights.vector(name, facts.hidden_size, offset=facts.norm_weight_offset)
        self._eps = facts.rms_norm_eps

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        return ops.rms_norm(x, self._weight, self._eps)


class HeadNorm:
    """Root mean square norm of each head on its own: the q/k norm."""

    def __init__(self, facts: ModelFacts, weights: Weights, name: str) -> None:
        self._weight = weights.vector(name, facts.head_dim, offset=facts.norm_weight_offset)
        self._eps = facts.rms_norm_eps

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, heads * head_dim], result alike."""
        return ops.head_norm(x, self._weight, self._eps)


class Attention:
    """Self-attention with grouped KV heads and rotary positions; a q/k norm where the facts say so.

    One product makes queries, keys and values.
    """

    def __init__(
        self, facts: ModelFacts, weights: Weights, layer: int, name: str, rope: RopeTable
    ) -> None:
        q_width = facts.num_heads * facts.head_dim
        kv_width = facts.num_kv_heads * facts.head_dim
        self._widths = (q_width, kv_width, kv_width)
        self._qkv = weights.linear(
            [f"{name}.q_proj", f"{name}.k_proj", f"{name}.v_proj"],
            list(self._widths),
            facts.hidden_size,
            bias=facts.attention_bias,
        )
        self._q_norm = HeadNorm(facts, weights, f"{name}.q_norm") if facts.qk_norm else None
        self._k_norm = HeadNorm(facts, weights, f"{name}.k_norm") if facts.qk_norm else None
        self._out = weights.linear(
            [f"{name}.o_proj"], [facts.hidden_size], q_width, bias=facts.attention_out_bias
        )
        self._rope = rope
        self._spec = AttentionSpec(
            layer=layer,
            num_heads=facts.num_heads,
            num_kv_heads=facts.num_kv_heads,
            head_dim=facts.head_dim,
            scale=facts.attention_scale,
            window=facts.window_of(layer),
            soft_cap=facts.attention_soft_cap,
        )

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        q, k, v = ops.split(ops.linear(x, self._qkv), self._widths)
        if self._q_norm is not None and self._k_norm is not None:
            q, k = self._q_norm(ops, q), self._k_norm(ops, k)
        q = ops.rotary(q, self._rope, self._spec.head_dim)
        k = ops.rotary(k, self._rope, self._spec.head_dim)
        return ops.linear(ops.attention(q, k, v, self._spec), self._out)


class GatedMlp:
    """`down(act(gate(x)) * up(x))` (Shazeer 2020)."""

    def __init__(self, facts: ModelFacts, weights: Weights, name: str) -> None:
        self._gate_up = weights.linear(
            [f"{name}.gate_proj", f"{name}.up_proj"],
            [facts.intermediate_size, facts.intermediate_size],
            facts.hidden_size,
            bias=facts.mlp_bias,
        )
        self._down = weights.linear(
            [f"{name}.down_proj"],
            [facts.hidden_size],
            facts.intermediate_size,
            bias=facts.mlp_bias,
        )
        self._activation = facts.hidden_act

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        return ops.linear(ops.gated(ops.linear(x, self._gate_up), self._activation), self._down)


class PreNormLayer:
    """Attention, then MLP, each behind a norm and added to the residual stream."""

    def __init__(self, facts: ModelFacts, weights: Weights, layer: int, rope: RopeTable) -> None:
        name = f"model.layers.{layer}"
        self._attention_norm = RmsNorm(facts, weights, f"{name}.input_layernorm")
        self._attention = Attention(facts, weights, layer, f"{name}.self_attn", rope)
        self._mlp_norm = RmsNorm(facts, weights, f"{name}.post_attention_layernorm")
        self._mlp = GatedMlp(facts, weights, f"{name}.mlp")

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        x = ops.add(x, self._attention(ops, self._attention_norm(ops, x)))
        return ops.add(x, self._mlp(ops, self._mlp_norm(ops, x)))


def embedding_table(facts: ModelFacts, weights: Weights) -> Embedding:
    """The vectors of the vocabulary."""
    return weights.embedding("model.embed_tokens", facts.vocab_size, facts.hidden_size)


def output_head(facts: ModelFacts, weights: Weights, embedding: Embedding) -> Linear:
    """The matrix that makes logits: its own, or the embedding table once more."""
    if facts.tie_word_embeddings:
        return weights.tied_linear(embedding)
    return weights.linear(["lm_head"], [facts.vocab_size], facts.hidden_size)
