"""HunYuan dense (Tencent 2025): Llama whose queries and keys are normed after they are rotated."""

from __future__ import annotations

from dataclasses import replace

import octavo.models
from octavo.config.model_facts import RopeFacts
from octavo.models.decoder import Decoder
from octavo.models.layers import GatedMlp, HeadNorm, Norm
from octavo.ops.ops import AttentionSpec
from octavo.weights.hf_families import Family


class Attention:
    """One product makes queries, keys and values; rotation, norms, attention, output."""

    def __init__(self, facts, weights, layer, name, rope):
        q_width = facts.num_heads * facts.head_dim
        kv_width = facts.num_kv_heads * facts.head_dim
        self.widths = (q_width, kv_width, kv_width)
        self.qkv = weights.linear(
            [f"{name}.q_proj", f"{name}.k_proj", f"{name}.v_proj"],
            list(self.widths),
            facts.hidden_size,
            bias=facts.attention_bias,
        )
        self.q_norm = HeadNorm(facts, weights, f"{name}.query_layernorm", facts.head_dim)
        self.k_norm = HeadNorm(facts, weights, f"{name}.key_layernorm", facts.head_dim)
        self.out = weights.linear(
            [f"{name}.o_proj"], [facts.hidden_size], q_width, bias=facts.attention_bias
        )
        self.rope = rope
        self.spec = AttentionSpec(
            layer=layer,
            num_heads=facts.num_heads,
            num_kv_heads=facts.num_kv_heads,
            head_dim=facts.head_dim,
            scale=facts.attention_scale,
        )

    def __call__(self, ops, x):
        """x: [rows, hidden_size], result alike."""
        q, k, v = ops.split(ops.linear(x, self.qkv), self.widths)
        q = self.q_norm(ops, ops.rotary(q, self.rope, self.spec.head_dim))
        k = self.k_norm(ops, ops.rotary(k, self.rope, self.spec.head_dim))
        return ops.linear(ops.attention(q, k, v, self.spec), self.out)


class Layer:
    """Attention, then a gated MLP, each behind a norm and added to the residual stream."""

    def __init__(self, facts, weights, index, rope):
        name = f"model.layers.{index}"
        self.attention_norm = Norm(facts, weights, f"{name}.input_layernorm")
        self.attention = Attention(facts, weights, index, f"{name}.self_attn", rope)
        self.mlp_norm = Norm(facts, weights, f"{name}.post_attention_layernorm")
        self.mlp = GatedMlp(facts, weights, f"{name}.mlp", facts.intermediate_size)

    def __call__(self, ops, x):
        """x: [rows, hidden_size], result alike."""
        x = ops.add(x, self.attention(ops, self.attention_norm(ops, x)))
        return ops.add(x, self.mlp(ops, self.mlp_norm(ops, x)))


def hunyuan_facts(facts, keys):
    """A scaling `dynamic` with an `alpha` is only a larger base of the rotary frequencies."""
    scaling = keys.section("rope_parameters") or keys.section("rope_scaling")
    if scaling is None or "alpha" not in scaling:
        return facts
    size = facts.head_dim
    theta = facts.rope.theta * scaling.number("alpha", above=0.0) ** (size / (size - 2))
    longest = keys.integer("max_position_embeddings")
    return replace(facts, rope=RopeFacts(theta=theta, rotary_dim=size), max_position=longest)


class HunYuanDense(Decoder):
    """HunYuanDenseV1ForCausalLM."""

    family = Family(
        {"max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "tie_word_embeddings": False},
        hunyuan_facts,
    )

    def make_layer(self, facts, weights, index, rope):
        """See `Decoder`."""
        return Layer(facts, weights, index, rope)


def register():
    """What the entry point names: called once in every process that loads models."""
    octavo.models.register("HunYuanDenseV1ForCausalLM", f"{__name__}:HunYuanDense")
