"""Options that change nothing in the company of others are told by name; vLLM's scripts start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from octavo.config.engine import EngineConfig
from octavo.config.keywords import engine_config
from octavo.config.model_facts import PoolingFacts
from octavo.config.without_effect import without_effect, without_idle_swap
from octavo.engine.model_kind import config_for
from tests.support.random_checkpoint import tiny_facts

LONGEST = 4096
EVENTS = '{"enable_kv_cache_events": true}'


def told(**options: Any) -> list[str]:
    """What is said of options with a model that takes them as they are."""
    config = engine_config(options)
    return without_effect(config, config, LONGEST)


@pytest.mark.parametrize(
    ("options", "flag", "because"),
    [
        ({"swap_space": 4, "preemption_mode": "recompute"}, "--swap-space", "recompute"),
        (
            {"swap_space": 4, "swap_dir": "/tmp/s", "preemption_mode": "recompute"},
            "--swap-space and --swap-dir",
            "recompute",
        ),
        (
            {"long_prefill_token_threshold": 512},
            "--long-prefill-token-threshold 512",
            "(--max-num-batched-tokens)",
        ),
        (
            {"long_prefill_token_threshold": LONGEST},
            "--long-prefill-token-threshold 4096",
            "(--max-model-len)",
        ),
        (
            {"long_prefill_token_threshold": 9, "enable_chunked_prefill": False},
            "--long-prefill-token-threshold",
            "without chunked prefill",
        ),
        (
            {"max_num_partial_prefills": 1, "enable_chunked_prefill": False},
            "--max-num-partial-prefills",
            "without chunked prefill",
        ),
        (
            {"kv_events_config": EVENTS, "enable_prefix_caching": False},
            "--kv-events-config",
            "prefix caching is off",
        ),
        ({"kv_events_config": '{"publisher": "zmq"}'}, "--kv-events-config", "enable_kv_cache_"),
        (
            {"kv_cache_memory_bytes": 1, "num_gpu_blocks_override": 1},
            "--kv-cache-memory-bytes",
            "--num-gpu-blocks-override",
        ),
        (
            {"gpu_memory_utilization": 0.9, "kv_cache_memory_bytes": 1},
            "--gpu-memory-utilization",
            "--kv-cache-memory-bytes",
        ),
        ({"calculate_kv_scales": True}, "--calculate-kv-scales", "--kv-cache-dtype"),
    ],
)
def test_an_option_without_effect_is_told_by_name(
    options: dict[str, Any], flag: str, because: str
) -> None:
    """In one line, with what takes the effect away."""
    [line] = told(**options)
    assert line.startswith(flag)
    assert because in line


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"swap_space": 4},
        {"long_prefill_token_threshold": 511, "max_num_partial_prefills": 2},
        {"enable_chunked_prefill": False},
        {"kv_events_config": EVENTS},
        {"kv_events_config": "{}"},
        {"kv_events_config": '{"enable_kv_cache_events": true, "publisher": "null"}'},
        {"num_gpu_blocks_override": 9},
        {"gpu_memory_utilization": 0.9},
    ],
)
def test_what_has_an_effect_is_not_spoken_of(options: dict[str, Any]) -> None:
    assert told(**options) == []


def test_what_the_model_turns_off_is_told_too() -> None:
    """A model with states keeps no prefix cache, whatever the flags say."""
    asked = engine_config({"kv_events_config": EVENTS})
    used = replace(asked, cache=replace(asked.cache, enable_prefix_caching=False))
    [line] = without_effect(asked, used, LONGEST)
    assert "prefix caching is off with this model" in line


@pytest.mark.parametrize(
    ("options", "flags"),
    [
        ({"swap_space": 4}, "--swap-space has"),
        ({"swap_space": 4, "preemption_mode": "swap"}, "--swap-space has"),
        ({"swap_space": 4, "swap_dir": "/tmp/s"}, "--swap-space and --swap-dir have"),
    ],
)
def test_swap_space_beside_an_encoder_is_told_and_takes_no_memory(
    options: dict[str, Any], flags: str
) -> None:
    """Its requests are over after one step: there is nothing to move."""
    asked = engine_config(options)
    facts = tiny_facts(is_causal=False, pooling=PoolingFacts(method="mean"))

    used = config_for(asked, facts)
    [line] = without_effect(asked, used, LONGEST)

    assert (used.cache.swap_space, used.cache.swap_dir) == (0.0, None)
    assert line.startswith(flags)
    assert "first step" in line


def test_swap_space_that_nobody_would_use_takes_no_memory() -> None:
    options = {"swap_space": 4, "swap_dir": "/tmp/s"}
    idle = without_idle_swap(engine_config({**options, "preemption_mode": "recompute"}))
    assert (idle.cache.swap_space, idle.cache.swap_dir) == (0.0, None)
    for mode in ("swap", "auto"):
        config: EngineConfig = engine_config({**options, "preemption_mode": mode})
        assert without_idle_swap(config) is config
