"""ModelFacts from config.json: published forms of the file, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.config.model_facts import ModelFacts, RopeFacts
from octavo.errors import CorruptFileError, ModelFileError, UnsupportedModelError
from octavo.models.registry import ARCHITECTURES
from octavo.ops.rope import rope_table
from octavo.weights.hf_config import SUPPORTED_ARCHITECTURES, facts_from_config

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 1024,
}
GEMMA3: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": 7,
    "sliding_window": 512,
    "max_position_embeddings": 32768,
}


def facts(base: dict[str, Any], **keys: Any) -> ModelFacts:
    return facts_from_config(base | keys, "config.json")


def qwen(name: str, **keys: Any) -> ModelFacts:
    return facts(LLAMA, architectures=[name], num_key_value_heads=2, **keys)


def test_the_registry_and_this_reader_know_the_same_architectures() -> None:
    """A model file without its config, or the other way round, is of no use."""
    assert set(ARCHITECTURES) == SUPPORTED_ARCHITECTURES


def test_a_small_llama_with_everything_left_to_its_defaults() -> None:
    """What transformers assumes for missing keys is assumed here."""
    assert facts(LLAMA) == ModelFacts(
        architecture="LlamaForCausalLM",
        vocab_size=100,
        hidden_size=32,
        intermediate_size=48,
        num_layers=3,
        num_heads=4,
        num_kv_heads=4,
        head_dim=8,
        max_position=1024,
        norm_eps=1e-6,
        hidden_act="silu",
        rope=RopeFacts(theta=10000.0, rotary_dim=8),
        attention_scale=8**-0.5,
    )


def test_what_a_llama_file_says_counts() -> None:
    """Every key that has a fact of its own."""
    found = facts(
        LLAMA,
        num_key_value_heads=2,
        head_dim=16,
        rms_norm_eps=1e-5,
        hidden_act="gelu",
        rope_theta=5e5,
        tie_word_embeddings=True,
        attention_bias=True,
        mlp_bias=True,
        torch_dtype="bfloat16",
    )

    assert (found.num_kv_heads, found.head_dim, found.norm_eps) == (2, 16, 1e-5)
    assert (found.hidden_act, found.rope.theta, found.dtype) == ("gelu", 5e5, "bfloat16")
    assert found.tie_word_embeddings
    assert found.attention_bias
    assert found.attention_out_bias
    assert found.mlp_bias


def test_mistral_has_one_window_for_all_layers_or_none() -> None:
    """Null, as in newer files, means none; a missing key means 4096."""

    def windows(**keys: Any) -> tuple[int, ...]:
        name = ["MistralForCausalLM"]
        return facts(LLAMA, architectures=name, num_key_value_heads=2, **keys).sliding_windows

    assert windows(sliding_window=None) == ()
    assert windows(sliding_window=64) == (64, 64, 64)
    assert windows() == (4096, 4096, 4096)


def test_qwen_2_always_has_biases_and_a_window_only_when_told() -> None:
    """`sliding_window` alone is a leftover in most published files."""
    plain = qwen("Qwen2ForCausalLM", sliding_window=64, max_window_layers=0)
    windowed = qwen(
        "Qwen2ForCausalLM", sliding_window=64, use_sliding_window=True, max_window_layers=2
    )

    assert (plain.attention_bias, plain.attention_out_bias) == (True, False)
    assert plain.sliding_windows == ()
    assert windowed.sliding_windows == (0, 0, 64)


def test_layer_types_count_before_every_rule() -> None:
    """The newer form names the kind of each layer."""
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]

    found = qwen("Qwen3ForCausalLM", sliding_window=64, use_sliding_window=True, layer_types=kinds)

    assert found.sliding_windows == (64, 0, 64)


def test_qwen_3_norms_queries_and_keys_and_has_heads_of_its_own_size() -> None:
    """128 where the file does not say."""
    found = qwen("Qwen3ForCausalLM")

    assert found.qk_norm
    assert found.head_dim == 128
    assert not found.attention_bias


def test_gemma_3_with_only_the_keys_that_published_files_have() -> None:
    """The rest is what its configuration class assumes."""
    assert facts(GEMMA3) == ModelFacts(
        architecture="Gemma3ForCausalLM",
        vocab_size=262208,
        hidden_size=640,
        intermediate_size=2048,
        num_layers=7,
        num_heads=8,
        num_kv_heads=4,
        head_dim=256,
        max_position=32768,
        norm_eps=1e-6,
        hidden_act="gelu_tanh",
        rope=RopeFacts(theta=1e6, rotary_dim=256),
        local_rope=RopeFacts(theta=10000.0, rotary_dim=256),
        tie_word_embeddings=True,
        qk_norm=True,
        attention_scale=0.0625,
        sliding_windows=(512, 512, 512, 512, 512, 0, 512),
        embedding_scale=math.sqrt(640),
        norm_weight_offset=1.0,
    )


def test_gemma_3_with_its_own_numbers() -> None:
    """Scale, pattern, caps and the base of the window layers in its older form."""
    found = facts(
        GEMMA3,
        query_pre_attn_scalar=168,
        sliding_window_pattern=2,
        rope_local_base_freq=5000,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
    )

    assert found.attention_scale == 168**-0.5
    assert found.sliding_windows == (512, 0, 512, 0, 512, 0, 512)
    assert found.local_rope == RopeFacts(theta=5000.0, rotary_dim=256)
    assert (found.rope.scaling, found.rope.factor) == ("linear", 8.0)
    assert found.max_position == 32768
    assert (found.attention_soft_cap, found.logits_soft_cap) == (50.0, 30.0)


def test_rope_parameters_for_each_kind_of_layer() -> None:
    """The form that transformers 5 writes for Gemma 3."""
    found = facts(
        GEMMA3,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 3e4},
        },
    )

    assert found.rope == RopeFacts(theta=2e6, rotary_dim=256, scaling="linear", factor=8.0)
    assert found.local_rope == RopeFacts(theta=3e4, rotary_dim=256)


def test_the_decoder_of_a_model_that_also_sees() -> None:
    """Its keys are nested; what holds for the whole model stays outside."""
    text = {key: value for key, value in GEMMA3.items() if key != "architectures"}
    values = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "torch_dtype": "bfloat16",
        "text_config": text,
        "vision_config": {"hidden_size": 1152},
    }

    found = facts_from_config(values, "config.json")

    assert found.architecture == "Gemma3ForConditionalGeneration"
    assert (found.hidden_size, found.dtype) == (640, "bfloat16")


LLAMA3_SCALING = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 512,
}
LLAMA3_ROPE = RopeFacts(
    theta=5e5, rotary_dim=8, scaling="llama3", factor=32.0, original_max_position=512
)
YARN_ROPE = RopeFacts(
    theta=1e6, rotary_dim=8, scaling="yarn", factor=4.0, original_max_position=512
)
LONG = {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1, 2, 4, 8]}
LONG_ROPE = RopeFacts(
    rotary_dim=8,
    scaling="longrope",
    factor=2.0,
    original_max_position=512,
    short_factor=(1.0, 1.1, 1.2, 1.3),
    long_factor=(1.0, 2.0, 4.0, 8.0),
)
ROPES: dict[str, tuple[dict[str, Any], RopeFacts, int]] = {
    "none": ({"rope_scaling": None}, RopeFacts(rotary_dim=8), 1024),
    "base alone": ({"rope_theta": 5e5}, RopeFacts(theta=5e5, rotary_dim=8), 1024),
    "default": (
        {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
        RopeFacts(theta=5e5, rotary_dim=8),
        1024,
    ),
    "part of a head": (
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        RopeFacts(rotary_dim=4),
        1024,
    ),
    "part of a head, outside": ({"partial_rotary_factor": 0.25}, RopeFacts(rotary_dim=2), 1024),
    "linear, oldest form": (
        {"rope_scaling": {"type": "linear", "factor": 2}},
        RopeFacts(rotary_dim=8, scaling="linear", factor=2.0),
        2048,
    ),
    "dynamic": (
        {"rope_scaling": {"type": "dynamic", "factor": 4.0}},
        RopeFacts(rotary_dim=8, scaling="dynamic", factor=4.0, original_max_position=1024),
        4096,
    ),
    "llama3, older form": (
        {"rope_theta": 5e5, "rope_scaling": LLAMA3_SCALING | {"rope_type": "llama3"}},
        LLAMA3_ROPE,
        1024,
    ),
    "llama3": (
        {"rope_parameters": LLAMA3_SCALING | {"rope_type": "llama3", "rope_theta": 5e5}},
        LLAMA3_ROPE,
        1024,
    ),
    "yarn": (
        {
            "rope_theta": 1e6,
            "rope_scaling": {
                "type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 512,
            },
        },
        YARN_ROPE,
        2048,
    ),
    "yarn without its start": (
        {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        RopeFacts(rotary_dim=8, scaling="yarn", factor=4.0, original_max_position=1024),
        4096,
    ),
    "yarn with all its numbers": (
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 2.0,
                "attention_factor": 1.5,
                "beta_fast": 16,
                "beta_slow": 2,
                "mscale": 1.0,
                "mscale_all_dim": 0.5,
                "truncate": False,
                "original_max_position_embeddings": 512,
            }
        },
        RopeFacts(
            rotary_dim=8,
            scaling="yarn",
            factor=2.0,
            original_max_position=512,
            attention_factor=1.5,
            beta_fast=16.0,
            beta_slow=2.0,
            mscale=1.0,
            mscale_all_dim=0.5,
            truncate=False,
        ),
        1024,
    ),
    "longrope": (
        {
            "rope_scaling": LONG
            | {"rope_type": "longrope", "factor": 2.0, "original_max_position_embeddings": 512}
        },
        LONG_ROPE,
        1024,
    ),
    "longrope by its first name, start outside, no factor": (
        {"rope_scaling": LONG | {"type": "su"}, "original_max_position_embeddings": 512},
        LONG_ROPE,
        1024,
    ),
}


@pytest.mark.parametrize("form", ROPES)
def test_every_form_of_rope_scaling(form: str) -> None:
    """Old and new names of the keys mean the same; YaRN and its elders stretch the context."""
    keys, rope, max_position = ROPES[form]

    found = facts(LLAMA, **keys)

    assert found.rope == rope
    assert found.max_position == max_position


CORRUPT: dict[str, tuple[dict[str, Any], str]] = {
    "no size": ({"hidden_size": None}, "config.json: the key hidden_size is missing"),
    "a size in words": ({"hidden_size": "32"}, "hidden_size must be a whole number, got '32'"),
    "half a size": ({"vocab_size": 10.5}, "vocab_size must be a whole number"),
    "a true size": ({"vocab_size": True}, "vocab_size must be a whole number"),
    "a negative size": ({"vocab_size": -1}, "vocab_size must be from 1 to"),
    "a huge size": ({"vocab_size": 10**400}, "vocab_size must be from 1 to .* a huge number"),
    "a million layers": ({"num_hidden_layers": 10**6}, "num_hidden_layers must be from 1 to 4096"),
    "heads that do not divide": ({"hidden_size": 33}, "33 is not a multiple of 4 heads"),
    "heads that do not share": ({"num_key_value_heads": 3}, "4 attention heads cannot share 3"),
    "an odd head": ({"head_dim": 7}, "7 rotary dimensions"),
    "an epsilon that is no number": ({"rms_norm_eps": "1e-5"}, "rms_norm_eps must be a number"),
    "an endless epsilon": ({"rms_norm_eps": math.inf}, "rms_norm_eps must be a finite number"),
    "a base below 1": ({"rope_theta": 0.5}, "rope_theta must be above 1"),
    "a flag in words": ({"attention_bias": "yes"}, "attention_bias must be true or false"),
    "a scaling in words": ({"rope_scaling": "yarn"}, "rope_scaling must be an object"),
    "no factor": ({"rope_scaling": {"type": "linear"}}, "rope_scaling: the key factor is missing"),
    "a small factor": (
        {"rope_scaling": {"type": "linear", "factor": 0}},
        "factor must be at least 1",
    ),
    "blend the wrong way": (
        {"rope_scaling": LLAMA3_SCALING | {"type": "llama3", "low_freq_factor": 5.0}},
        "low_freq_factor must not be above",
    ),
    "too few long factors": (
        {"rope_scaling": LONG | {"type": "longrope", "long_factor": [1.0], "factor": 2.0}},
        "1 rope factors for 4 frequencies",
    ),
    "more than a head": ({"partial_rotary_factor": 1.5}, "partial_rotary_factor must be at most 1"),
    "an endless base": ({"rope_theta": 1e308}, "rope_theta must be at most 1e"),
    "text_config in words": ({"text_config": "small"}, "text_config must be an object"),
    "architectures in numbers": ({"architectures": [1]}, "must be a list of strings"),
}


@pytest.mark.parametrize("case", CORRUPT)
def test_a_wrong_key_is_refused_by_name(case: str) -> None:
    """File, key, what it must be and what it is."""
    keys, message = CORRUPT[case]

    with pytest.raises(CorruptFileError, match=message):
        facts(LLAMA, **keys)


UNSUPPORTED: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": (
        {"architectures": ["MambaForCausalLM"]},
        "architecture MambaForCausalLM is not supported. Supported: ArceeForCausalLM, .*Llama",
    ),
    "nothing but a type": (
        {"architectures": None, "model_type": "bert"},
        "architecture model_type bert is not supported",
    ),
    "activation": ({"hidden_act": "xielu"}, "activation 'xielu' is not supported"),
    "rope scaling": (
        {"rope_scaling": {"rope_type": "mrope"}},
        "rope scaling 'mrope' is not supported. Supported: default, linear",
    ),
    "dtype": ({"torch_dtype": "float8_e4m3fn"}, "float8_e4m3fn"),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_what_we_do_not_have_is_refused_with_what_we_have(case: str) -> None:
    """Before any weight is looked at."""
    keys, message = UNSUPPORTED[case]

    with pytest.raises(UnsupportedModelError, match=message):
        facts(LLAMA, **keys)


def test_a_window_to_both_sides_is_split_between_them() -> None:
    """EmbeddingGemma: the file says how wide it is in all."""
    made = facts(GEMMA3, use_bidirectional_attention=True)

    assert not made.is_causal
    assert made.sliding_windows == (257,) * 5 + (0, 257)


def test_other_kinds_of_layers_and_of_attention_are_refused() -> None:
    """Computing them as something else would give wrong answers."""
    gemma = {"architectures": ["GemmaForCausalLM"], "vocab_size": 9, "num_attention_heads": 4}
    with pytest.raises(UnsupportedModelError, match="chunked_attention"):
        facts(GEMMA3, layer_types=["chunked_attention"] * 7)
    with pytest.raises(UnsupportedModelError, match="use_bidirectional_attention"):
        facts(GEMMA3 | gemma, use_bidirectional_attention=True)
    with pytest.raises(CorruptFileError, match="7 layers, but 2 layer types"):
        facts(GEMMA3, layer_types=["sliding_attention", "full_attention"])


OTHER_KEYS = """
    head_dim num_key_value_heads rope_theta rms_norm_eps dtype sliding_window_pattern layer_types
    use_sliding_window max_window_layers partial_rotary_factor original_max_position_embeddings
    query_pre_attn_scalar
