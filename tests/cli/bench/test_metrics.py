"""The arithmetic of octavo bench serve, beside numpy and numbers made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.cli.bench.metrics import (
    RequestTimes,
    parse_goodput,
    parse_percentile_metrics,
    parse_percentiles,
    percentile,
    raw_times,
    summarise,
)
from octavo.errors import ConfigError

TIMES = st.lists(st.floats(0, 1e3), min_size=1, max_size=40)
# What a file of `vllm bench serve` has for all requests together.
VLLM_KEYS = {
    "duration",
    "completed",
    "failed",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "request_goodput",
    "output_throughput",
    "total_token_throughput",
    "max_output_tokens_per_s",
    "max_concurrent_requests",
    *(f"{kind}_{name}_ms" for kind in ("mean", "median", "std", "p99") for name in ("ttft", "itl")),
    *(
        f"{kind}_{name}_ms"
        for kind in ("mean", "median", "std", "p99")
        for name in ("tpot", "e2el")
    ),
}


def request(
    start_s: float = 0.0, *, gaps_s: tuple[float, ...] = (), **fields: float
) -> RequestTimes:
    """A request of 10 tokens whose first token came after a second unless stated otherwise."""
    seen = RequestTimes(start_s, prompt_len=10, gaps_s=list(gaps_s))
    seen.ttft_s = fields.get("ttft_s", 1.0)
    seen.latency_s = fields.get("latency_s", seen.ttft_s + sum(gaps_s))
    seen.output_len = int(fields.get("output_len", 1 + len(gaps_s)))
    return seen


@given(TIMES, st.floats(0, 100))
def test_percentiles_are_numpys(values: list[float], percent: float) -> None:
    """Linear between the two nearest ranks."""
    assert percentile(values, percent) == pytest.approx(float(np.percentile(values, percent)))


@given(TIMES)
def test_statistics_of_a_time_are_numpys(ttfts: list[float]) -> None:
    """Mean, median and the deviation of a population, in milliseconds."""
    found = summarise([request(ttft_s=value) for value in ttfts], 1.0)

    assert found["mean_ttft_ms"] == pytest.approx(1e3 * np.mean(ttfts))
    assert found["median_ttft_ms"] == pytest.approx(1e3 * np.median(ttfts))
    assert found["std_ttft_ms"] == pytest.approx(1e3 * np.std(ttfts), abs=1e-3)
    assert found["p99_ttft_ms"] == pytest.approx(1e3 * np.percentile(ttfts, 99))


def test_keys_are_those_of_vllm() -> None:
    """So a script that reads one file reads the other."""
    assert set(summarise([request(gaps_s=(0.1,))], 2.0)) == VLLM_KEYS
    assert {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"} <= set(
        raw_times([request()])
    )


def test_only_chosen_times_and_percentiles_are_reported() -> None:
    """--percentile-metrics and --metric-percentiles."""
    found = summarise([request()], 1.0, percentiles=[50, 99.9], metrics=["ttft"])

    assert {"p50_ttft_ms", "p99.9_ttft_ms"} <= set(found)
    assert not [key for key in found if "itl" in key or "tpot" in key or "e2el" in key]


def test_rates_are_of_the_whole_run() -> None:
    """Two requests of 10 tokens in and 3 out within 4 seconds; one that failed counts nowhere."""
    good = [request(gaps_s=(0.5, 0.5)), request(gaps_s=(0.5, 0.5))]
    failed = request(gaps_s=(0.5,))
    failed.error = "500: no"

    found = summarise([*good, failed], 4.0)

    assert (2, 1) == (found["completed"], found["failed"])
    assert (20, 6) == (found["total_input_tokens"], found["total_output_tokens"])
    assert 0.5 == found["request_throughput"]
    assert 1.5 == found["output_throughput"]
    assert 6.5 == found["total_token_throughput"]


def test_tpot_is_what_follows_the_first_token() -> None:
    """By tokens, even where several came in one piece; a single token has none."""
    bundled = request(gaps_s=(1.0,), output_len=5)
    found = summarise([bundled, request()], 1.0)

    assert 250.0 == found["mean_tpot_ms"]
    assert 1000.0 == found["mean_itl_ms"]


@pytest.mark.parametrize(
    ("objectives", "met"),
    [
        ({"ttft": 1000.0}, 2),
        ({"ttft": 999.0}, 0),
        ({"tpot": 400.0}, 1),  # a single token meets any
        ({"tpot": 500.0, "e2el": 2000.0}, 2),
        ({"e2el": 1500.0}, 1),
    ],
)
def test_goodput_counts_requests_that_met_every_objective(
    objectives: dict[str, float], met: int
) -> None:
    """Limits are met by values equal to them."""
    requests = [request(gaps_s=(0.5, 0.5)), request()]

    assert met / 2.0 == summarise(requests, 2.0, objectives=objectives)["request_goodput"]


def test_without_objectives_there_is_no_goodput() -> None:
    """As vLLM writes it."""
    assert summarise([request()], 1.0)["request_goodput"] is None


def test_a_request_that_begins_when_another_ends_is_not_beside_it() -> None:
    """Intervals are half open."""
    assert 1 == summarise([request(0.0), request(1.0)], 2.0)["max_concurrent_requests"]
    assert 2 == summarise([request(0.0), request(0.5)], 2.0)["max_concurrent_requests"]


def test_the_busiest_second_is_found() -> None:
    """Tokens at 1.0, 1.25, 1.5 and 2.5 seconds."""
    assert 3.0 == summarise([request(gaps_s=(0.25, 0.25, 1.0))], 3.0)["max_output_tokens_per_s"]


def test_nothing_at_all_is_a_row_of_zeros() -> None:
    """A run in which everything failed still has a result."""
    found = summarise([], 0.0)

    assert {0} == {value for value in found.values() if value is not None}


@pytest.mark.parametrize("pair", ["ttft", "ttft:x", "itl:5", "ttft:-1", "ttft:nan"])
def test_a_bad_objective_is_refused(pair: str) -> None:
    """The message shows the form."""
    with pytest.raises(ConfigError, match="--goodput takes NAME:MILLISECONDS"):
        parse_goodput([pair])


def test_bad_percentiles_and_metrics_are_refused() -> None:
    """Each names its flag."""
    with pytest.raises(ConfigError, match="--metric-percentiles"):
        parse_percentiles("50,101")
    with pytest.raises(ConfigError, match="--percentile-metrics"):
        parse_percentile_metrics("ttft,speed")
    assert {"ttft": 3000.0} == parse_goodput(["ttft:3000"])
    assert not math.isnan(parse_percentiles("99.9")[0])
