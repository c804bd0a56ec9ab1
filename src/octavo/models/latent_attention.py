"""Multi-head latent attention (DeepSeek-AI 2024): one small vector stands for all heads.

Keys and values of all heads are products of a latent vector, and a rotated part of the key is
shared. A head's product is moved to the other side: what would make its key of the latent is
applied to its query, and what would make its value to its result. So the cache holds the latent
vectors alone, as one KV head, whose values are the beginning of the keys once more.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import LatentFacts, ModelFacts
from octavo.models.layers import Attention
from octavo.ops.ops import AttentionSpec, HeadPart, Ops
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Weights

T = TypeVar("T")


class LatentQueries:
    """Queries of all heads: what meets the latent, and what is rotated."""

    def __init__(self, facts: ModelFacts, latent: LatentFacts, weights: Weights, name: str) -> None:
        heads, rank = facts.num_heads, latent.q_rank
        self._down = None
        if rank:
            self._down = weights.linear(
                [f"{name}.q_a_proj"], [rank], facts.hidden_size, bias=facts.attention_bias
            )
            self._norm = weights.vector(f"{name}.q_a_layernorm", rank)
        self._widths = (heads * latent.nope_dim, heads * latent.rope_dim)
        self._up = weights.linear(
            [f"{name}.q_nope_proj", f"{name}.q_rope_proj"],
            list(self._widths),
            rank or facts.hidden_size,
        )
        self._eps = facts.norm_eps

    def __call__(self, ops: Ops[T], x: T) -> tuple[T, ...]:
        """x: [rows, hidden_size] -> [rows, heads * nope_dim], [rows, heads * rope_dim]."""
        if self._down is not None:
            x = ops.rms_norm(ops.linear(x, self._down), self._norm, self._eps)
        return ops.split(ops.linear(x, self._up), self._widths)


class LatentAttention:
    """Self-attention over latent vectors."""

    def __init__(
        self,
        facts: ModelFacts,
        latent: LatentFacts,
        weights: Weights,
        layer: int,
        name: str,
        rope: RopeTable,
    ) -> None:
        heads, rank = range(facts.num_heads), latent.kv_rank
        self._queries = LatentQueries(facts, latent, weights, name)
        self._kv = weights.linear(
            [f"{name}.kv_latent_proj", f"{name}.k_rope_proj"],
            [rank, latent.rope_dim],
            facts.hidden_size,
            bias=facts.attention_bias,
        )
        self._kv_norm, self._eps = weights.vector(f"{name}.kv_a_layernorm", rank), facts.norm_eps
        self._key_up = tuple(
            weights.linear([f"{name}.k_up.{head}"], [rank], latent.nope_dim) for head in heads
        )
        self._value_up = tuple(
            weights.linear([f"{name}.v_up.{head}"], [latent.value_dim], rank) for head in heads
        )
        self._out = weights.linear(
            [f"{name}.o_proj"],
            [facts.hidden_size],
            facts.num_heads * latent.value_dim,
            bias=facts.attention_out_bias,
        )
        self._rope, self._latent = rope, latent
        self._spec = AttentionSpec(
            layer=layer,
            num_heads=facts.num_heads,
            num_kv_heads=1,
            head_dim=facts.head_dim,
            scale=facts.attention_scale,
        )

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        rank, rope_dim = self._latent.kv_rank, self._latent.rope_dim
        q, q_rope = self._queries(ops, x)
        kv, k_rope = ops.split(ops.linear(x, self._kv), (rank, rope_dim))
        kv = ops.rms_norm(kv, self._kv_norm, self._eps)
        q_rope = ops.rotary(q_rope, self._rope, rope_dim)
        k_rope = ops.rotary(k_rope, self._rope, rope_dim)
        queries = ops.join_heads(
            (
                HeadPart(ops.linear_heads(q, self._key_up), rank),
                HeadPart(q_rope, rope_dim),
            ),
            self._spec.num_heads,
        )
        keys = ops.join_heads((HeadPart(kv, rank), HeadPart(k_rope, rope_dim)), 1)
        values = ops.join_heads((HeadPart(kv, rank + rope_dim),), 1)
        attended = ops.attention(queries, keys, values, self._spec)
        return ops.linear(ops.linear_heads(attended, self._value_up), self._out)


def self_attention(
    facts: ModelFacts, weights: Weights, layer: int, name: str, rope: RopeTable | None
) -> Attention | LatentAttention:
    """Of the kind that the facts say."""
    if facts.latent is None:
        return Attention(facts, weights, layer, name, rope)
    assert rope is not None, facts
    return LatentAttention(facts, facts.latent, weights, layer, name, rope)
