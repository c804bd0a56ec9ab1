"""The table of commands, its exit codes, and the commands that need no engine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from octavo.cli.main import COMMANDS, main
from octavo.version import version
from octavo.weights.catalogue import DEFAULT_MODEL

Capture = pytest.CaptureFixture[str]


def failure(capsys: Capture, *words: str) -> tuple[int, str]:
    """Exit code and standard error of a command that prints nothing else."""
    code = main(words)
    out, err = capsys.readouterr()
    assert out == ""
    return code, err


def usage_error(capsys: Capture, *words: str) -> str:
    """Standard error of a command line that the option parser refuses, which ends with 2."""
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("word", ["-h", "--help", "help"])
def test_help_lists_every_command(word: str, capsys: Capture) -> None:
    """One line each, exit code 0."""
    assert main([word]) == 0
    out = capsys.readouterr().out
    for name, (_, text) in COMMANDS.items():
        assert f"  {name} " in out
        assert text in out


def test_no_command_at_all_is_an_error_with_the_same_text(capsys: Capture) -> None:
    """Scripts notice; people learn what there is."""
    assert main([]) == 2
    assert "usage: octavo COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["-V", "--version", "version"])
def test_the_version_has_three_spellings(word: str, capsys: Capture) -> None:
    """The distribution's version."""
    assert main([word]) == 0
    assert capsys.readouterr().out == f"octavo {version()}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_explains_itself(name: str, capsys: Capture) -> None:
    """The table names real modules; `--help` ends with 0."""
    assert callable(import_module(COMMANDS[name][0]).run)
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])

    assert end.value.code == 0
    assert f"usage: octavo {name}" in capsys.readouterr().out


def test_help_is_instant() -> None:
    """It imports neither the engine nor the server's library."""
    code = (
        "import sys; from octavo.cli.main import main; main(['--help'])\n"
        "heavy = {'octavo.engine', 'starlette', 'uvicorn', 'tokenizers', 'argparse'}\n"
        "sys.exit(f'imported {heavy & set(sys.modules)}' if heavy & set(sys.modules) else 0)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


_INTERRUPTED = "os.kill(os.getpid(), signal.SIGINT)"
_AMONG_IMPORTS = f"""
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "octavo.cli.main":
            {_INTERRUPTED}

sys.meta_path.insert(0, Finder())
"""
_IN_A_COMMAND = f"""
import octavo.cli.main
command = types.ModuleType("command")
command.run = lambda words: {_INTERRUPTED}
sys.modules["command"] = command
octavo.cli.main.COMMANDS["list"] = ("command", "")
sys.argv[1] = "list"
"""


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        (_AMONG_IMPORTS, -signal.SIGINT),
        (_IN_A_COMMAND, 130),
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)" + _AMONG_IMPORTS, 0),
    ],
    ids=["among imports", "in a command", "ignored"],
)
def test_an_interrupt_tells_no_traceback(code: str, ended: int) -> None:
    """However early it comes."""
    begin = "import os, signal, sys, types, octavo.__main__\nsys.argv = ['octavo', '--version']\n"
    end = "\nsys.exit(octavo.__main__.main())"
    run = subprocess.run(
        [sys.executable, "-c", begin + code + end],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stderr) == (ended, "")


def test_the_entry_of_the_command_is_imported_without_effect() -> None:
    """Installers and other programs look at it."""
    code = "import signal, octavo.__main__; signal.raise_signal(signal.SIGINT)"
    run = subprocess.run(
        [sys.executable, "-c", f"try:\n  {code}\nexcept KeyboardInterrupt: print('interrupted')"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stdout) == (0, "interrupted\n")


def test_an_unknown_command_names_the_nearest(capsys: Capture) -> None:
    """A slip of the finger."""
    code, err = failure(capsys, "srve")
    assert code == 2
    assert err == "octavo: unknown command 'srve'. Did you mean 'serve'? See octavo --help\n"


def test_an_unknown_command_that_is_near_nothing_gets_no_guess(capsys: Capture) -> None:
    """No far-fetched advice."""
    assert failure(capsys, "xyzzy") == (2, "octavo: unknown command 'xyzzy'. See octavo --help\n")


def test_an_unknown_option_names_the_nearest(capsys: Capture) -> None:
    """With the command that was meant."""
    err = usage_error(capsys, "serve", "--max-modl-len", "5")
    assert err.startswith("octavo serve: unknown option --max-modl-len; did you mean --max-model")


def test_an_unknown_option_that_is_near_nothing_gets_no_guess(capsys: Capture) -> None:
    """Dashes are no likeness."""
    err = usage_error(capsys, "serve", "--bogus")
    assert err.startswith("octavo serve: unknown option --bogus\n")


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--max-num-s", "--max-num-seqs"),
        ("--max-model-le", "--max-model-len"),
        ("--port-", "--port"),
        ("--max-num", "--max-num-seqs or --max-num-batched-tokens"),
    ],
)
def test_a_flag_that_is_cut_short_is_refused_and_told_whole(
    word: str, told: str, capsys: Capture
) -> None:
    """What it begins today may not be all that it begins tomorrow."""
    err = usage_error(capsys, "serve", word, "5")
    assert err.startswith(f"octavo serve: unknown option {word}; did you mean {told}")