"""
KEYS = [*LLAMA, *GEMMA3, *OTHER_KEYS.split()]
OTHER_ROPE_KEYS = """
    type original_max_position_embeddings beta_fast beta_slow mscale mscale_all_dim truncate
    short_factor long_factor low_freq_factor high_freq_factor attention_factor full_attention
"""
ROPE_KEYS = ["rope_type", "factor", *OTHER_ROPE_KEYS.split()]
odd = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 40),
    st.sampled_from([2**31, 2**63, 10**400, "", "yarn", "linear", [], {}, [1.0] * 4, [-1], [{}]]),
    st.floats(),
)
kinds = st.sampled_from(["linear", "dynamic", "yarn", "llama3", "longrope", "su", "default"])


@given(
    architecture=st.sampled_from(sorted(SUPPORTED_ARCHITECTURES)),
    keys=st.dictionaries(st.sampled_from(KEYS), odd, max_size=3),
    rope=st.dictionaries(st.sampled_from(ROPE_KEYS), odd, max_size=3),
    kind=kinds,
)
def test_odd_values_are_refused_or_give_a_model_that_can_be_set_up(
    architecture: str, keys: dict[str, Any], rope: dict[str, Any], kind: str
) -> None:
    """Only our errors; and whatever passes makes rotary frequencies without a fault."""
    scaling = {"rope_type": kind, "factor": 2.0} | rope
    values = LLAMA | {"rope_scaling": scaling, "architectures": [architecture]} | keys

    try:
        found = facts_from_config(values, "config.json")
    except ModelFileError:
        return

    for each in (found.rope, found.local_rope or found.rope):
        table = rope_table(each, min(found.max_position, 2**20))
        assert all(math.isfinite(frequency) for frequency in table.inv_freq)
        assert math.isfinite(table.attention_factor)
