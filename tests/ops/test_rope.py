"""rope_table gives the frequencies that transformers gives, for every kind of scaling."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from octavo.config.model_facts import RopeFacts
from octavo.ops.rope import rope_table

HEAD_DIM = 32
LONG = tuple(1.0 + 0.5 * i for i in range(HEAD_DIM // 2))
SHORT = tuple(1.0 + 0.01 * i for i in range(HEAD_DIM // 2))

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "linear": ({"rope_type": "linear", "factor": 3.0}, {"scaling": "linear", "factor": 3.0}),
    "yarn": (
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        {"scaling": "yarn", "factor": 4.0, "original_max_position": 64},
    ),
    "yarn_with_betas_untruncated": (
        {
            "rope_type": "yarn",
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 24.0,
            "beta_slow": 2.0,
            "truncate": False,
        },
        {
            "scaling": "yarn",
            "factor": 40.0,
            "original_max_position": 4096,
            "beta_fast": 24.0,
            "beta_slow": 2.0,
            "truncate": False,
        },
    ),
    "yarn_with_mscale": (
        {
            "rope_type": "yarn",
            "factor": 40.0,
            "original_max_position_embeddings": 4096,
            "mscale": 0.7,
            "mscale_all_dim": 1.0,
        },
        {
            "scaling": "yarn",
            "factor": 40.0,
            "original_max_position": 4096,
            "mscale": 0.7,
            "mscale_all_dim": 1.0,
        },
    ),
    "yarn_with_attention_factor": (
        {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 64,
            "attention_factor": 1.25,
        },
        {"scaling": "yarn", "factor": 4.0, "original_max_position": 64, "attention_factor": 1.25},
    ),
    "llama3": (
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        {
            "scaling": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position": 64,
        },
    ),
    "longrope": (
        {
            "rope_type": "longrope",
            "factor": 4.0,
            "long_factor": list(LONG),
            "short_factor": list(SHORT),
            "original_max_position_embeddings": 64,
        },
        {
            "scaling": "longrope",
            "factor": 4.0,
            "long_factor": LONG,
            "short_factor": SHORT,
            "original_max_position": 64,
        },
    ),
    "dynamic": (
        {"rope_type": "dynamic", "factor": 2.0},
        {"scaling": "dynamic", "factor": 2.0, "original_max_position": 256},
    ),
}


def transformers_table(parameters: dict[str, Any], length: int) -> tuple[list[float], float]:
    config = LlamaConfig(
        hidden_size=4 * HEAD_DIM,
        num_attention_heads=4,
        head_dim=HEAD_DIM,
        max_position_embeddings=256,
        rope_parameters={"rope_theta": 50000.0, **parameters},
    )
    compute = ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
    inv_freq, attention_factor = compute(config, torch.device("cpu"), seq_len=length)
    return inv_freq.tolist(), attention_factor


def facts_of(case: str) -> RopeFacts:
    return RopeFacts(theta=50000.0, rotary_dim=HEAD_DIM, **CASES[case][1])


@pytest.mark.parametrize("max_model_len", [32, 64, 65, 256, 1000])
@pytest.mark.parametrize("case", CASES)
def test_a_scaled_table_is_what_transformers_computes_for_that_length(
    case: str, max_model_len: int
) -> None:
    """Both sides of every threshold: 64 is the original context, 256 the checkpoint's."""
    inv_freq, attention_factor = transformers_table(CASES[case][0], max_model_len)

    table = rope_table(facts_of(case), max_model_len)

    assert HEAD_DIM == table.rotary_dim
    assert inv_freq == pytest.approx(table.inv_freq, rel=2e-6)
    assert attention_factor == pytest.approx(table.attention_factor, rel=1e-12)


def test_an_unscaled_table_is_a_geometric_series() -> None:
    """theta ** (-2 i / rotary_dim), with the rotary part alone as the base of the exponent."""
    table = rope_table(RopeFacts(theta=10000.0, rotary_dim=8), 4096)

    assert [1.0, 0.1, 0.01, 0.001] == pytest.approx(table.inv_freq, rel=1e-12)
    assert 1.0 == table.attention_factor


@pytest.mark.parametrize("scaling", ["default", "llama3"])
def test_divisors_from_the_file_replace_the_llama3_formula(scaling: Any) -> None:
    """A GGUF file brings the outcome of that formula, whatever it says about scaling."""
    scaled, _ = transformers_table(CASES["llama3"][0], 256)
    plain = rope_table(replace(facts_of("llama3"), scaling="default"), 256).inv_freq
    divisors = tuple(before / after for before, after in zip(plain, scaled, strict=True))
    facts = replace(facts_of("llama3"), scaling=scaling, inv_freq_divisors=divisors)

    assert scaled == pytest.approx(rope_table(facts, 256).inv_freq, rel=1e-6)


def test_dynamic_scaling_depends_on_the_longest_allowed_sequence_only() -> None:
    """Up to the original context nothing changes; a longer limit stretches all waves."""
    plain = rope_table(replace(facts_of("dynamic"), scaling="default"), 256).inv_freq

    assert plain == pytest.approx(rope_table(facts_of("dynamic"), 100).inv_freq, rel=1e-12)
    longer = rope_table(facts_of("dynamic"), 1024).inv_freq
    assert all(a < b for a, b in zip(longer[1:], plain[1:], strict=True))


def test_frequencies_are_computed_in_double_precision() -> None:
    """The last frequency of a wide head is exact to double precision, not to float32."""
    table = rope_table(RopeFacts(theta=1e6, rotary_dim=256), 4096)

    assert math.exp(-254 / 256 * math.log(1e6)) == pytest.approx(table.inv_freq[-1], rel=1e-13)
