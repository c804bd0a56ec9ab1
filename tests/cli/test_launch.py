"""Where options of a launch come from, in which order, and how errors name the place."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.cli.engine_flags import add_engine_flags, engine_config, parse_flags
from octavo.cli.main import main
from octavo.config.cli_args import Parser, add_options, build
from octavo.config.engine import EngineConfig
from octavo.config.server import ServerConfig
from octavo.config.vllm_options import SERVER_OPTIONS
from octavo.errors import ConfigError

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a launch file lies."""
    return tmp_path / "launch.yaml"


def launch(*words: str, is_vllm: bool = False) -> tuple[EngineConfig, ServerConfig]:
    """The configuration of a command line, as `octavo serve` makes it."""
    parser = Parser(prog="octavo serve")
    add_engine_flags(parser)
    add_options(parser, ServerConfig)
    parsed = parse_flags(parser, words, SERVER_OPTIONS, is_vllm=is_vllm)
    return engine_config(parsed), build(ServerConfig, parsed)


def test_the_command_line_beats_the_file_and_the_file_the_environment(
    file: Path, monkeypatch: Patch
) -> None:
    """For counts, switches, lists and the model alike."""
    for name in ("MAX_NUM_SEQS", "MAX_MODEL_LEN", "BLOCK_SIZE"):
        monkeypatch.setenv(f"OCTAVO_{name}", "8")
    monkeypatch.setenv("OCTAVO_MODEL", "of-the-environment")
    file.write_text(
        "model: of-the-file\nmax_num_seqs: 2k\nmax-model-len: auto\nui: false\n"
        "served-model-name: [a, b]\nhf-overrides: {rope_theta: 5}\n"
    )
    engine, server = launch("--max-num-seqs", "3", "--config", str(file))

    assert engine.model.model == "of-the-file"
    assert engine.scheduler.max_num_seqs == 3
    assert engine.model.max_model_len == -1
    assert engine.cache.block_size == 8
    assert engine.model.hf_overrides == '{"rope_theta": 5}'
    assert (server.ui, server.served_model_name) == (False, ("a", "b"))
    assert launch("mine", "--config", str(file))[0].model.model == "mine"


def test_the_file_itself_may_be_named_by_a_variable(file: Path, monkeypatch: Patch) -> None:
    """OCTAVO_CONFIG, as every flag has one."""
    file.write_text("port: 81\n")
    monkeypatch.setenv("OCTAVO_CONFIG", str(file))
    assert launch()[1].port == 81


def test_objects_may_be_given_in_parts() -> None:
    """Under any spelling of the flag."""
    engine, _ = launch("--override_generation_config.temperature", "0.5")
    assert engine.model.override_generation_config == '{"temperature": 0.5}'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max-num-seqs: many", "--max-num-seqs takes a whole number"),
        ("max-num-seqs: 0", "--max-num-seqs must be at least 1, got 0; --max-num-seqs is set"),
        ("preemption-mode: swap", "needs --swap-space: GiB to move blocks to; --preemption-mode"),
        ("tensor-parallel-size: 2", "--tensor-parallel-size 2 is not supported"),
        ("task: sing", "--task must be one of"),
    ],
)
def test_an_error_about_a_value_of_the_file_names_its_line(
    file: Path, text: str, told: str
) -> None:
    """Whichever check finds it."""
    file.write_text(f"# first\n{text}\n")
    with pytest.raises(ConfigError) as error:
        launch("--config", str(file))

    assert told in str(error.value)
    assert f"in {file}:2" in str(error.value)


@pytest.mark.parametrize(
    ("variable", "text", "told"),
    [
        ("OCTAVO_MAX_NUM_SEQS", "0", "must be at least 1, got 0"),
        ("OCTAVO_TENSOR_PARALLEL_SIZE", "2", "--tensor-parallel-size 2 is not supported"),
        ("OCTAVO_ENABLE_LORA", "true", "--enable-lora is not supported"),
        ("OCTAVO_ENABLE_LORA", "maybe", "--enable-lora is on or off, got 'maybe'"),
    ],
)
def test_an_error_about_a_variable_names_it(
    variable: str, text: str, told: str, monkeypatch: Patch
) -> None:
    """Nobody gave a flag."""
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigError) as error:
        launch()

    assert told in str(error.value)
    assert f"in the environment variable {variable}" in str(error.value)


def test_an_error_about_the_command_line_names_no_other_place(file: Path) -> None:
    """The file's value does not count then."""
    file.write_text("max-num-seqs: 5\n")
    with pytest.raises(ConfigError, match=r"got 0$"):
        launch("--max-num-seqs", "0", "--config", str(file))


