"""Parts that several architectures share: embeddings, norms, self-attention, MLPs, output matrix.

Owns which weights a part asks for and in what order its arithmetic runs. Does not know devices,
batches or caches. A part is called with the ops and the activations: `x = part(ops, x)`.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts
from octavo.ops.alibi import alibi_slopes
from octavo.ops.ops import AttentionSpec, GateActivation, HeadPart, Ops
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Embedding, Linear, Weights

T = TypeVar("T")


class Norm:
    """Norm of whole rows, of the kind that the facts say."""

    def __init__(self, facts: ModelFacts, weights: Weights, name: str) -> None:
        size, offset = facts.hidden_size, facts.norm_weight_offset
        self._centres = facts.norm != "rms"
        has_weight = facts.norm != "layer_without_weight"
        self._weight = weights.vector(name, size, offset=offset) if has_weight else None
        self._bias = weights.vector(name, size, ending="bias") if facts.norm_bias else None
        self._eps = facts.norm_eps

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        if self._centres or self._weight is None:
            return ops.layer_norm(x, self._weight, self._bias, self._eps)
        return ops.rms_norm(x, self._weight, self._eps)


class HeadNorm:
    """Root mean square norm of each `size` columns on their own: the q/k norm."""

    def __init__(self, facts: ModelFacts, weights: Weights, name: str, size: int) -> None:
        if facts.qk_norm_plain:
            self._weight = weights.constant(size, 1.0)
        else:
            self._weight = weights.vector(name, size, offset=facts.norm_weight_offset)
        self._eps = facts.norm_eps

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, heads * head_dim], result alike."""
        return ops.head_norm(x, self._weight, self._eps)


