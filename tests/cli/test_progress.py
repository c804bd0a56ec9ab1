"""Progress on a terminal and in a log file."""

from __future__ import annotations

import io

import pytest

from octavo.cli.progress import PhaseProgress


class Terminal(io.StringIO):
    """A stream that people look at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that the progress sees, in its only element."""
    now_s = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    return now_s


def test_a_log_gets_few_whole_lines(clock: list[float]) -> None:
    """The first, one every five seconds, and the end."""
    log = io.StringIO()
    progress = PhaseProgress(log)
    for second in range(11):
        clock[0] = 1000.0 + second
        progress.show("fetching", second * 1e6, 10e6)
    progress.close()

    lines = log.getvalue().splitlines()
    assert [line.split()[1] for line in lines] == ["0%", "50%", "100%"]
    assert lines[1].endswith("1.0 MB/s, 5 s left")
    assert "\r" not in log.getvalue()


def test_a_finished_phase_is_said_once(clock: list[float]) -> None:
    """Although the loader asks again and again."""
    log = io.StringIO()
    progress = PhaseProgress(log, in_bytes=False)
    for share in (0.5, 1.0, 1.0, 1.0):
        progress.show("unpacking", share, 1.0)
    progress.show("weights", 1.0, 1.0)

    assert log.getvalue() == "unpacking  50%\nunpacking 100%\nweights 100%\n"


def test_a_terminal_gets_one_line_that_changes(clock: list[float]) -> None:
    """Each phase ends its line; so does the end."""
    terminal = Terminal()
    progress = PhaseProgress(terminal, in_bytes=False)
    for share in (0.1, 0.2, 0.3):
        clock[0] += 1.0
        progress.show("weights", share, 1.0)
    clock[0] += 0.01
    progress.show("weights", 0.4, 1.0)  # too soon to be read
    progress.show("ready", 1.0, 1.0)
    progress.close()
    progress.close()

    first, second, rest = terminal.getvalue().split("\n")
    assert first.split("\r\x1b[2K") == ["", "weights  10%", "weights  20%", "weights  30%"]
    assert (second, rest) == ("\r\x1b[2Kready 100%", "")


def test_an_unknown_total_shows_what_is_done(clock: list[float]) -> None:
    """No share, no remaining time."""
    log = io.StringIO()
    PhaseProgress(log).show("fetching", 2048, 0)
    assert log.getvalue() == "fetching 2.0 KiB\n"