def test_a_flag_of_vllms_that_has_no_effect_is_told_from_every_place(
    file: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """Once each, with the place if it is another one than the command line."""
    file.write_text("enforce-eager: true\nenable-lora: false\nkv_transfer_config: {}\n")
    monkeypatch.setenv("OCTAVO_OPTIMIZATION_LEVEL", "3")
    launch("--config", str(file), "--async-scheduling", "-cc.mode", "3", "-tp", "1", "-dp=1")

    lines = capsys.readouterr().err.splitlines()
    assert sorted(lines) == [
        "octavo: --async-scheduling has no effect: the scheduler runs between steps",
        "octavo: --compilation-config has no effect: nothing is compiled at start",
        f"octavo: --enforce-eager has no effect: nothing is compiled at start (in {file}:1)",
        "octavo: --optimization-level has no effect: nothing is compiled at start "
        "(in the environment variable OCTAVO_OPTIMIZATION_LEVEL)",
    ]


@pytest.mark.parametrize("words", [["-O3"], ["-O", "3"], ["-O=3"], ["--optimization_level=3"]])
def test_the_level_of_optimisation_has_its_short_forms(words: list[str], capsys: Capture) -> None:
    """As people type it."""
    launch(*words)
    assert "--optimization-level has no effect" in capsys.readouterr().err


def test_flags_of_vllms_server_tests_parse(capsys: Capture) -> None:
    """Those that its own suite starts servers with, as far as they ask for nothing else."""
    launch(
        *("model", "--dtype", "bfloat16", "--max-model-len", "8192", "--enforce-eager"),
        *("--max-num-seqs", "128", "--gpu-memory-utilization", "0.8", "--trust-remote-code"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--disable-log-stats"),
        *("--reasoning-parser", "qwen3", "--enable-prompt-tokens-details", "--seed", "0"),
        *("--api-server-count", "2", "--max_logprobs", "20", "--load-format", "auto"),
        *("--enable-server-load-tracking", "--structured-outputs-config.backend", "auto"),
        *("--limit-mm-per-prompt.image", "0", "--no-enable-prefix-caching", "--runner", "generate"),
        *("--allowed-origins", '["*"]', "--generation-config", "vllm", "--kv-cache-dtype", "auto"),
    )
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 4
    assert all(" has no effect: " in line for line in told)


def test_a_second_file_is_refused(file: Path, capsys: Capture) -> None:
    """It would replace the first."""
    file.write_text("port: 81\n")
    with pytest.raises(SystemExit):
        launch("--config", str(file), "--config", str(file))
    assert "--config: may be given once" in capsys.readouterr().err


def test_a_key_that_no_command_reads_is_refused(file: Path) -> None:
    """`run-batch` takes its files from the command line alone."""
    file.write_text("input-file: x\n")
    words = ["run-batch", "-i", "x", "-o", "y", "--config", str(file)]
    assert main(words) == 2


def test_a_model_in_the_file_lets_a_list_flag_take_several_values(
    file: Path, capsys: Capture
) -> None:
    """The guard against a swallowed model knows the file."""
    file.write_text("model: ./none.gguf\nport: 0\n")
    assert main(["serve", "--config", str(file), "--api-key", "a", "b"]) == 1
    assert "there is no file or folder none.gguf" in capsys.readouterr().err


def test_a_variable_with_a_slip_is_told_and_those_of_others_are_not(
    monkeypatch: Patch, capsys: Capture
) -> None:
    """Kubernetes sets variables for a service of this name."""
    monkeypatch.setenv("OCTAVO_MAX_NUM_SEQ", "8")
    monkeypatch.setenv("OCTAVO_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("OCTAVO_PORT_8000_TCP_ADDR", "10.0.0.1")
    monkeypatch.setenv("OCTAVO_LOG_LEVEL", "info")
    launch()

    told = "octavo: OCTAVO_MAX_NUM_SEQ has no effect; did you mean OCTAVO_MAX_NUM_SEQS?\n"
    assert capsys.readouterr().err == told


def test_variables_of_vllms_count_for_its_commands_or_are_told(
    monkeypatch: Patch, capsys: Capture
) -> None:
    """A key that is set must guard the server; Octavo's own variable comes first."""
    monkeypatch.setenv("VLLM_API_KEY", "of vllm")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.setenv("VLLM_USE_V1", "1")

    assert launch(is_vllm=True)[1].api_key == ("of vllm",)
    assert capsys.readouterr().err == (
        "octavo: VLLM_LOGGING_LEVEL has no effect: use OCTAVO_LOG_LEVEL\n"
        "octavo: VLLM_USE_V1 has no effect here\n"
    )
    assert launch()[1].api_key == ()
    monkeypatch.setenv("OCTAVO_API_KEY", "ours")
    assert launch(is_vllm=True)[1].api_key == ("ours",)
