"""From requests that end to a tracer: whether there is one, and what it is told.

Does not know OpenTelemetry; `engine/otlp.py` does, and is imported when the option is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from octavo.config.engine import ObservabilityConfig
from octavo.contracts.delta import TokenDelta
from octavo.contracts.tracing import RequestTrace, StepTotals, Tracer
from octavo.errors import ConfigError
from octavo.foundation.registry import Registry
from octavo.outputs import RequestMetrics
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import SamplingParams

TRACERS: Registry[Callable[..., Tracer]] = Registry(
    "tracer", {"otlp": "octavo.engine.otlp:OtlpTracer"}
)
TRACE_HEADERS = ("traceparent", "tracestate")


def open_tracer(config: ObservabilityConfig, model_name: str) -> Tracer | None:
    """The tracer that the options ask for. Raises ConfigError where OpenTelemetry is missing."""
    kind = check_tracing(config)
    if kind is None:
        return None
    tracer: Tracer = kind(config.otlp_traces_endpoint, model_name, config.collect_detailed_traces)
    return tracer


def check_tracing(config: ObservabilityConfig) -> Callable[..., Tracer] | None:
    """What makes the tracer; for who wants to know before anything is loaded. Raises the same."""
    if config.otlp_traces_endpoint is None:
        return None
    try:
        return TRACERS.load("otlp")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(
            "--otlp-traces-endpoint needs OpenTelemetry, which is not installed here; install it "
            "with pip install 'octavo[otel]'"
        ) from error


def trace_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Those of a request's headers (lower case) that name its trace."""
    return {name: headers[name] for name in TRACE_HEADERS if name in headers}


class OpenTrace:
    """One request that is traced, from its arrival on."""

    __slots__ = (
        "_first",
        "_headers",
        "_last",
        "_num_cached_tokens",
        "_num_prompt_tokens",
        "_params",
        "_request_id",
    )

    def __init__(
        self,
        request_id: str,
        params: SamplingParams | PoolingParams,
        num_prompt_tokens: int,
        headers: Mapping[str, str] | None,
    ) -> None:
        self._request_id = request_id
        self._params = params
        self._num_prompt_tokens = num_prompt_tokens
        self._headers = headers or {}
        self._num_cached_tokens = 0
        self._first: StepTotals | None = None
        self._last: StepTotals | None = None

    def note(self, delta: TokenDelta) -> None:
        """Take in what the news of a choice tells."""
        self._num_cached_tokens = max(self._num_cached_tokens, delta.num_cached_tokens)
        self._first = self._first or delta.totals_before
        self._last = delta.totals

    def ended(
        self,
        metrics: RequestMetrics,
        now_s: float,
        *,
        finish_reasons: tuple[str, ...],
        error: str | None,
    ) -> RequestTrace:
        """The whole of it. `now_s` is of the engine's clock."""
        admitted_s, first_s, last_s = (
            metrics.admitted_s,
            metrics.first_token_s,
            metrics.last_token_s,
        )
        params = self._params if isinstance(self._params, SamplingParams) else None
        return RequestTrace(
            request_id=self._request_id,
            headers=self._headers,
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
            num_generation_tokens=metrics.num_generation_tokens,
            num_choices=len(finish_reasons),
            finish_reasons=finish_reasons,
            since_arrival_s=now_s - metrics.arrival_s,
            queue_s=_between(metrics.arrival_s, admitted_s),
            first_token_s=_between(metrics.arrival_s, first_s),
            prefill_s=_between(admitted_s, first_s),
            decode_s=_between(first_s, last_s),
            inference_s=_between(admitted_s, last_s),
            temperature=None if params is None else params.temperature,
            top_p=None if params is None else params.top_p,
            max_tokens=None if params is None else params.max_tokens,
            error=error,
            steps=self._steps(),
        )

    def _steps(self) -> StepTotals | None:
        if self._first is None or self._last is None:
            return None
        spent = (last - first for first, last in zip(self._first, self._last, strict=True))
        return StepTotals(*spent)


def _between(since_s: float | None, until_s: float | None) -> float | None:
    return None if since_s is None or until_s is None else until_s - since_s
