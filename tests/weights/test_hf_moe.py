"""Mixtures of experts and latent attention, in the words of published configurations."""

from __future__ import annotations

import math
from typing import Any

import pytest

from octavo.config.model_facts import LatentFacts, ModelFacts, MoeFacts
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.hf_config import facts_from_config

SIZES: dict[str, Any] = {
    "vocab_size": 50,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
}
QWEN = {"num_experts": 8, "moe_intermediate_size": 24}
DEEPSEEK = {
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "moe_intermediate_size": 24,
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 4,
    "v_head_dim": 12,
    "n_group": 4,
    "topk_group": 2,
}


def facts_of(architecture: str, **keys: Any) -> ModelFacts:
    return facts_from_config({"architectures": [architecture], **SIZES, **keys}, "config.json")


def moe_of(architecture: str, **keys: Any) -> MoeFacts:
    moe = facts_of(architecture, **keys).moe
    assert moe is not None
    return moe


def test_layers_without_experts_are_named_or_come_in_between() -> None:
    """Qwen's `mlp_only_layers` and `decoder_sparse_step`."""
    assert moe_of("Qwen3MoeForCausalLM", **QWEN).layers == (0, 1, 2, 3, 4, 5)
    found = moe_of("Qwen3MoeForCausalLM", **QWEN, decoder_sparse_step=2, mlp_only_layers=[3])
    assert found.layers == (1, 5)


def test_qwen2_shares_an_expert_that_a_gate_weighs() -> None:
    """Its weights of experts do not add up to one, unless the file says so."""
    found = moe_of("Qwen2MoeForCausalLM", **QWEN, shared_expert_intermediate_size=40)
    assert (found.shared_size, found.has_shared_gate, found.normalises) == (40, True, False)


def test_mixtral_normalises_and_granite_chooses_first() -> None:
    """The same numbers in the end, by two ways."""
    mixtral = moe_of("MixtralForCausalLM", num_local_experts=8, sliding_window=None)
    granite = moe_of("GraniteMoeForCausalLM", num_local_experts=8)
    assert (mixtral.scoring, mixtral.normalises) == ("softmax", True)
    assert (granite.scoring, granite.normalises) == ("softmax_chosen", False)


def test_the_versions_of_deepseek_differ_in_their_routers() -> None:
    """Version 2 has groups only where its method looks at them, version 3 always."""
    greedy = moe_of("DeepseekV2ForCausalLM", **DEEPSEEK, topk_method="greedy")
    limited = moe_of("DeepseekV2ForCausalLM", **DEEPSEEK, topk_method="group_limited_greedy")
    third = moe_of("DeepseekV3ForCausalLM", **DEEPSEEK, routed_scaling_factor=2.5)
    assert (greedy.scoring, greedy.num_groups, greedy.has_correction) == ("softmax", 1, False)
    assert (limited.num_groups, limited.num_chosen_groups, limited.group_best) == (4, 2, 1)
    assert (third.scoring, third.num_groups, third.group_best) == ("sigmoid", 4, 2)
    assert (third.has_correction, third.normalises, third.scale) == (True, True, 2.5)
    assert (third.layers, third.shared_size) == ((3, 4, 5), 48)


def test_latent_attention_is_one_wide_kv_head() -> None:
    """YaRN's word for all dimensions stretches the scores as well."""
    yarn = {"type": "yarn", "factor": 40, "original_max_position_embeddings": 64}
    plain = facts_of("DeepseekV2ForCausalLM", **DEEPSEEK)
    stretched = facts_of(
        "DeepseekV2ForCausalLM",
        **DEEPSEEK,
        rope_scaling=yarn | {"mscale": 0.707, "mscale_all_dim": 0.707},
    )
    assert plain.latent == LatentFacts(q_rank=0, kv_rank=16, nope_dim=12, rope_dim=4, value_dim=12)
    assert (plain.num_kv_heads, plain.head_dim, plain.rope.rotary_dim) == (1, 20, 4)
    assert plain.attention_scale == 0.25
    stretch = 0.1 * 0.707 * math.log(40) + 1
    assert stretched.attention_scale == pytest.approx(0.25 * stretch**2)


def test_gpt_oss_looks_through_a_window_in_every_other_layer() -> None:
    """As published, and without the key."""
    found = facts_of("GptOssForCausalLM", num_local_experts=8)
    assert found.sliding_windows == (128, 0, 128, 0, 128, 0)
    assert found.attention_sinks
    assert found.moe is not None
    assert found.moe.activation == "clamped_swiglu"


def test_llama4_cuts_chunks_where_it_rotates_and_has_dense_layers_of_their_own_width() -> None:
    """Scout has experts everywhere, Maverick in every other layer."""
    keys = {"num_local_experts": 8, "num_experts_per_tok": 1, "attention_chunk_size": 32}
    found = facts_of(
        "Llama4ForCausalLM", **keys, interleave_moe_layer_step=2, intermediate_size_mlp=256
    )
    assert found.layers_without_rope == (3,)
    assert found.sliding_windows == (32, 32, 32, 0, 32, 32)
    assert found.windows_are_chunks
    assert found.moe is not None
    assert (found.moe.layers, found.moe.intermediate_size) == ((1, 3, 5), 128)
    assert found.intermediate_size == 256


def test_phi_has_a_word_of_its_own_for_the_attention_factor() -> None:
    """As Phi-3.5-MoE's file has it."""
    scaling = {
        "type": "longrope",
        "short_factor": [1.0] * 8,
        "long_factor": [2.0] * 8,
        "original_max_position_embeddings": 64,
        "short_mscale": 1.25,
        "long_mscale": 1.25,
    }
    keys = {"num_local_experts": 8, "rope_scaling": scaling}
    assert facts_of("PhimoeForCausalLM", **keys).rope.attention_factor == 1.25
    scaling["short_mscale"] = 1.0
    with pytest.raises(UnsupportedModelError, match="short_mscale other than long_mscale"):
        facts_of("PhimoeForCausalLM", **keys)


REFUSED: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "more experts for a token than there are": (
        "MixtralForCausalLM",
        {"num_local_experts": 1},
        CorruptFileError,
        "cannot use 2 experts of 1 groups of 1",
    ),
    "groups that do not divide the experts": (
        "DeepseekV3ForCausalLM",
        DEEPSEEK | {"n_group": 3},
        CorruptFileError,
        "8 experts in 3 groups",
    ),
    "another way to choose": (
        "DeepseekV2ForCausalLM",
        DEEPSEEK | {"topk_method": "noaux_tc"},
        UnsupportedModelError,
        "topk_method 'noaux_tc' is not supported. Supported: greedy",
    ),
    "another limit of SwiGLU": (
        "GptOssForCausalLM",
        {"num_local_experts": 8, "swiglu_limit": 5.0},
        UnsupportedModelError,
        "swiglu_limit 5 is not supported; 7 is",
    ),
    "several experts of Llama 4": (
        "Llama4ForCausalLM",
        {"num_local_experts": 8},
        CorruptFileError,
        "num_experts_per_tok must be 1, got 2",
    ),
    "no experts": ("OlmoeForCausalLM", {}, CorruptFileError, "num_local_experts or n_routed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_experts_that_we_cannot_compute_are_refused(case: str) -> None:
    """With the key, or the numbers that do not fit."""
    architecture, keys, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        facts_of(architecture, **keys)