def test_a_word_too_many_is_not_called_an_option(capsys: Capture) -> None:
    """`octavo chat hello` has no option in it."""
    assert usage_error(capsys, "chat", "hello").startswith("octavo chat: unknown argument hello\n")


@pytest.mark.parametrize("command", ["top", "chat"])
def test_an_address_among_the_words_was_meant_as_the_servers(command: str, capsys: Capture) -> None:
    """Whichever command talks to a server."""
    err = usage_error(capsys, command, "http://localhost:8001")
    assert "unknown argument http://localhost:8001; did you mean --url http://localhost" in err


@pytest.mark.parametrize(
    ("keys", "is_told"),
    [((), True), (("--api-key", "a"), True), (("--api-key", "a", "b"), False)],
)
def test_fairness_between_fewer_than_two_keys_is_told(
    keys: tuple[str, ...], is_told: bool, capsys: Capture
) -> None:
    """Before the model is looked for."""
    words = ("./no.gguf", "--port", "0", "--scheduling-policy", "fair", *keys)
    _, err = failure(capsys, "serve", *words)
    assert ("--scheduling-policy fair has no effect" in err) == is_told


def test_a_bound_that_is_none_is_told_how_to_have_none(capsys: Capture) -> None:
    code, err = failure(capsys, "serve", "./no.gguf", "--max-queued-requests", "-1")
    assert code == 2
    assert "--max-queued-requests must be at least 1, got -1; leave it out for no bound" in err


@pytest.mark.parametrize("flag", ["--api-key", "--admin-api-key", "--served-model-name"])
def test_a_list_flag_may_not_swallow_the_model(flag: str, capsys: Capture) -> None:
    """The default model would be served instead, and its name would be a key; keys stay unsaid."""
    beyond_it = ("--block-size", "7")  # refused later: this test never serves anything
    code, err = failure(capsys, "serve", *beyond_it, flag, "secret", "./model.gguf")
    assert code == 2
    assert f"{flag} took 2 values and no model was named" in err
    assert "secret" not in err


def test_a_list_flag_behind_the_model_takes_several_values(capsys: Capture) -> None:
    """It gets as far as looking for the model."""
    code, err = failure(capsys, "serve", "./no.gguf", "--port", "0", "--api-key", "a", "b")
    assert code == 1
    assert "octavo: there is no file or folder no.gguf\n" in err


def test_a_model_that_is_not_there_is_a_failure(capsys: Capture) -> None:
    """Exit code 1: the command line was right."""
    code, err = failure(capsys, "run", "./missing.gguf", "hello")
    assert code == 1
    assert "there is no file or folder missing.gguf" in err


def test_pull_of_an_unknown_name_tells_the_known_ones(capsys: Capture) -> None:
    """Without asking the network."""
    code, err = failure(capsys, "pull", "nope")
    assert code == 1
    assert "'nope' is neither a short name (smollm2:135m) nor a hub id (org/name)" in err


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell expects; no traceback."""

    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("octavo.cli.doctor.run", interrupted)
    assert main(["doctor"]) == 130


def test_a_reader_that_leaves_is_no_traceback() -> None:
    """`octavo list | true`."""
    code = (
        "import os, sys; from octavo.cli.main import main\n"
        "reader, writer = os.pipe(); os.close(reader); os.dup2(writer, 1)\n"
        "sys.stdout.reconfigure(line_buffering=True, write_through=True)\n"
        "os._exit(main(['list']))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (1, "")


def test_list_shows_what_could_be_fetched(capsys: Capture) -> None:
    """On a fresh machine that is the catalogue."""
    assert main(["list"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "SIZE", "STATUS", "PATH"]
    assert row.split() == [DEFAULT_MODEL, "93.8", "MiB", "not", "fetched", "-"]


def test_doctor_is_healthy_here(capsys: Capture, fresh_machine: Path) -> None:
    """As a report for people, and as JSON with the same rows."""
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert main(["doctor"]) == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert rows == list(report)
    assert report["octavo"] == version()
    assert report["problems"] == []
    assert report["models"] == []
    assert report["cache"] == str(fresh_machine / "octavo")


def test_doctor_hides_secrets(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is made to be pasted in public."""
    monkeypatch.setenv("HF_TOKEN", "hf_abcdef")
    monkeypatch.setenv("OCTAVO_API_KEY", "key-abcdef")
    assert main(["doctor", "--json"]) == 0
    out = capsys.readouterr().out
    assert "abcdef" not in out
    assert json.loads(out)["environment"]["HF_TOKEN"] == "(set)"
