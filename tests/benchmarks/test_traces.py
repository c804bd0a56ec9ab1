"""Traces: lengths, arrivals, files."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from statistics import mean

import pytest

from benchmarks.traces import WORKLOADS, fitted, make_trace, read_trace, with_shape, write_trace
from tests.benchmarks.support import entry


@pytest.mark.parametrize(("name", "prompt", "output"), [("chat", 161, 338), ("instruct", 19, 58)])
def test_lengths_have_the_means_of_the_paper(name: str, prompt: float, output: float) -> None:
    """After rounding and clipping."""
    workload = WORKLOADS[name]

    prompts = list(islice(workload.prompt.draws(random.Random(3)), 20000))
    outputs = list(islice(workload.output.draws(random.Random(4)), 20000))

    assert prompt == pytest.approx(mean(prompts), rel=0.03)
    assert output == pytest.approx(mean(outputs), rel=0.03)
    assert workload.prompt.shortest <= min(prompts)
    assert max(prompts) <= workload.prompt.longest


def test_the_same_requests_come_at_every_rate() -> None:
    """Only faster."""
    slow, fast = (
        list(make_trace(WORKLOADS["chat"], rate=rate, num_requests=50, seed=5, max_model_len=2048))
        for rate in (1.0, 4.0)
    )

    assert [(one.prompt_len, one.output_len) for one in slow] == [
        (one.prompt_len, one.output_len) for one in fast
    ]
    assert [one.arrival_s / 4 for one in slow] == pytest.approx([one.arrival_s for one in fast])


def test_arrivals_come_at_the_rate() -> None:
    """The mean gap of a Poisson process is one over its rate."""
    trace = list(
        make_trace(WORKLOADS["instruct"], rate=8.0, num_requests=4000, seed=1, max_model_len=2048)
    )

    assert 4000 / 8.0 == pytest.approx(trace[-1].arrival_s, rel=0.05)


def test_a_request_is_cut_to_the_context() -> None:
    """The answer first, then the prompt; its prefix stays shorter than it."""
    assert (10, 6) == (fitted(entry(), 64).prompt_len, fitted(entry(), 64).output_len)
    assert (10, 2) == (fitted(entry(), 12).prompt_len, fitted(entry(), 12).output_len)
    short = fitted(entry(prefix_len=9), 8)
    assert (7, 1, 6) == (short.prompt_len, short.output_len, short.prefix_len)


def test_a_trace_file_gives_back_what_was_written(tmp_path: Path) -> None:
    """Samples, tenants and prefixes included."""
    entries = [*with_shape([entry(), entry(0.5)], n=4, prefix_len=8), entry(2.0, tenant="b")]
    path = tmp_path / "trace.jsonl"

    count = write_trace(path, entries)

    assert 3 == count
    assert entries == list(read_trace(path))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"arrival_s": 1, "prompt_len": 3}', "output_len"),
        ('{"arrival_s": 0.1, "prompt_len": 3, "output_len": 1}', "before the line above"),
        ('{"arrival_s": 3, "prompt_len": 0, "output_len": 1}', "prompt_len must be at least 1"),
        ('{"arrival_s": 3, "prompt_len": 3, "output_len": 1, "prefix_len": 3}', "prefix_len"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    """With its number and its fault."""
    path = tmp_path / "trace.jsonl"
    path.write_text('{"arrival_s": 1, "prompt_len": 3, "output_len": 1}\n' + line + "\n")

    with pytest.raises(ValueError, match=f"line 2.*{message}"):
        list(read_trace(path))
