"""octavo top: frames from readings, and the command against a server that answers as planned."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from typing import Any

import pytest

from octavo.cli.main import main
from octavo.cli.top_frame import block_map, frame, waiting_frame
from octavo.cli.top_reading import Reading, counters_of, states_of
from octavo.config.server import ServerConfig
from tests.support.asgi import scripted_server
from tests.support.stub_server import stub_server

Capture = pytest.CaptureFixture[str]
WIDE = (120, 40)
COLOUR = re.compile(r"\x1b\[\d+m")
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?25h\x1b[?1049l"
METRICS = b"""\
# HELP vllm:prompt_tokens_total Prompt tokens.
vllm:prompt_tokens_total{engine="0",model_name="tiny"} 100.0
vllm:generation_tokens_total{engine="0",model_name="tiny"} 40.0
vllm:prefix_cache_queries_total{engine="0",model_name="tiny"} 80.0
vllm:prefix_cache_hits_total{engine="0",model_name="tiny"} 20.0
octavo:num_swaps_total{engine="0",model_name="tiny"} 3.0
vllm:request_success_total{finished_reason="stop"} 2.0
vllm:request_success_total{finished_reason="length"} 5.0
"""


def request(number: int = 0, **fields: Any) -> dict[str, Any]:
    """A request as /debug/kv shows it."""
    return {
        "id": f"cmpl-{number}",
        "state": "running",
        "tenant": "",
        "prompt_tokens": 9,
        "generated_tokens": 3,
        "computed_tokens": 11,
        "cached_tokens": 8,
        "age_s": 2.5,
        "preemptions": 0,
        "swaps": 0,
        **fields,
    }


def view(*requests: dict[str, Any], num_blocks: int = 8, **kv: Any) -> dict[str, Any]:
    """A pool with two used blocks, one of them shared, and one cached block."""
    return {
        "steps": {"count": 10, "tokens": 50, "python_s": 0.1, "compute_s": 0.9},
        "requests": list(requests),
        "kv": {
            "num_blocks": num_blocks,
            "block_size": 4,
            "num_host_slots": 0,
            "num_used_host_slots": 0,
            "num_allocated_slots": 8,
            "num_live_slots": 6,
            "tables": {"a": {"block_ids": [[0, 1], [-1, 1]]}, "b": {"block_ids": [[0]]}},
            "shared_blocks": {"0": 2},
            "findable_blocks": {"0": "ab", "5": "cd"},
            **kv,
        },
    }


def reading(time_s: float = 0.0, seen: Any = None, **counters: float) -> Reading:
    seen = seen or view(request())
    return Reading(time_s, seen, states_of(seen["kv"]), counters)


# ---- what is read


def test_each_block_has_one_state() -> None:
    """Shared before used before cached; a window's passed places hold nothing."""
    assert states_of(view()["kv"]) == "su...c.."


def test_counters_are_read_without_prefix_and_summed_over_labels() -> None:
    """Ours and vLLM's."""
    counters = counters_of(METRICS.decode())

    assert counters["prompt_tokens"] == 100
    assert counters["num_swaps"] == 3
    assert counters["request_success"] == 7


# ---- the frame


def test_a_frame_shows_requests_blocks_and_shares() -> None:
    """One line for each request, with its numbers."""
    lines = frame(
        reading(prefix_cache_queries=80, prefix_cache_hits=20, num_swaps=3),
        None,
        WIDE,
    )
    text = "\n".join(lines)

    assert "running 1  waiting 0" in text
    assert "used 25%  shared 12%  cached 12%  free 62%  of 8 with 4 tokens" in text
    assert "empty slots in used blocks 25%" in text
    assert "hits 25%" in text
    assert "step 100.00 ms (python 10.00)" in text
    assert "swaps 3" in text
    assert "#=...-.." in lines
    row = next(line for line in lines if line.startswith("cmpl-0"))
    assert row.split() == ["cmpl-0", "running", "9", "3", "11", "8", "2.5", "s", "0", "0", "-"]


def test_rates_are_those_since_the_reading_before() -> None:
    """Without one there is no rate."""
    old = reading(10.0, prompt_tokens=100, generation_tokens=40)
    new_view = view(request())
    new_view["steps"] = {"count": 14, "tokens": 60, "python_s": 0.11, "compute_s": 0.93}
    new = reading(12.0, new_view, prompt_tokens=300, generation_tokens=50)

    first, second = "\n".join(frame(old, None, WIDE)), "\n".join(frame(new, old, WIDE))

    assert "in - tok/s  out - tok/s" in first
    assert "in 100.0 tok/s  out 5.0 tok/s  step 10.00 ms (python 2.50)" in second
    assert "step -" in "\n".join(frame(old, old, WIDE))


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12), (20, 5), (1, 1), (300, 100)])
@pytest.mark.parametrize("num_requests", [0, 3, 500])
@pytest.mark.parametrize("is_coloured", [False, True])
def test_a_frame_never_exceeds_the_terminal(
    size: tuple[int, int], num_requests: int, is_coloured: bool
) -> None:
    """Whatever its size, with many requests and many blocks."""
    seen = view(*(request(n, id="x" * 200) for n in range(num_requests)), num_blocks=5000)

    lines = frame(reading(0.0, seen), None, size, is_coloured=is_coloured)

    assert len(lines) <= size[1]
    assert max(len(COLOUR.sub("", line)) for line in lines) <= size[0]


def test_requests_that_have_no_line_are_counted() -> None:
    """Nobody thinks that there are no more."""
    lines = frame(reading(0.0, view(*map(request, range(100)))), None, (120, 20))

    shown = sum(line.startswith("cmpl-") for line in lines)
    assert lines[-1] == f"... and {100 - shown} more"


