"""Keys of layers that carry a state, in the forms that files had over time, and their refusal."""

from __future__ import annotations

import math
from typing import Any

import pytest

from octavo.config.model_facts import ModelFacts
from octavo.errors import CorruptFileError, OctavoError, UnsupportedModelError
from octavo.weights.hf_config import facts_from_config
from tests.sizing import configs

NEMOTRON_H: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"],
    "vocab_size": 131072,
    "hidden_size": 4096,
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hybrid_override_pattern": "M-M*-E",
    "num_hidden_layers": 6,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 1856,
}


def facts_of(values: dict[str, Any], **changes: Any) -> ModelFacts:
    return facts_from_config(values | changes, "config.json")


def test_a_pattern_of_letters_says_what_each_layer_of_nemotron_h_is() -> None:
    """As a list of words does, from which the number of layers follows."""
    words = ["mamba", "mlp", "mamba", "attention", "mlp", "moe"]
    listed = {key: value for key, value in NEMOTRON_H.items() if "hybrid" not in key}
    del listed["num_hidden_layers"]
    facts = facts_of(NEMOTRON_H)

    assert facts.state is not None
    assert facts.state.layers == (0, 2)
    assert facts.attention_layers == (3,)
    assert facts.moe is not None
    assert facts.moe.layers == (5,)
    assert facts == facts_of(listed, layers_block_type=words)


def test_layers_of_granite_have_old_names_and_new_ones() -> None:
    """Only some models rotate."""
    old = facts_of(configs.GRANITE_4_H_TINY)
    kinds = ["full_attention" if i % 10 == 5 else "linear_attention" for i in range(40)]

    assert old == facts_of(configs.GRANITE_4_H_TINY, layer_types=kinds)
    assert old.attention_layers == (5, 15, 25, 35)
    assert old.layers_without_rope == tuple(range(40))
    rotating = facts_of(configs.GRANITE_4_H_TINY, position_embedding_type="rope")
    assert rotating.layers_without_rope == ()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([0.0, math.inf], (0.0, math.inf)),
        ([0.1, {"__float__": "Infinity"}], (0.1, math.inf)),
        ([0.001, 0.1], (0.001, 0.1)),
        ([0, 1], (0.0, 1.0)),
        (None, (0.0, math.inf)),
    ],
)
def test_limits_of_time_steps_are_numbers_or_some_word_for_infinity(
    limits: object, expected: tuple[float, float]
) -> None:
    facts = facts_of(configs.MAMBA_2_2_7B, time_step_limit=limits)

    assert facts.state is not None
    assert facts.state.step_limits == expected


@pytest.mark.parametrize(
    ("values", "changes", "error", "message"),
    [
        (configs.MAMBA_2_2_7B, {"time_step_limit": [0.1]}, CorruptFileError, "two numbers"),
        (configs.MAMBA_2_2_7B, {"time_step_limit": [True, "x"]}, CorruptFileError, "two numbers"),
        (configs.MAMBA_2_2_7B, {"time_step_limit": [0.5, 0.1]}, CorruptFileError, "two numbers"),
        (configs.MAMBA_2_2_7B, {"n_groups": 3}, CorruptFileError, "80 heads .* 3 groups"),
        (configs.MAMBA_2_2_7B, {"conv_kernel": 1}, CorruptFileError, "conv_kernel .* from 2"),
        (configs.MAMBA_2_2_7B, {"hidden_act": "gelu"}, UnsupportedModelError, "Supported: silu"),
        (
            configs.GRANITE_4_H_TINY,
            {"layer_types": ["mamba"]},
            CorruptFileError,
            "1 items for 40 layers",
        ),
        (
            configs.GRANITE_4_H_TINY,
            {"layer_types": ["rwkv"] * 40},
            UnsupportedModelError,
            "rwkv are not supported. Supported: .*mamba",
        ),
        (configs.GRANITE_4_H_TINY, {"mamba_d_head": 32}, CorruptFileError, "must be 64"),
        (configs.GRANITE_4_H_TINY, {"mamba_n_heads": 47}, CorruptFileError, "47 does not divide"),
        (NEMOTRON_H, {"moe_latent_size": 64}, UnsupportedModelError, "moe_latent_size"),
        (NEMOTRON_H, {"hybrid_override_pattern": "M-M*-X"}, UnsupportedModelError, "type X"),
        (NEMOTRON_H, {"mamba_hidden_act": "relu"}, UnsupportedModelError, "'relu'"),
    ],
)
def test_what_cannot_be_is_refused_with_the_key_and_what_would_be_right(
    values: dict[str, Any], changes: dict[str, Any], error: type[OctavoError], message: str
) -> None:
    with pytest.raises(error, match=f"config.json: .*{message}"):
        facts_of(values, **changes)
