"""What encoders of Hugging Face have of their own, beside the keys that all architectures have.

Owns the meaning of those keys, and the refusal of variants that we do not have; each function is
one of `hf_families.py`'s, as those of `hf_special.py` are.
"""

from __future__ import annotations

from dataclasses import replace

from octavo.config.model_facts import ModelFacts
from octavo.errors import UnsupportedModelError
from octavo.weights.fields import Fields
from octavo.weights.hf_rope import WINDOW, local_rope_facts

ROBERTA_PADDING = 1  # id of RoBERTa's padding token; positions count from the number after it


def bert(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Devlin et al. 2018: layer norms, biases everywhere, learned positions, segments."""
    kind = keys.text("position_embedding_type", "absolute")
    if kind != "absolute":
        raise UnsupportedModelError(
            f"{keys.where}: position_embedding_type {kind!r} is not supported; only absolute is"
        )
    return replace(
        facts,
        norm="layer",
        norm_bias=True,
        attention_bias=True,
        attention_out_bias=True,
        mlp_bias=True,
        gated_mlp=False,
        is_causal=False,
        num_segments=keys.integer("type_vocab_size", 2, at_least=1),
        embedding_norm=True,
        final_norm=False,
    )


def roberta(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Liu et al. 2019: BERT whose first positions belong to padding."""
    padding = keys.integer("pad_token_id", ROBERTA_PADDING)
    if padding != ROBERTA_PADDING:
        keys.refuse("pad_token_id", f"must be {ROBERTA_PADDING}, got {padding}")
    longest = facts.max_position - ROBERTA_PADDING - 1
    if longest < 1:
        keys.refuse("max_position_embeddings", f"{facts.max_position} leaves no position")
    return replace(bert(facts, keys), max_position=longest)


def modernbert(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Warner et al. 2024: windows to either side, with frequencies of their own."""
    every = keys.integer("global_attn_every_n_layers", 3, at_least=1)
    kinds = keys.texts("layer_types") or [
        WINDOW if layer % every else "full_attention" for layer in range(facts.num_layers)
    ]
    to_either_side = keys.integer("local_attention", 128, at_least=2) // 2 + 1
    base = keys.number("local_rope_theta", 10000.0, above=1.0)
    return replace(
        facts,
        norm="layer",
        norm_bias=keys.flag("norm_bias", False),
        mlp_bias=keys.flag("mlp_bias", False),
        is_causal=False,
        embedding_norm=True,
        sliding_windows=tuple(to_either_side if kind == WINDOW else 0 for kind in kinds),
        local_rope=local_rope_facts(keys, facts.head_dim, base),
    )