def test_a_map_of_many_blocks_shows_what_most_of_a_cell_are() -> None:
    """Few blocks have a cell each."""
    assert block_map("su..", 2, 8) == ["su", ".."]
    assert block_map("uuuuc" + "....u" + "ccccc", 3, 1) == ["u.c"]


def test_colours_change_no_character() -> None:
    """They are added around runs of equal cells."""
    plain = frame(reading(), None, WIDE)
    coloured = frame(reading(), None, WIDE, is_coloured=True)

    assert [COLOUR.sub("", line) for line in coloured] == plain
    assert coloured != plain


def test_an_id_cannot_move_the_cursor() -> None:
    """A client may send any name."""
    lines = frame(reading(0.0, view(request(id="a\x1b[2Jb\nc"))), None, WIDE)

    assert any(line.startswith("a?[2Jb?c") for line in lines)
    assert waiting_frame("a\x1bb", (3, 9))[2] == "a?b"


async def test_a_servers_own_view_makes_a_frame() -> None:
    """The fields of /debug/kv are those that are read."""
    async with scripted_server(config=ServerConfig()) as client:
        await client.post("/v1/completions", {"prompt": "a prompt of some blocks", "max_tokens": 9})
        seen = (await client.get("/debug/kv")).json
        counters = counters_of((await client.get("/metrics")).content.decode())

    lines = frame(Reading(0.0, seen, states_of(seen["kv"]), counters), None, WIDE)

    assert any("cached" in line and "of 256 with 4 tokens" in line for line in lines)
    assert counters["generation_tokens"] >= 1


# ---- the command


def planned(*views: dict[str, Any]) -> dict[str, list[bytes]]:
    return {
        "/debug/kv": [json.dumps(one).encode() for one in views],
        "/metrics": [METRICS] * len(views),
    }


def test_once_prints_one_frame_for_a_pipe(capsys: Capture) -> None:
    """No escape sequence in it; the key is sent."""
    with stub_server(planned(view(request()))) as stub:
        assert main(["top", "--url", stub.url, "--once", "--api-key", "k"]) == 0

    out = capsys.readouterr().out
    assert "cmpl-0" in out
    assert "\x1b" not in out
    assert stub.keys == {"Bearer k"}


def failure(capsys: Capture, *words: str) -> tuple[int, str]:
    code = main(["top", *words])
    return code, capsys.readouterr().err


def test_a_server_that_refuses_is_told_in_one_line(capsys: Capture) -> None:
    """With its own words."""
    body = b'{"error": {"message": "this path is for administrators"}}'
    with stub_server({"/metrics": [body]}) as stub:
        stub.status = 403
        code, err = failure(capsys, "--url", stub.url, "--once")

    assert (code, err) == (1, "octavo: 403: this path is for administrators\n")


def test_an_answer_of_another_server_is_told(capsys: Capture) -> None:
    """Instead of a trace."""
    with stub_server({"/metrics": [METRICS], "/debug/kv": [b"[]"]}) as stub:
        code, err = failure(capsys, "--url", stub.url, "--once")

    assert code == 1
    assert "/debug/kv does not answer like octavo's server" in err


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "inf"])
def test_an_interval_that_is_none_is_refused(interval: str, capsys: Capture) -> None:
    """As any wrong option."""
    code, err = failure(capsys, "--interval", interval)

    assert code == 2
    assert "--interval must be at least" in err


class TopOnATerminal:
    """`octavo top` on a pseudo-terminal of its own."""

    def __init__(self, url: str) -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "octavo", "top", "--url", url, "--interval", "0.05"],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "COLUMNS": "100", "LINES": "30"},
        )
        os.close(slave)
        self.seen = ""

    def read_until(self, words: str) -> None:
        while words not in self.seen:
            try:
                piece = os.read(self._master, 65536)
            except OSError:  # the other side is closed
                piece = b""
            assert piece, f"{words!r} did not come: {self.seen!r}"
            self.seen += piece.decode()

    def end(self, number: int) -> int:
        """The exit code after a signal."""
        self._process.send_signal(number)
        self.read_until(LEAVE)
        return self.wait()

    def wait(self) -> int:
        """The exit code of a command that ends."""
        code = self._process.wait(20)
        os.close(self._master)
        return code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_leaves_the_terminal_as_it_was(number: int, code: int) -> None:
    """The cursor is back, and the screen from before."""
    with stub_server(planned(*[view(request())] * 1000)) as stub:
        top = TopOnATerminal(stub.url)
        top.read_until("cmpl-0")
        assert top.end(number) == code

    assert top.seen.startswith(ENTER)
    assert "Traceback" not in top.seen


def test_a_server_that_goes_away_is_asked_again() -> None:
    """The frame says so, and comes back with the server."""
    with stub_server(planned(*[view(request())] * 1000)) as stub:
        top = TopOnATerminal(stub.url)
        top.read_until("cmpl-0")
        stub.status = 503
        top.read_until("trying again")
        top.seen = ""
        stub.status = 200
        top.read_until("cmpl-0")
        assert top.end(signal.SIGINT) == 0


def test_a_key_that_is_wrong_ends_it() -> None:
    """Asking again would not help; the terminal is put back first."""
    with stub_server(planned(*[view(request())] * 10)) as stub:
        stub.status = 401
        top = TopOnATerminal(stub.url)
        top.read_until("octavo: 401")
        assert top.wait() == 1

    assert LEAVE in top.seen