class NormByHead:
    """Layer norm of each head on its own, with weights of its own (Cohere 2024)."""

    def __init__(self, facts: ModelFacts, weights: Weights, name: str, num_heads: int) -> None:
        self._size, self._eps = facts.head_dim, facts.norm_eps
        self._weights = [
            weights.vector(f"{name}.{head}", facts.head_dim) for head in range(num_heads)
        ]

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, heads * head_dim], result alike."""
        heads = ops.split(x, (self._size,) * len(self._weights))
        normed = (
            ops.layer_norm(head, weight, None, self._eps)
            for head, weight in zip(heads, self._weights, strict=True)
        )
        return ops.join_heads(tuple(HeadPart(head, self._size) for head in normed), 1)


def qk_norms(
    facts: ModelFacts, weights: Weights, name: str, *, is_rotated: bool
) -> tuple[HeadNorm | NormByHead, ...]:
    """What norms queries, and what norms keys; empty where nothing does."""
    if not facts.qk_norm or (facts.qk_norm_plain and not is_rotated):
        return ()
    parts = (("q_norm", facts.num_heads), ("k_norm", facts.num_kv_heads))
    if facts.qk_norm_by_head:
        return tuple(NormByHead(facts, weights, f"{name}.{part}", heads) for part, heads in parts)
    return tuple(
        HeadNorm(
            facts,
            weights,
            f"{name}.{part}",
            heads * facts.head_dim if facts.qk_norm_over_heads else facts.head_dim,
        )
        for part, heads in parts
    )


class Attention:
    """Self-attention with grouped KV heads; rotary positions and a q/k norm as the facts say.

    One product makes queries, keys, values, and gates of what is attended to where there are some.
    """

    def __init__(
        self, facts: ModelFacts, weights: Weights, layer: int, name: str, rope: RopeTable | None
    ) -> None:
        q_width = facts.num_heads * facts.head_dim
        kv_width = facts.num_kv_heads * facts.head_dim
        parts = {"q_proj": q_width, "k_proj": kv_width, "v_proj": kv_width}
        if facts.attention_gate:
            parts["gate_proj"] = q_width
        self._widths = tuple(parts.values())
        self._qkv = weights.linear(
            [f"{name}.{part}" for part in parts],
            list(self._widths),
            facts.hidden_size,
            bias=facts.attention_bias,
        )
        self._qk_norms = qk_norms(facts, weights, name, is_rotated=rope is not None)
        self._clip = facts.clip_qkv
        self._temperature = None if rope is not None else facts.temperature
        self._out = weights.linear(
            [f"{name}.o_proj"], [facts.hidden_size], q_width, bias=facts.attention_out_bias
        )
        self._sinks = None
        if facts.attention_sinks:
            self._sinks = weights.vector(f"{name}.sinks", facts.num_heads)
        self._rope = rope
        self._spec = AttentionSpec(
            layer=facts.attention_layers.index(layer) if facts.is_causal else 0,
            num_heads=facts.num_heads,
            num_kv_heads=facts.num_kv_heads,
            head_dim=facts.head_dim,
            scale=facts.attention_scale,
            window=facts.window_of(layer),
            is_chunked=facts.windows_are_chunks and bool(facts.window_of(layer)),
            soft_cap=facts.attention_soft_cap,
            is_causal=facts.is_causal,
            slopes=_slopes(facts),
        )

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        q, k, v, *gates = ops.split(ops.linear(x, self._qkv), self._widths)
        if self._qk_norms:
            q_norm, k_norm = self._qk_norms
            q, k = q_norm(ops, q), k_norm(ops, k)
        if self._clip is not None:
            q, k, v = (clipped(ops, part, self._clip) for part in (q, k, v))
        if self._rope is not None:
            q = ops.rotary(q, self._rope, self._spec.head_dim)
            k = ops.rotary(k, self._rope, self._spec.head_dim)
        if self._temperature is not None:
            q = ops.multiply_rows(q, ops.position_factors(*self._temperature))
        attended = ops.attention(q, k, v, self._spec, self._sinks)
        for gate in gates:
            attended = gated_by(ops, gate, attended, self._widths[0], "sigmoid")
        return ops.linear(attended, self._out)


def gated_by(ops: Ops[T], gate: T, x: T, width: int, activation: GateActivation) -> T:
    """`act(gate) * x`, both [rows, width]."""
    parts = HeadPart(gate, width), HeadPart(x, width)
    return ops.gated(ops.join_heads(parts, 1), activation)


def clipped(ops: Ops[T], x: T, limit: float) -> T:
    """The nearest numbers of a magnitude of at most `limit`."""
    return ops.scale(ops.activation(ops.scale(x, 1.0 / limit), "hardtanh"), limit)


def _slopes(facts: ModelFacts) -> tuple[float, ...]:
    """What distances count, where they do."""
    if not facts.alibi:
        return ()
    return tuple(slope * facts.alibi_scale for slope in alibi_slopes(facts.num_heads))


class GatedMlp:
    """`down(act(gate(x)) * up(x))` (Shazeer 2020), of `size` inner columns."""

    def __init__(self, facts: ModelFacts, weights: Weights, name: str, size: int) -> None:
        self._gate_up = gate_up_projection(facts, weights, name, size, bias=facts.mlp_bias)
        self._down = down_projection(facts, weights, name, size, bias=facts.mlp_bias)
        self._activation = facts.hidden_act

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        return ops.linear(ops.gated(ops.linear(x, self._gate_up), self._activation), self._down)


class PlainMlp:
    """`down(act(up(x)))` (Vaswani et al. 2017), of `size` inner columns."""

    def __init__(self, facts: ModelFacts, weights: Weights, name: str, size: int) -> None:
        self._up = up_projection(facts, weights, name, size, bias=facts.mlp_bias)
        self._down = down_projection(facts, weights, name, size, bias=facts.mlp_bias)
        self._activation = facts.hidden_act

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        return ops.linear(ops.activation(ops.linear(x, self._up), self._activation), self._down)


def gate_up_projection(
    facts: ModelFacts, weights: Weights, name: str, size: int, *, bias: bool
) -> Linear:
    """The first product of a gated MLP."""
    names = [f"{name}.gate_proj", f"{name}.up_proj"]
    return weights.linear(names, [size, size], facts.hidden_size, bias=bias)


def up_projection(
    facts: ModelFacts, weights: Weights, name: str, size: int, *, bias: bool
) -> Linear:
    """The first product of a plain MLP."""
    return weights.linear([f"{name}.up_proj"], [size], facts.hidden_size, bias=bias)


def down_projection(
    facts: ModelFacts, weights: Weights, name: str, size: int, *, bias: bool
) -> Linear:
    """The second product of an MLP."""
    return weights.linear([f"{name}.down_proj"], [facts.hidden_size], size, bias=bias)


class EmbeddingSum:
    """What the layers begin with: vectors of tokens, of positions and segments where there are any.

    Some models norm the sum.
    """

    def __init__(self, facts: ModelFacts, weights: Weights) -> None:
        def table(name: str, num_rows: int) -> Embedding | None:
            if not num_rows:
                return None
            return weights.embedding(f"model.{name}", num_rows, facts.hidden_size)

        self.tokens = weights.embedding("model.embed_tokens", facts.vocab_size, facts.hidden_size)
        self._scale = facts.embedding_scale
        num_positions = facts.num_positions or facts.max_position
        self._positions = table("embed_positions", num_positions if facts.learned_positions else 0)
        self._segments = table("embed_segments", facts.num_segments)
        self._norm = Norm(facts, weights, "model.embed_norm") if facts.embedding_norm else None

    def __call__(self, ops: Ops[T]) -> T:
        """[num_tokens, hidden_size]."""
        x = ops.embed(self.tokens, scale=self._scale)
        if self._positions is not None:
            x = ops.add(x, ops.embed_positions(self._positions))
        if self._segments is not None:
            x = ops.add(x, ops.embed_segments(self._segments))
        return x if self._norm is None else self._norm(ops, x)


def output_head(facts: ModelFacts, weights: Weights, embedding: Embedding) -> Linear:
    """The matrix that makes logits: its own, or the embedding table once more."""
    if facts.tie_word_embeddings:
        return weights.tied_linear(embedding)
    return weights.linear(["lm_head"], [facts.vocab_size], facts.hidden_size, bias=facts.head_bias)
