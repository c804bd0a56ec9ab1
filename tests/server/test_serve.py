"""The listening socket, and what is refused before anything is loaded."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path

import pytest

from octavo.cli.main import main
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.foundation.log import DEFAULT_INTERVAL_S, statistics_interval_s
from octavo.server.listening import listen
from tests.support.server_process import socket_path

INTERVAL = "OCTAVO_LOG_STATS_INTERVAL"


def test_a_file_that_is_no_socket_is_never_removed(tmp_path: Path) -> None:
    """--uds with the path of somebody's data is refused, and the data stay."""
    path = tmp_path / "data.txt"
    path.write_text("precious", encoding="utf-8")

    with pytest.raises(ConfigError, match="--uds"):
        listen(ServerConfig(uds=str(path)))

    assert path.read_text(encoding="utf-8") == "precious"


def test_the_socket_of_a_server_that_has_ended_is_replaced() -> None:
    """A killed server leaves its socket file; the next one may start."""
    with socket_path() as path:
        listen(ServerConfig(uds=str(path))).close()

        with listen(ServerConfig(uds=str(path))), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_the_socket_of_a_running_server_is_left_alone() -> None:
    """Two servers cannot have one path."""
    with (
        socket_path() as path,
        listen(ServerConfig(uds=str(path))),
        pytest.raises(ConfigError, match="in use"),
    ):
        listen(ServerConfig(uds=str(path)))


@pytest.mark.parametrize("text", ["often", "0", "-1", "nan", "inf"])
def test_a_wrong_interval_is_refused_by_the_name_of_its_variable(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zero would be a loop that never sleeps."""
    monkeypatch.setenv(INTERVAL, text)

    with pytest.raises(ConfigError, match=INTERVAL):
        statistics_interval_s()


def test_the_interval_is_ten_seconds_unless_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fractions are fine."""
    monkeypatch.delenv(INTERVAL, raising=False)
    assert statistics_interval_s() == DEFAULT_INTERVAL_S
    monkeypatch.setenv(INTERVAL, "0.5")
    assert statistics_interval_s() == 0.5


@pytest.mark.parametrize("name", ["messages", "tokenize"])
@pytest.mark.parametrize("words", [["serve", "--port", "0"], ["run-batch", "-i", "-", "-o", "-"]])
def test_a_variable_that_templates_have_already_is_refused_before_the_model_is_looked_for(
    words: list[str], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which is not there; the error is that of the option."""
    flag = ("--default-chat-template-kwargs", json.dumps({name: "x"}))
    code = main([*words, "--model", str(tmp_path / "nowhere"), *flag])

    assert code == 2
    assert f"--default-chat-template-kwargs must not set {name!r}" in capsys.readouterr().err


def test_a_refused_option_leaves_signals_as_they_were(tmp_path: Path) -> None:
    """For the program that called: its interrupts must reach it."""
    before = signal.getsignal(signal.SIGINT)
    flag = ("--default-chat-template-kwargs", json.dumps({"tools": "x"}))

    assert main(["serve", "--model", str(tmp_path / "nowhere"), "--port", "0", *flag]) == 2
    assert signal.getsignal(signal.SIGINT) is before
