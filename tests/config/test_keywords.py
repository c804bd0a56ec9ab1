"""Keyword arguments of LLM: one name per option, nothing passes unnoticed."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from octavo.config.engine import EngineConfig, ModelConfig
from octavo.config.field import option_info
from octavo.config.keywords import (
    PARTS,
    EngineOptions,
    LLMOptions,
    engine_config,
)
from octavo.config.vllm_options import FOREIGN
from octavo.config.vllm_verdicts import VllmOption
from octavo.errors import ConfigError

FIELDS = {field.name for kind in PARTS.values() for field in fields(kind)}


def test_every_field_of_the_configuration_has_a_typed_keyword() -> None:
    """A new option reaches editors and type checkers, too."""
    assert set(EngineOptions.__annotations__) == FIELDS - {"model"}
    assert {field.name for field in fields(EngineConfig)} == set(PARTS)


def test_every_typed_keyword_that_is_not_ours_is_in_the_table_of_vllms() -> None:
    """So that none is typed and then unknown."""
    own = set(LLMOptions.__annotations__) - set(EngineOptions.__annotations__)

    assert own - FOREIGN.keys() == {"task"}


@pytest.mark.parametrize("part", PARTS.values())
def test_an_option_that_is_an_object_is_marked_so(part: type[Any]) -> None:
    """Then it may be a dict in Python, given in parts on the command line, a mapping in a file."""
    for field in fields(part):
        info = option_info(field)
        assert info.is_json == info.help.startswith("JSON"), field.name


def test_options_reach_their_part() -> None:
    """By name alone."""
    config = engine_config(
        {
            "model": "m",
            "max_model_len": 100,
            "block_size": 16,
            "gpu_memory_utilization": 1,
            "max_num_seqs": 3,
        }
    )

    assert (config.model.model, config.model.max_model_len) == ("m", 100)
    assert (config.cache.block_size, config.cache.gpu_memory_utilization) == (16, 1.0)
    assert config.scheduler.max_num_seqs == 3


def test_none_means_the_default() -> None:
    """For every option, as wrappers pass it on."""
    assert engine_config(dict.fromkeys(FIELDS)) == EngineConfig()


def test_the_context_may_be_auto() -> None:
    """As on the command line."""
    assert engine_config({"max_model_len": "auto"}).model == ModelConfig(max_model_len=-1)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("max_num_seqs", "64", "int"),
        ("max_num_seqs", True, "int"),
        ("max_model_len", 8.0, "int"),
        ("gpu_memory_utilization", "0.9", "float"),
        ("enable_prefix_caching", 1, "bool"),
        ("tokenizer", 5, "str"),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, value: Any, kind: str) -> None:
    """The message says which type it should have."""
    with pytest.raises(ConfigError, match=f"{name} must be of type {kind}, got"):
        engine_config({name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_num_seqs": 0}, "--max-num-seqs must be at least 1, got 0"),
        ({"max_num_partial_prefills": 0}, "at least 1, got 0; leave it out for no bound"),
        ({"threads": 0}, "at least 1, got 0; leave it out for the cores this process may use"),
        ({"block_size": 0}, "--block-size must be at least 8, got 0"),
        ({"block_size": 12}, "--block-size must be a multiple of 8, got 12; use 8 or 16"),
        ({"block_size": 255}, "--block-size must be a multiple of 8, got 255; use 248 or 256"),
        ({"max_model_len": 2**70}, "--max-model-len must be at most 2147483647"),
        ({"max_num_batched_tokens": 2**70}, "--max-num-batched-tokens must be at most 2147483647"),
        ({"swap_space": 1e300}, "--swap-space must be at most 2147483647"),
        ({"kv_offload_gb": 1e300}, "--kv-offload-gb must be at most 2147483647"),
    ],
)
def test_a_value_out_of_range_is_refused(options: dict[str, Any], message: str) -> None:
    """By the checks of the configuration itself, before anything is loaded."""
    with pytest.raises(ConfigError, match=message):
        engine_config(options)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    """A typing error does not silently leave a default."""
    with pytest.raises(ConfigError, match=r"'max_model_length'\. Did you mean max_model_len\?"):
        engine_config({"max_model_length": 5})
    with pytest.raises(ConfigError, match=r"Known: .*block_size"):
        engine_config({"zzzz": 5})


@pytest.mark.parametrize("row", FOREIGN.values(), ids=FOREIGN)
def test_a_name_of_vllm_passes_where_it_asks_for_nothing(
    row: VllmOption, caplog: pytest.LogCaptureFixture
) -> None:
    """In silence. Any other value is refused by name, or said to have no effect."""
    for value in (*row.asks_nothing, row.default):
        engine_config({row.name: value})
    assert caplog.messages == []

    other: Any = True if row.shape == "switch" else "other"
    if row.is_refused:
        with pytest.raises(ConfigError, match=f"^{row.name}.* is not supported: "):
            engine_config({row.name: other})
    else:
        engine_config({row.name: other})
        assert caplog.messages == [row.no_effect(row.name)]


def test_a_refused_keyword_says_what_was_given_and_what_would_pass() -> None:
    """In one line."""
    with pytest.raises(ConfigError) as error:
        engine_config({"tensor_parallel_size": 2})

    told = "tensor_parallel_size=2 is not supported: there is one rank; only 1 is"
    assert str(error.value) == told
    with pytest.raises(ConfigError) as error:
        engine_config({"kv_transfer_config": {"kv_role": "kv_both"}})

    told = 'kv_transfer_config={"kv_role": "kv_both"} is not supported: KV blocks are not sent to'
    assert str(error.value) == f"{told} other engines"


def test_a_secret_is_not_repeated_in_a_refusal() -> None:
    """Logs are read by others."""
    with pytest.raises(ConfigError, match="set HF_TOKEN") as error:
        engine_config({"hf_token": "hf_secret"})

    assert "hf_secret" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preemption_mode": "swap"}, "--preemption-mode swap needs --swap-space"),
        ({"swap_dir": "/somewhere"}, "--swap-dir needs --swap-space"),
        ({"kv_offload_dir": ""}, "--kv-offload-dir must name a folder"),
        (
            {"kv_offload_dir": "/somewhere", "enable_prefix_caching": False},
            "--kv-offload-dir keeps blocks of the prefix cache",
        ),
        ({"kv_offload_gb": 10.0}, "--kv-offload-gb needs --kv-offload-dir"),
        ({"priority_preemption": False}, "--no-priority-preemption .*policy priority alone"),
        (
            {"max_num_partial_prefills": 2, "enable_chunked_prefill": False},
            "--max-num-partial-prefills 2 needs chunked prefill",
        ),
        (
            {"max_num_partial_prefills": 9, "max_num_seqs": 8},
            "--max-num-partial-prefills 9 is more than --max-num-seqs 8.*"
            "at most --max-num-partial-prefills 8",
        ),
        ({"max_decode_slowdown": 0.5}, "--max-decode-slowdown must be 0 or at least 1"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    """And the message says what is missing."""
    with pytest.raises(ConfigError, match=message):
        engine_config(options)


@pytest.mark.parametrize("kv_cache_dtype", ["auto", "int8", "int4", "bfloat16"])
def test_kv_scales_from_data_go_with_every_type_but_fp8(kv_cache_dtype: str) -> None:
    """int8 and int4 always have them, floats need none."""
    config = engine_config({"calculate_kv_scales": True, "kv_cache_dtype": kv_cache_dtype})
    assert config.cache.kv_cache_dtype == kv_cache_dtype


@pytest.mark.parametrize("kv_cache_dtype", ["fp8", "fp8_e4m3", "fp8_e5m2"])
def test_fp8_refuses_kv_scales_from_data(kv_cache_dtype: str) -> None:
    """Those of the first batch would change later answers."""
    with pytest.raises(ConfigError, match=r"--calculate-kv-scales .* use --kv-cache-dtype int8"):
        engine_config({"calculate_kv_scales": True, "kv_cache_dtype": kv_cache_dtype})
