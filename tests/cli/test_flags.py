"""Flags of `octavo serve`: they come from the configuration; vLLM's spellings work."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pytest

from octavo.cli.engine_flags import add_engine_flags, engine_config, parse_flags
from octavo.config.cli_args import Parser, add_options, build
from octavo.config.engine import EngineConfig
from octavo.config.server import ServerConfig
from octavo.config.vllm_options import SERVER_OPTIONS
from octavo.errors import ConfigError

Capture = pytest.CaptureFixture[str]


def parse(words: Sequence[str]) -> argparse.Namespace:
    """As `octavo serve` does."""
    parser = Parser(prog="octavo serve")
    add_engine_flags(parser)
    add_options(parser, ServerConfig)
    return parse_flags(parser, words, SERVER_OPTIONS)


def configure(*words: str) -> tuple[EngineConfig, ServerConfig]:
    """The configuration of a command line."""
    parsed = parse(words)
    return engine_config(parsed), build(ServerConfig, parsed)


def test_swapping_tiers_and_policies_have_flags(capsys: Capture) -> None:
    """Each reaches its field, and none is called without effect."""
    engine, _ = configure(
        *("--preemption-mode", "auto", "--swap-space", "4", "--swap-dir", "/tmp/s"),
        *("--kv-offload-dir", "/tmp/kv", "--kv-offload-gb", "2.5"),
        *("--kv-events-config", '{"enable_kv_cache_events": true}'),
        *("--scheduling-policy", "priority", "--no-priority-preemption"),
        *("--long-prefill-token-threshold", "256", "--max-num-partial-prefills", "2"),
    )

    cache, scheduler = engine.cache, engine.scheduler
    assert (scheduler.preemption_mode, cache.swap_space, cache.swap_dir) == ("auto", 4.0, "/tmp/s")
    assert (cache.kv_offload_dir, cache.kv_offload_gb) == ("/tmp/kv", 2.5)
    assert cache.kv_events_config == '{"enable_kv_cache_events": true}'
    assert (scheduler.scheduling_policy, scheduler.priority_preemption) == ("priority", False)
    assert scheduler.long_prefill_token_threshold == 256
    assert scheduler.max_num_partial_prefills == 2
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (("--task", "embed"), ("pooling", "embed")),
        (("--task", "score"), ("pooling", "classify")),
        (("--task", "embed", "--convert", "none"), ("pooling", "none")),
        (("--runner", "pooling"), ("pooling", "auto")),
        ((), ("auto", "auto")),
    ],
)
def test_vllms_older_task_means_a_runner_and_a_conversion(
    words: tuple[str, ...], kind: tuple[str, str]
) -> None:
    """What is said apart counts before it."""
    engine, _ = configure(*words)

    assert (engine.model.runner, engine.model.convert) == kind


def test_the_servers_new_options_have_flags() -> None:
    """Keys may be several."""
    _, server = configure(
        *("--admin-api-key", "one", "two", "--enable-per-request-metrics"),
        *("--max-queued-requests", "8"),
    )

    assert server.admin_api_key == ("one", "two")
    assert server.enable_per_request_metrics
    assert server.max_queued_requests == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--preemption-mode", "swop"), "--preemption-mode must be one of recompute, swap, auto"),
        (("--swap-space", "-1"), "--swap-space must be at least 0"),
        (("--scheduling-policy", "lifo"), "--scheduling-policy must be one of fcfs, priority"),
    ],
)
def test_a_wrong_value_is_refused_with_what_would_be_right(
    words: tuple[str, ...], message: str
) -> None:
    """Before a model is loaded."""
    with pytest.raises(ConfigError, match=message):
        configure(*words)


def test_a_flag_of_vllm_without_effect_is_explained(capsys: Capture) -> None:
    """In one line; a value that would change the placement is refused."""
    configure("--enforce-eager")
    assert capsys.readouterr().err == (
        "octavo: --enforce-eager has no effect: nothing is compiled at start\n"
    )
    with pytest.raises(ConfigError, match="--tensor-parallel-size 2 is not supported"):
        configure("-tp", "2")
