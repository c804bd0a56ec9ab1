"""octavo-vllm: the commands of `vllm`, under its names."""

from __future__ import annotations

import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from octavo.cli.main import COMMANDS
from octavo.compat.vllm.command import VLLM_COMMANDS, main
from octavo.entrypoints.openai import api_server
from octavo.version import version

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(autouse=True)
def named_vllm(monkeypatch: Patch) -> None:
    """Linked as `vllm`, as people do."""
    monkeypatch.setattr(sys, "argv", ["/usr/local/bin/vllm"])


def test_help_has_the_name_that_it_was_called_by(capsys: Capture) -> None:
    """And the commands of vLLM that there are."""
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("usage: vllm COMMAND [OPTIONS]")
    for name in ("serve", "chat", "complete", "run-batch", "bench", "collect-env"):
        assert f"  {name} " in out


@pytest.mark.parametrize("name", VLLM_COMMANDS)
def test_every_command_explains_itself(name: str, capsys: Capture) -> None:
    """Each is a module with `run`."""
    assert callable(import_module(VLLM_COMMANDS[name][0]).run)
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    assert "usage: octavo " in capsys.readouterr().out


@pytest.mark.parametrize("word", ["-v", "--version"])
def test_the_version_is_octavos(word: str, capsys: Capture) -> None:
    """Under vLLM's short flag, too."""
    assert main([word]) == 0
    assert capsys.readouterr().out == f"octavo {version()}\n"


def test_a_command_of_vllms_that_is_not_there_is_an_error(capsys: Capture) -> None:
    """With its name."""
    assert main(["launch", "render"]) == 2
    assert capsys.readouterr().err == "octavo: unknown command 'launch'. See vllm --help\n"


@pytest.mark.parametrize("words", [[], ["--host", "127.0.0.1"], ["--uds", "/nowhere/socket"]])
def test_it_listens_everywhere_unless_told_otherwise(words: list[str], capsys: Capture) -> None:
    """It says so, and a second time without a key; the model is looked for last."""
    assert main(["serve", "./none.gguf", "--port", "0", *words]) in (1, 2)
    err = capsys.readouterr().err
    assert ("listening on every interface (0.0.0.0), as vllm does; --host 127.0.0.1" in err) == (
        not words
    )
    assert ("without --api-key: anybody may use the model" in err) == (not words)


def test_a_variable_may_name_the_host(monkeypatch: Patch, capsys: Capture) -> None:
    """As every option."""
    monkeypatch.setenv("OCTAVO_HOST", "127.0.0.1")
    assert main(["serve", "./none.gguf", "--port", "0"]) == 1
    assert "every interface" not in capsys.readouterr().err


def test_octavo_serve_stays_on_the_loopback_and_tells_of_vllms_key(
    monkeypatch: Patch, capsys: Capture
) -> None:
    """A key that would not guard the server is not passed over."""
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    run = import_module(COMMANDS["serve"][0]).run
    with pytest.raises(Exception, match=r"no file or folder none\.gguf"):
        run(["./none.gguf", "--port", "0"])
    err = capsys.readouterr().err
    assert "VLLM_API_KEY is not read by octavo serve: set OCTAVO_API_KEY" in err
    assert "every interface" not in err
    assert "secret" not in err


def test_the_server_module_takes_vllms_flags(capsys: Capture) -> None:
    """`python -m octavo.entrypoints.openai.api_server --model M`."""
    assert api_server.main(["--model", "./none.gguf", "--port", "0", "--max_num_seqs", "2"]) == 1
    err = capsys.readouterr().err
    assert "there is no file or folder none.gguf" in err
    assert "as vllm does" in err


def test_run_batch_takes_vllms_flags_of_its_own(capsys: Capture) -> None:
    """It opens no port."""
    words = ["run-batch", "-i", "/none/in", "-o", "/none/out", "--model", "m"]
    assert main([*words, "--enable-metrics", "--port", "9000"]) == 2
    err = capsys.readouterr().err
    assert "--enable-metrics has no effect: run-batch opens no port" in err
    assert "--port has no effect: run-batch opens no port" in err
    assert "/none/in: No such file" in err


def test_the_package_installs_both_commands() -> None:
    """Each script's target is a function."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["scripts"]) == {"octavo", "octavo-vllm"}
    for target in project["scripts"].values():
        module, _, name = target.partition(":")
        assert callable(getattr(import_module(module), name))
