"""What single architectures say in their config.json, in the form that published files have."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.model_facts import ModelFacts
from octavo.errors import UnsupportedModelError
from octavo.weights.hf_config import facts_from_config

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
}
GPT2_SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "n_embd": 64,
    "n_layer": 4,
    "n_head": 4,
    "n_positions": 128,
}


def facts_of(architecture: str, sizes: dict[str, Any] = SIZES, **keys: Any) -> ModelFacts:
    return facts_from_config({"architectures": [architecture], **sizes, **keys}, "config.json")


def test_gpt_neox_has_words_of_its_own_for_the_rotary_embedding() -> None:
    """Pythia: a quarter of each head, unless `rotary_pct` says otherwise."""
    assert 4 == facts_of("GPTNeoXForCausalLM").rope.rotary_dim
    found = facts_of("GPTNeoXForCausalLM", rotary_pct=0.5, rotary_emb_base=25000).rope
    assert (found.rotary_dim, found.theta) == (8, 25000.0)


def test_gpt2_has_an_mlp_of_four_hidden_sizes_unless_it_says_otherwise() -> None:
    """`n_inner` is null in most files."""
    assert 256 == facts_of("GPT2LMHeadModel", GPT2_SIZES, n_inner=None).intermediate_size
    assert 96 == facts_of("GPT2LMHeadModel", GPT2_SIZES, n_inner=96).intermediate_size


def test_models_with_learned_positions_rotate_nothing() -> None:
    """The positions are a table."""
    found = facts_of("GPT2LMHeadModel", GPT2_SIZES)

    assert found.learned_positions
    assert (found.rope.rotary_dim, found.max_position) == (0, 128)


@pytest.mark.parametrize(
    ("keys", "num_kv_heads", "is_parallel", "has_one_norm"),
    [
        ({}, 1, True, True),
        ({"num_kv_heads": 4}, 1, True, True),  # as Falcon 7B's file has it
        ({"multi_query": False, "parallel_attn": False}, 4, False, False),
        ({"new_decoder_architecture": True, "num_kv_heads": 2}, 2, True, False),
        ({"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1}, 4, True, True),
    ],
)
def test_falcon_comes_in_two_architectures(
    keys: dict[str, Any], num_kv_heads: int, is_parallel: bool, has_one_norm: bool
) -> None:
    """The keys of one are of no importance to the other."""
    found = facts_of("FalconForCausalLM", **keys)

    assert num_kv_heads == found.num_kv_heads
    assert (is_parallel, has_one_norm) == (found.parallel_residual, found.shared_norm)


def test_every_fourth_layer_of_smollm3_is_not_rotated() -> None:
    """Unless the file lists them: 1 is a layer that rotates."""
    assert facts_of("SmolLM3ForCausalLM").layers_without_rope == (3,)
    assert facts_of("SmolLM3ForCausalLM", no_rope_layers=[1, 0, 0, 1]).layers_without_rope == (1, 2)


def test_granite_divides_its_logits() -> None:
    """By `logits_scaling`; the other multipliers multiply."""
    found = facts_of(
        "GraniteForCausalLM",
        embedding_multiplier=12,
        attention_multiplier=0.015625,
        residual_multiplier=0.22,
        logits_scaling=8,
    )

    assert (found.embedding_scale, found.residual_scale) == (12, 0.22)
    assert (found.attention_scale, found.logits_scale) == (0.015625, 0.125)


def test_the_window_layers_of_olmo3_are_not_scaled() -> None:
    """A `rope_scaling` of the old form is for the others."""
    scaling = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}
    found = facts_of("Olmo3ForCausalLM", rope_theta=5e5, rope_scaling=scaling, sliding_window=32)

    assert found.sliding_windows == (32, 32, 32, 0)
    assert found.local_rope is not None
    assert (found.rope.scaling, found.local_rope.scaling) == ("yarn", "default")
    assert (found.rope.theta, found.local_rope.theta) == (5e5, 5e5)


def test_a_null_soft_cap_of_gemma2_is_none_and_a_missing_one_is_assumed() -> None:
    """Published files write null to turn it off."""
    assert facts_of("Gemma2ForCausalLM").attention_soft_cap == 50.0
    assert facts_of("Gemma2ForCausalLM", attn_logit_softcapping=None).attention_soft_cap is None


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "phi's norms of queries": ("PhiForCausalLM", {"qk_layernorm": True}, "qk_layernorm"),
    "post-norm OPT": (
        "OPTForCausalLM",
        {"ffn_dim": 128, "do_layer_norm_before": False},
        "do_layer_norm_before false",
    ),
    "OPT with narrow embeddings": (
        "OPTForCausalLM",
        {"ffn_dim": 128, "word_embed_proj_dim": 32},
        "word_embed_proj_dim other than hidden_size",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_variant_that_we_do_not_have_is_refused_by_its_key(case: str) -> None:
    """Rather than computed wrongly."""
    architecture, keys, message = REFUSED[case]

    with pytest.raises(UnsupportedModelError, match=f"{message} is not supported"):
        facts_of(architecture, **keys)


def test_an_error_names_the_key_that_the_file_has() -> None:
    """Not the word that we have for it."""
    with pytest.raises(Exception, match="n_head must be a whole number"):
        facts_of("GPT2LMHeadModel", {**GPT2_SIZES, "n_head": "four"})
