"""octavo bench serve against a scripted server on the loopback: what is counted and written."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.bench import presets, serve
from octavo.cli.bench.datasets import Sample
from octavo.cli.bench.load import Arrivals
from octavo.cli.bench.presets import Outcome, Phase, Phases
from octavo.cli.bench.roofs import Roofs
from octavo.cli.main import main
from tests.support.asgi import scripted_server
from tests.support.asgi_socket import listening

SHORT = "--vocab-size 300 --random-input-len 12 --random-output-len 6 --num-prompts 5"


@pytest.fixture(autouse=True)
def no_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Roofs are measured elsewhere."""
    monkeypatch.setattr(serve, "measure_roofs", lambda threads: Roofs(1.0, 2.0, 3.0, 4.0))


@asynccontextmanager
async def bench_server(**options: Any) -> AsyncIterator[str]:
    """The URL of a scripted server."""
    async with scripted_server(**options) as client, listening(client.app) as url:
        yield url


async def bench(url: str, folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and results file of a run."""
    arguments = [*words, "--base-url", url, "--save-result"]
    arguments += ["--result-dir", str(folder), "--result-filename", "r.json"]
    code = await asyncio.to_thread(main, ["bench", "serve", *arguments])
    path = folder / "r.json"
    return code, json.loads(path.read_text()) if path.exists() else {}


async def test_every_token_of_every_request_is_counted(tmp_path: Path) -> None:
    """Answers have their full length, whatever the model would like to say."""
    async with bench_server() as url:
        code, found = await bench(url, tmp_path, *SHORT.split(), "--save-detailed")

    assert 0 == code
    assert (5, 0) == (found["completed"], found["failed"])
    assert (60, 30) == (found["total_input_tokens"], found["total_output_tokens"])
    assert [6] * 5 == found["output_lens"]
    assert "tiny" == found["model_id"]
    assert found["output_throughput"] == pytest.approx(30 / found["duration"])
    assert 0 < found["mean_ttft_ms"] <= 1e3 * max(found["latencies"])
    for latency, ttft, gaps in zip(found["latencies"], found["ttfts"], found["itls"], strict=True):
        assert latency == pytest.approx(ttft + sum(gaps))


async def test_the_table_has_the_lines_of_vllm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the roofs of the machine before it."""
    async with bench_server() as url:
        await bench(url, tmp_path, *SHORT.split(), "--goodput", "ttft:60000")

    shown = capsys.readouterr().out
    for line in (
        "roofs: read",
        "Successful requests:",
        "Request goodput (req/s):",
        "P99 TPOT (ms)",
    ):
        assert line in shown


async def test_goodput_is_all_or_nothing_at_the_extremes(tmp_path: Path) -> None:
    """A minute for the first token is enough for everybody, nothing for nobody."""
    async with bench_server() as url:
        _, generous = await bench(url, tmp_path, *SHORT.split(), "--goodput", "e2el:60000")
        _, strict = await bench(url, tmp_path, *SHORT.split(), "--goodput", "e2el:0")

    assert generous["request_goodput"] == generous["request_throughput"]
    assert 0 == strict["request_goodput"]


async def test_no_more_requests_are_in_flight_than_allowed(tmp_path: Path) -> None:
    """The others wait at the sender, which is told apart from the server's time."""
    words = [*SHORT.split(), "--max-concurrency", "2", "--save-detailed"]
    async with bench_server() as url:
        _, found = await bench(url, tmp_path, *words)

    assert 2 == found["max_concurrency"]
    assert found["max_concurrent_requests"] <= 2
    assert max(found["queue_times"]) > 0


async def test_requests_come_at_the_rate_that_was_asked_for(tmp_path: Path) -> None:
    """Five requests at 50 a second take a tenth of a second at least."""
    words = [*SHORT.split(), "--request-rate", "50", "--burstiness", "inf"]
    async with bench_server() as url:
        _, found = await bench(url, tmp_path, *words)

    assert 50.0 == found["request_rate"]
    assert found["duration"] >= 5 / 50


async def test_a_chat_gets_the_text_of_the_tokens(tmp_path: Path) -> None:
    """By the server's own tokenizer."""
    template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    async with bench_server(chat_template=template) as url:
        code, found = await bench(url, tmp_path, *SHORT.split(), "--backend", "openai-chat")

    assert 0 == code
    assert 30 == found["total_output_tokens"]


async def test_a_server_that_refuses_is_reported_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first request shows it, before a thousand others do."""
    async with bench_server() as url:
        code, found = await bench(
            url, tmp_path, "--random-input-len", "5000", "--vocab-size", "300"
        )

    assert (1, {}) == (code, found)
    assert "the first request failed: 400" in capsys.readouterr().err


async def test_where_no_server_is_the_message_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1."""
    code, _ = await bench("http://127.0.0.1:9", tmp_path, *SHORT.split())

    assert 1 == code
    assert "no server at http://127.0.0.1:9" in capsys.readouterr().err


async def test_a_mixture_is_summed_up_by_its_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Phases run one after another, and a later one may depend on what came out."""

    def phases(generator: Any, vocab_size: int, outcomes: dict[str, Outcome]) -> Phases:
        mixed = [Sample([5, 6], 2, 3, 0.0, "a"), Sample([7] * 9, 9, 4, 0.01, "b")]
        yield Phase("first", mixed, objectives=({"ttft": 60000.0},))
        yield Phase("then", mixed * outcomes["first"]["completed"], Arrivals(max_concurrency=1))

    monkeypatch.setitem(presets.PRESETS, "w1", phases)
    async with bench_server() as url:
        code, found = await bench(url, tmp_path, "--preset", "w1")

    first, then = found["phases"]["first"], found["phases"]["then"]
    assert 0 == code
    assert (2, 4) == (first["completed"], then["completed"])
    assert (3, 4) == tuple(first["groups"][name]["total_output_tokens"] for name in "ab")
    assert first["request_goodput_ttft60000"] == first["request_throughput"]
    assert 1 == then["max_concurrent_requests"]


@pytest.mark.parametrize("name", sorted(presets.PRESETS))
def test_presets_are_made_of_requests_that_fit_a_small_context(name: str) -> None:
    """Whatever the phases before have given."""
    outcomes = {
        "capacity": {"request_throughput": 0.5},
        "decoding alone": {"duration": 4.0},
    }
    for phase in presets.PRESETS[name](random.Random(0), 1000, outcomes):
        assert phase.samples
        for sample in phase.samples:
            assert len(sample.prompt) == sample.prompt_len
            assert sample.prompt_len + sample.output_len <= 2304
            assert max(sample.prompt) < 1000  # type: ignore[type-var]


async def test_several_answers_to_a_prompt_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gaps are between tokens of one answer, tokens of all are counted."""

    def phases(generator: Any, vocab_size: int, outcomes: dict[str, Outcome]) -> Phases:
        yield Phase("n", [Sample([5, 6], 2, 8, n=3, temperature=0.8, seed=1)])

    monkeypatch.setitem(presets.PRESETS, "w6", phases)
    async with bench_server() as url:
        _, found = await bench(url, tmp_path, "--preset", "w6")

    assert 24 == found["phases"]["n"]["total_output_tokens"]
