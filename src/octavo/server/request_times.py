"""The times of one HTTP request as its answer shows them, with `--enable-per-request-metrics`.

Owns names and units; those of vLLM's `metrics` field, and ours for what it has not. Knows nothing
of Prometheus.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from octavo.outputs import RequestMetrics, RequestOutput


def mean_gap_s(times: RequestMetrics, num_choices: int) -> float | None:
    """Mean seconds between two tokens of a choice; None where none has two."""
    first_s, last_s = times.first_token_s, times.last_token_s
    num_gaps = times.num_generation_tokens - num_choices  # choices run side by side
    if first_s is None or last_s is None or num_gaps <= 0:
        return None
    return (last_s - first_s) * num_choices / num_gaps


@dataclass(slots=True)
class RequestTimes:
    """Sums up the prompts of a request: the first that ran, the last token, all preemptions."""

    arrival_time: float = field(default_factory=time.time)  # seconds since 1970
    num_choices: int = 0
    num_cached_tokens: int = 0
    total: RequestMetrics = field(default_factory=lambda: RequestMetrics(0.0))

    def add(self, output: RequestOutput) -> None:
        """Take in the last output of a prompt."""
        own, total = output.metrics, self.total
        assert own is not None, "AsyncLLM keeps metrics"
        total.arrival_s = own.arrival_s if not self.num_choices else total.arrival_s
        self.num_choices += len(output.outputs)
        self.num_cached_tokens += output.num_cached_tokens or 0
        total.admitted_s = _least(total.admitted_s, own.admitted_s)
        total.first_token_s = _least(total.first_token_s, own.first_token_s)
        if own.last_token_s is not None:
            total.last_token_s = max(own.last_token_s, total.last_token_s or own.last_token_s)
        total.num_generation_tokens += own.num_generation_tokens
        total.num_preemptions += own.num_preemptions
        total.num_swaps += own.num_swaps

    def shown(self) -> dict[str, Any]:
        """The `metrics` of an answer. Null where there was no such moment."""
        total = self.total
        generation_ms = _ms(total.first_token_s, total.last_token_s)
        gap_s = mean_gap_s(total, self.num_choices)
        elapsed_ms = _ms(total.arrival_s, total.last_token_s)
        rate = 1e3 * total.num_generation_tokens / elapsed_ms if elapsed_ms else None
        return {
            "arrival_time": self.arrival_time,
            "queue_time_ms": _ms(total.arrival_s, total.admitted_s),
            "time_to_first_token_ms": _ms(total.arrival_s, total.first_token_s),
            "generation_time_ms": generation_ms,
            "mean_itl_ms": None if gap_s is None else 1e3 * gap_s,
            "tokens_per_second": rate,
            "num_cached_tokens": self.num_cached_tokens,
            "num_preemptions": total.num_preemptions,
            "num_swaps": total.num_swaps,
        }


def _ms(since_s: float | None, until_s: float | None) -> float | None:
    return None if since_s is None or until_s is None else 1e3 * (until_s - since_s)


def _least(one: float | None, other: float | None) -> float | None:
    known = [value for value in (one, other) if value is not None]
    return min(known, default=None)
