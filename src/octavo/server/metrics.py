"""Prometheus metrics under vLLM's names, labels and buckets, so that existing boards fill.

Gauges and engine counters are read from live state at each scrape and cannot drift; histograms are
fed when a request ends. All label sets exist from the start: alert rules use absent(), and a
counter that begins at 1 has no rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from octavo.config.engine import CacheConfig
from octavo.contracts.kv_plan import MemoryPlan
from octavo.engine.stats import STEP_SIZE_BOUNDS, STEP_TIME_BOUNDS, EngineStats

FINISH_REASONS = ("stop", "length", "abort", "error")
FIRST_TOKEN_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
LENGTH_BUCKETS = tuple(float(step * 10**power) for power in range(6) for step in (1, 2, 5))
HISTOGRAMS = (
    ("time_to_first_token_seconds", "Arrival to first token.", FIRST_TOKEN_BUCKETS),
    ("inter_token_latency_seconds", "Between two outputs of a request.", TOKEN_BUCKETS),
    ("request_time_per_output_token_seconds", "Mean gap per request.", TOKEN_BUCKETS),
    ("e2e_request_latency_seconds", "Arrival to last token.", REQUEST_BUCKETS),
    ("request_queue_time_seconds", "Arrival to the first step.", REQUEST_BUCKETS),
    ("request_prefill_time_seconds", "First step to first token.", REQUEST_BUCKETS),
    ("request_decode_time_seconds", "First token to last token.", REQUEST_BUCKETS),
    ("request_inference_time_seconds", "First step to last token.", REQUEST_BUCKETS),
    ("request_prompt_tokens", "Prompt tokens of a request.", LENGTH_BUCKETS),
    ("request_generation_tokens", "Generated tokens of a request.", LENGTH_BUCKETS),
    ("request_max_num_generation_tokens", "Tokens of its longest choice.", LENGTH_BUCKETS),
    ("request_prefill_kv_computed_tokens", "Prompt tokens not found cached.", LENGTH_BUCKETS),
    ("request_params_max_tokens", "max_tokens of a request.", LENGTH_BUCKETS),
    ("request_params_n", "Choices of a request.", (1.0, 2.0, 5.0, 10.0, 20.0)),
)
# vLLM's name, what it counts, the field of EngineStats
COUNTERS = (
    ("prompt_tokens", "Prompt tokens.", "num_prompt_tokens"),
    ("prompt_tokens_cached", "Of the prompt tokens, those found cached.", "prefix_hit_tokens"),
    ("generation_tokens", "Generated tokens.", "num_generation_tokens"),
    ("num_preemptions", "Preempted requests.", "num_preemptions"),
    ("prefix_cache_queries", "Prompt tokens looked up in the cache.", "prefix_query_tokens"),
    ("prefix_cache_hits", "Prompt tokens found in the pool.", "pool_hit_tokens"),
    ("external_prefix_cache_queries", "The same in the disk tier.", "external_query_tokens"),
    ("external_prefix_cache_hits", "The same in the disk tier.", "external_hit_tokens"),
    ("spec_decode_num_drafts", "Times that a request tested drafts.", "num_drafts"),
    ("spec_decode_num_draft_tokens", "Tokens that were drafted.", "num_draft_tokens"),
    ("spec_decode_num_accepted_tokens", "Drafts that were right.", "num_accepted_tokens"),
)
# what vLLM has no name for
OWN_COUNTERS = (
    ("num_swaps", "Preemptions that kept the KV blocks elsewhere.", "num_swaps"),
    ("swapped_out_blocks", "KV blocks swapped, or saved to disk.", "num_blocks_swapped_out"),
    ("swapped_in_blocks", "KV blocks that came back, from disk too.", "num_blocks_swapped_in"),
    ("copied_blocks", "KV blocks copied before they were written to.", "num_blocks_copied"),
    ("swap_seconds", "Seconds spent with moving KV blocks.", "swap_s"),
    ("missed_deadlines", "Requests that their timeout ended.", "num_missed_deadlines"),
)
OWN_NAMESPACE = "octavo"
# Histograms over steps: name, what it measures, bounds, fields of EngineStats: counts, sum. vLLM's
# iteration_tokens_total is one in spite of its name.
StepTable: TypeAlias = tuple[str, str, Sequence[float], str, str]
STEP_SIZES: StepTable = (
    "iteration_tokens_total",
    "Tokens computed in a step.",
    STEP_SIZE_BOUNDS,
    "steps_by_size",
    "num_step_tokens",
)
STEP_TIMES: tuple[StepTable, ...] = (
    (
        "step_host_seconds",
        "Python's part of a step: planning, handing over, committing.",
        STEP_TIME_BOUNDS,
        "steps_by_python_s",
        "python_s",
    ),
    (
        "step_native_seconds",
        "The model's part of a step, with sampling.",
        STEP_TIME_BOUNDS,
        "steps_by_compute_s",
        "compute_s",
    ),
    (
        "step_sample_seconds",
        "Of the model's part: drawing and scoring tokens.",
        STEP_TIME_BOUNDS,
        "steps_by_sample_s",
        "sample_s",
    ),
)
STATUSES = ("2xx", "4xx", "5xx")


class ServerMetrics:
    """One registry per server."""

    def __init__(self, model_name: str, namespace: str = "vllm") -> None:
        self._registry = CollectorRegistry()
        self._labels = {"model_name": model_name, "engine": "0"}
        self._namespace = namespace
        self._live = _LiveCollector(namespace, self._labels)
        self._registry.register(self._live)
        self._histograms = {
            name: self._histogram(name, text, buckets) for name, text, buckets in HISTOGRAMS
        }
        self._http_requests = Counter(
            "http_requests",
            "Answered requests by path and status.",
            ("method", "handler", "status"),
            registry=self._registry,
        )
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self._registry)

    def expect_answers(self, routes: Iterable[tuple[str, str]]) -> None:
        """Show the counters of methods and paths from the start."""
        for method, handler in routes:
            for status in STATUSES:
                self._http_requests.labels(method, handler, status)

    def observe(self, name: str, value: float) -> None:
        """Count one value in a histogram of HISTOGRAMS."""
        self._histograms[name].observe(value)

    def count_answer(self, method: str, handler: str, status: int) -> None:
        """Count one HTTP answer."""
        self._http_requests.labels(method, handler, f"{status // 100}xx").inc()

    def render(
        self,
        stats: EngineStats | None,
        memory: MemoryPlan | None,
        cache: CacheConfig | None = None,
    ) -> bytes:
        """The text of /metrics; None for an engine that is not there yet."""
        self._live.stats, self._live.memory, self._live.cache = stats, memory, cache
        return bytes(generate_latest(self._registry))

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(
            f"{self._namespace}:{name}",
            text,
            tuple(self._labels),
            buckets=buckets,
            registry=self._registry,
        )
        return histogram.labels(**self._labels)


class _LiveCollector:
    """Shows the engine's own counts as they were read for this scrape."""

    def __init__(self, namespace: str, labels: dict[str, str]) -> None:
        self._namespace, self._labels = namespace, labels
        self.stats: EngineStats | None = None
        self.memory: MemoryPlan | None = None
        self.cache: CacheConfig | None = None

    def describe(self) -> list[Metric]:
        return []  # nothing is collected at registration

    def collect(self) -> Iterator[Metric]:
        stats = self.stats
        yield self._gauge(
            "num_requests_running", "Requests in the batch.", stats.num_running if stats else 0
        )
        num_waiting = stats.num_waiting if stats else 0
        yield self._gauge("num_requests_waiting", "Requests that wait.", num_waiting)
        yield self._waiting_by_reason(num_waiting, stats.num_waiting_deferred if stats else 0)
        yield self._gauge(
            "kv_cache_usage_perc",
            "Share of KV blocks in use, 0 to 1.",
            stats.kv_cache_usage if stats else 0.0,
        )
        for namespace, table in (
            (self._namespace, COUNTERS),
            (OWN_NAMESPACE, OWN_COUNTERS),
        ):
            for name, text, field in table:
                family = CounterMetricFamily(
                    f"{namespace}:{name}", text, labels=tuple(self._labels)
                )
                value = getattr(stats, field) if stats else 0
                family.add_metric(tuple(self._labels.values()), value)
                yield family
        finished = CounterMetricFamily(
            f"{self._namespace}:request_success",
            "Ended requests by reason.",
            labels=(*self._labels, "finished_reason"),
        )
        for reason in FINISH_REASONS:
            count = stats.num_finished.get(reason, 0) if stats else 0  # type: ignore[call-overload]
            finished.add_metric((*self._labels.values(), reason), count)
        yield finished
        yield self._accepted_by_place(stats)
        yield self._steps(self._namespace, STEP_SIZES, stats)
        for times in STEP_TIMES:
            yield self._steps(OWN_NAMESPACE, times, stats)
        yield self._cache_info(self.memory, self.cache)

    def _accepted_by_place(self, stats: EngineStats | None) -> CounterMetricFamily:
        """As many places as a request may draft tokens; none without speculation."""
        family = CounterMetricFamily(
            f"{self._namespace}:spec_decode_num_accepted_tokens_per_pos",
            "Drafts that were right, by their place among those of a step.",
            labels=(*self._labels, "position"),
        )
        for place, count in enumerate(stats.num_accepted_by_place if stats else ()):
            family.add_metric((*self._labels.values(), str(place)), count)
        return family

    def _waiting_by_reason(self, num_waiting: int, num_deferred: int) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            f"{self._namespace}:num_requests_waiting_by_reason",
            "Requests that wait for room, or for something else.",
            labels=(*self._labels, "reason"),
        )
        for reason, count in (("capacity", num_waiting - num_deferred), ("deferred", num_deferred)):
            family.add_metric((*self._labels.values(), reason), count)
        return family

    def _gauge(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"{self._namespace}:{name}", text, labels=tuple(self._labels))
        family.add_metric(tuple(self._labels.values()), value)
        return family

    def _steps(
        self,
        namespace: str,
        table: StepTable,
        stats: EngineStats | None,
    ) -> HistogramMetricFamily:
        name, text, limits, counts_field, sum_field = table
        counts = getattr(stats, counts_field) if stats else [0] * (len(limits) + 1)
        bounds = [*map(str, map(float, limits)), "+Inf"]
        family = HistogramMetricFamily(f"{namespace}:{name}", text, labels=tuple(self._labels))
        family.add_metric(
            tuple(self._labels.values()),
            buckets=list(zip(bounds, accumulate(counts), strict=True)),
            sum_value=getattr(stats, sum_field) if stats else 0,
        )
        return family

    def _cache_info(
        self, memory: MemoryPlan | None, cache: CacheConfig | None
    ) -> GaugeMetricFamily:
        """vLLM's cache_config_info: the numbers are labels, the value is 1."""
        facts = {
            "block_size": memory.kv.block_size if memory else 0,
            "num_gpu_blocks": memory.kv.num_blocks if memory else 0,
            "num_cpu_blocks": memory.kv.num_host_slots if memory else 0,
            "num_kv_groups": len(memory.kv.groups) if memory else 0,
            "enable_prefix_caching": cache.enable_prefix_caching if cache else False,
            "swap_space": cache.swap_space if cache else 0,
            "kv_cache_size_tokens": memory.kv.num_tokens if memory else 0,
            "kv_cache_max_concurrency": f"{memory.max_concurrency:.2f}" if memory else 0,
        }
        family = GaugeMetricFamily(
            f"{self._namespace}:cache_config_info",
            "How KV memory is divided.",
            labels=(*self._labels, *facts),
        )
        values = (*self._labels.values(), *map(str, facts.values()))
        family.add_metric(values, 1)
        return family
