"""Keys of a GGUF file that tell of multi-head latent attention -> LatentFacts.

Owns the two ways in which files were written: with sizes of heads, or, since llama.cpp keeps a
matrix for each head, with those of the one KV head and the others under names of their own.
"""

from __future__ import annotations

import math
from dataclasses import replace

from octavo.config.model_facts import LatentFacts, ModelFacts
from octavo.weights.fields import Fields

_RANK = "attention.kv_lora_rank"


def has_latent(keys: Fields) -> bool:
    """Whether a file has such attention."""
    return _RANK in keys


def with_latent(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Facts of a file that has such attention. Where YaRN stretches scores, it says by how much."""
    rope_dim = facts.rope.rotary_dim
    key_size = keys.integer("attention.key_length_mla", 0) or keys.integer("attention.key_length")
    if key_size <= rope_dim:
        keys.refuse("attention.key_length", f"must be above {rope_dim}, got {key_size}")
    latent = LatentFacts(
        q_rank=keys.integer("attention.q_lora_rank", 0),
        kv_rank=keys.integer(_RANK, at_least=1),
        nope_dim=key_size - rope_dim,
        rope_dim=rope_dim,
        value_dim=keys.integer("attention.value_length_mla", 0)
        or keys.integer("attention.value_length", at_least=1),
    )
    stretch = keys.number("rope.scaling.yarn_log_multiplier", 0.0)
    scale, rope = key_size**-0.5, facts.rope
    if rope.scaling == "yarn":
        scale *= (1.0 + stretch * math.log(rope.factor)) ** 2
        rope = replace(rope, attention_factor=1.0)
    return replace(
        facts,
        num_kv_heads=1,
        head_dim=latent.kv_rank + rope_dim,
        rope=rope,
        attention_scale=scale,
        latent=latent,
    )
