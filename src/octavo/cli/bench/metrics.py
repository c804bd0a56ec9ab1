"""What a serving benchmark reports, by the names and definitions of `vllm bench serve`.

Owns the arithmetic. Times come in seconds, leave in milliseconds where a key ends in `_ms`.

- TTFT: from sending a request to its first token. TPOT: (latency - TTFT) / (tokens - 1), of
  requests with at least two tokens. ITL: every gap between two pieces of a stream. E2EL: latency.
- Goodput: requests per second that met every objective; TPOT of a single token counts as 0.
- Percentiles are interpolated linearly, standard deviations are those of the population.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from octavo.errors import ConfigError

TIMES = ("ttft", "tpot", "itl", "e2el")  # what percentiles can be asked of
OBJECTIVES = ("ttft", "tpot", "e2el")
TITLES = {
    "ttft": ("TTFT", "Time to First Token"),
    "tpot": ("TPOT", "Time per Output Token (excl. 1st token)"),
    "itl": ("ITL", "Inter-token Latency"),
    "e2el": ("E2EL", "End-to-end Latency"),
}


@dataclass(slots=True)
class RequestTimes:
    """One request as its sender saw it. Times in seconds."""

    start_s: float  # when it was sent, on the clock of the benchmark
    queue_s: float = 0.0  # between its arrival and that, because of --max-concurrency
    ttft_s: float = 0.0
    latency_s: float = 0.0
    gaps_s: list[float] = field(default_factory=list)
    prompt_len: int = 0
    output_len: int = 0
    text: str = ""
    error: str = ""  # empty: it succeeded
    group: str = ""  # which part of a mixed workload it belongs to

    @property
    def tpot_s(self) -> float:
        """Zero for fewer than two tokens."""
        if self.output_len < 2:
            return 0.0
        return (self.latency_s - self.ttft_s) / (self.output_len - 1)


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the two nearest ranks; 0 of nothing."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def percent_word(percent: float) -> str:
    """99.0 -> "99", 99.9 -> "99.9": the middle of `p99_ttft_ms`."""
    return str(int(percent)) if percent == int(percent) else str(percent)


def parse_goodput(pairs: Sequence[str]) -> dict[str, float]:
    """`ttft:3000 tpot:200` -> milliseconds by name. Raises ConfigError."""
    objectives: dict[str, float] = {}
    for pair in pairs:
        name, colon, text = pair.partition(":")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not colon or name not in OBJECTIVES or not value >= 0:
            raise ConfigError(
                f"--goodput takes NAME:MILLISECONDS with a name of {', '.join(OBJECTIVES)} and a "
                f"number from 0, got {pair!r}; for example ttft:3000"
            )
        objectives[name] = value
    return objectives


def parse_percentiles(text: str) -> list[float]:
    """`25,50,99.9` -> numbers. Raises ConfigError."""
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = [-1.0]
    if not all(0 <= value <= 100 for value in found):
        raise ConfigError(
            f"--metric-percentiles takes numbers from 0 to 100 between commas, got {text!r}"
        )
    return found


def parse_percentile_metrics(text: str) -> list[str]:
    """`ttft,tpot` -> names. Raises ConfigError."""
    names = [word.strip() for word in text.split(",")]
    unknown = [name for name in names if name not in TIMES]
    if unknown:
        raise ConfigError(
            f"--percentile-metrics takes names of {', '.join(TIMES)}, got {unknown[0]!r}"
        )
    return names


def summarise(
    requests: Sequence[RequestTimes],
    duration_s: float,
    *,
    percentiles: Sequence[float] = (99.0,),
    metrics: Sequence[str] = TIMES,
    objectives: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The result, keys in the order in which they are printed, without what each request saw."""
    good = [request for request in requests if not request.error]
    num_in = sum(request.prompt_len for request in good)
    num_out = sum(request.output_len for request in good)
    span_s = duration_s or math.inf
    result: dict[str, Any] = {
        "duration": duration_s,
        "completed": len(good),
        "failed": len(requests) - len(good),
        "total_input_tokens": num_in,
        "total_output_tokens": num_out,
        "request_throughput": len(good) / span_s,
        "request_goodput": _num_meeting(good, objectives) / span_s if objectives else None,
        "output_throughput": num_out / span_s,
        "total_token_throughput": (num_in + num_out) / span_s,
        "max_output_tokens_per_s": _busiest_second(good),
        "max_concurrent_requests": _most_at_once(good),
    }
    times = _times(good)
    for name in TIMES:
        if name in metrics:
            result |= _statistics(name, times[name], percentiles)
    return result


def raw_times(requests: Sequence[RequestTimes]) -> dict[str, Any]:
    """What each request saw, for a file that keeps everything."""
    return {
        "input_lens": [request.prompt_len for request in requests],
        "output_lens": [request.output_len for request in requests],
        "ttfts": [request.ttft_s for request in requests],
        "itls": [request.gaps_s for request in requests],
        "latencies": [request.latency_s for request in requests],
        "start_times": [request.start_s for request in requests],
        "queue_times": [request.queue_s for request in requests],
        "generated_texts": [request.text for request in requests],
        "errors": [request.error for request in requests],
    }


def _times(requests: Sequence[RequestTimes]) -> dict[str, list[float]]:
    return {
        "ttft": [request.ttft_s for request in requests],
        "tpot": [request.tpot_s for request in requests if request.output_len > 1],
        "itl": [gap for request in requests for gap in request.gaps_s],
        "e2el": [request.latency_s for request in requests],
    }


def _statistics(name: str, values: Sequence[float], percents: Sequence[float]) -> dict[str, float]:
    found = {
        f"mean_{name}_ms": 1e3 * statistics.fmean(values) if values else 0.0,
        f"median_{name}_ms": 1e3 * statistics.median(values) if values else 0.0,
        f"std_{name}_ms": 1e3 * statistics.pstdev(values) if values else 0.0,
    }
    for percent in percents:
        found[f"p{percent_word(percent)}_{name}_ms"] = 1e3 * percentile(values, percent)
    return found


def _num_meeting(requests: Sequence[RequestTimes], objectives: Mapping[str, float]) -> int:
    """Requests that met every objective."""
    num_met = 0
    for request in requests:
        seen = {"ttft": request.ttft_s, "tpot": request.tpot_s, "e2el": request.latency_s}
        num_met += all(1e3 * seen[name] <= limit for name, limit in objectives.items())
    return num_met


def _busiest_second(requests: Sequence[RequestTimes]) -> float:
    """Most pieces of streams in one second, counted from the first request."""
    if not requests:
        return 0.0
    first_s = min(request.start_s for request in requests)
    seconds: Counter[int] = Counter()
    for request in requests:
        now_s = request.start_s + request.ttft_s - first_s
        seconds[int(now_s)] += 1
        for gap_s in request.gaps_s:
            now_s += gap_s
            seconds[int(now_s)] += 1
    return float(max(seconds.values()))


def _most_at_once(requests: Sequence[RequestTimes]) -> int:
    """Most requests in flight; one that ends when another begins is not beside it."""
    changes = [(request.start_s, 1) for request in requests]
    changes += [(request.start_s + request.latency_s, -1) for request in requests]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most
