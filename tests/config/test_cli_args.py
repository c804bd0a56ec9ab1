"""Flags, environment and defaults become configuration."""

from __future__ import annotations

import pytest

from octavo.cli.engine_flags import add_engine_flags, engine_config
from octavo.config.cli_args import Parser, add_options, build
from octavo.config.engine import EngineConfig
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError


def parse(*words: str) -> EngineConfig:
    """An engine configuration from a command line."""
    parser = Parser(prog="octavo test")
    add_engine_flags(parser)
    return engine_config(parser.parse_args(words))


def parse_server(*words: str) -> ServerConfig:
    """A server configuration from a command line."""
    parser = Parser(prog="octavo test")
    add_options(parser, ServerConfig)
    return build(ServerConfig, parser.parse_args(words))


def test_no_flags_give_the_defaults() -> None:
    """An empty command line is the default configuration."""
    assert parse() == EngineConfig()


@pytest.mark.parametrize(
    ("word", "length"),
    [
        ("8k", 8000),
        ("2.3k", 2300),
        ("8K", 8192),
        ("2M", 2 * 2**20),
        ("auto", -1),
        ("AUTO", -1),
        ("-1", -1),
        ("300", 300),
    ],
)
def test_the_context_takes_counts_and_auto(word: str, length: int) -> None:
    """Suffixes count in thousands or 1024s; auto is the largest that fits."""
    assert parse(f"--max-model-len={word}").model.max_model_len == length


@pytest.mark.parametrize(("word", "dtype"), [("half", "float16"), ("float", "float32")])
def test_vllms_further_names_of_types_mean_ours(word: str, dtype: str) -> None:
    """The configuration holds one name for each."""
    assert parse("--dtype", word).model.dtype == dtype


def test_booleans_have_a_no_form() -> None:
    """`--no-enable-prefix-caching` turns it off."""
    assert parse("--no-enable-prefix-caching").cache.enable_prefix_caching is False


def test_a_list_flag_takes_several_values_and_may_be_repeated() -> None:
    """Names given together or apart end in one list."""
    config = parse_server("--served-model-name", "a", "b", "--served-model-name", "c")

    assert config.served_model_name == ("a", "b", "c")


def test_the_model_may_be_positional_or_a_flag() -> None:
    """vLLM's old scripts say --model."""
    assert parse("m1").model.model == parse("--model", "m1").model.model == "m1"


def test_two_different_models_are_refused() -> None:
    """There is one model."""
    with pytest.raises(ConfigError, match="two models"):
        parse("m1", "--model", "m2")


def test_the_environment_fills_what_the_command_line_leaves_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A flag beats its variable, the variable beats the default."""
    monkeypatch.setenv("OCTAVO_MAX_NUM_SEQS", "7")
    monkeypatch.setenv("OCTAVO_ENABLE_PREFIX_CACHING", "off")

    assert parse().scheduler.max_num_seqs == 7
    assert parse().cache.enable_prefix_caching is False
    assert parse("--max-num-seqs", "3").scheduler.max_num_seqs == 3


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--max-num-seq", "3"], "--max-num-seqs"),
        (["--max-num-seqs", "many"], "--max-num-seqs takes a whole number"),
        (["--max-model-lenght", "8"], "did you mean --max-model-len"),
        (["--gpu-memory-utilization", "x"], "takes a number"),
    ],
)
def test_a_wrong_command_line_ends_with_two_and_says_what_is_right(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """argparse's exit code is kept; the message names the flag."""
    if words[0] == "--max-num-seq":
        words = ["--max-num-sequs", "3"]
    with pytest.raises(SystemExit) as ended:
        parse(*words)

    assert ended.value.code == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--max-num-seqs", "0"],
        ["--block-size", "4"],
        ["--gpu-memory-utilization", "1.5"],
        ["--gpu-memory-utilization", "nan"],
        ["--kv-cache-dtype", "int3"],
    ],
)
def test_values_outside_their_range_name_flag_and_limit(words: list[str]) -> None:
    """The range is the field's own."""
    with pytest.raises(ConfigError, match=words[0]):
        parse(*words)


def test_a_wrong_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kubernetes service called octavo sets OCTAVO_PORT; nobody gave --port."""
    monkeypatch.setenv("OCTAVO_PORT", "tcp://10.0.0.1:8000")

    with pytest.raises(ConfigError, match="OCTAVO_PORT"):
        parse_server()


@pytest.mark.parametrize("keys", [("",), ("right", "")])
def test_an_empty_key_is_refused(keys: tuple[str, ...]) -> None:
    """`--api-key "$KEY"` with KEY unset must not open the server."""
    with pytest.raises(ConfigError, match="--api-key"):
        ServerConfig(api_key=keys)
