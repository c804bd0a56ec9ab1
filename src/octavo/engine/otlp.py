"""OtlpTracer: a span for every request, sent over OTLP/HTTP.

The one place that imports OpenTelemetry; loaded with `--otlp-traces-endpoint` and never otherwise.
Owns the names of attributes: vLLM's, and OpenTelemetry's own where vLLM's are older.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from octavo.contracts.tracing import RequestTrace

logger = logging.getLogger(__name__)

SPAN_NAME = "llm_request"
TRACES_PATH = "/v1/traces"  # of a collector, where the endpoint names none
_CLOSE_TIMEOUT_S = 2.0  # for the last spans
_NS = 1_000_000_000


class OtlpTracer:
    """A `Tracer`. Spans are sent by a thread of OpenTelemetry's, a batch at a time."""

    def __init__(
        self,
        endpoint: str,
        model_name: str,
        details: Collection[str],
        exporter: SpanExporter | None = None,
    ) -> None:
        """`details` are the values of `--collect-detailed-traces`. `exporter` replaces OTLP/HTTP.

        OpenTelemetry's variables (OTEL_SERVICE_NAME, OTEL_TRACES_SAMPLER, headers, certificates)
        mean what they always do.
        """
        self._model_name = model_name
        self._details = frozenset(details)
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._exporter = exporter or OTLPSpanExporter(endpoint=_with_path(endpoint))
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("octavo")
        self._propagator = TraceContextTextMapPropagator()
        self._is_closed = False

    def record(self, trace: RequestTrace) -> None:
        """See `Tracer`."""
        end_ns = time.time_ns()
        span = self._tracer.start_span(
            SPAN_NAME,
            context=self._propagator.extract(trace.headers) if trace.headers else None,
            kind=SpanKind.SERVER,
            attributes=self._attributes(trace),
            start_time=end_ns - int(trace.since_arrival_s * _NS),
        )
        if trace.error is not None:
            span.set_status(Status(StatusCode.ERROR, trace.error))
        span.end(end_ns)

    def close(self) -> None:
        """See `Tracer`."""
        if self._is_closed:
            return
        self._is_closed = True
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        ending.join(_CLOSE_TIMEOUT_S)
        if ending.is_alive():
            logger.warning("the collector of traces does not answer; the last spans are lost")
            self._exporter.shutdown()

    def _attributes(self, trace: RequestTrace) -> dict[str, Any]:
        latency = "gen_ai.latency."
        attributes: dict[str, Any] = {
            "gen_ai.request.id": trace.request_id,
            "gen_ai.response.model": self._model_name,
            "gen_ai.response.finish_reasons": trace.finish_reasons,
            "gen_ai.request.n": trace.num_choices,
            "gen_ai.request.temperature": trace.temperature,
            "gen_ai.request.top_p": trace.top_p,
            "gen_ai.request.max_tokens": trace.max_tokens,
            "gen_ai.usage.num_sequences": trace.num_choices,
            "gen_ai.usage.prompt_tokens": trace.num_prompt_tokens,
            "gen_ai.usage.completion_tokens": trace.num_generation_tokens,
            "gen_ai.usage.input_tokens": trace.num_prompt_tokens,
            "gen_ai.usage.output_tokens": trace.num_generation_tokens,
            "gen_ai.usage.cache_read.input_tokens": trace.num_cached_tokens,
            latency + "e2e": trace.since_arrival_s,
            latency + "time_in_queue": trace.queue_s,
            latency + "time_to_first_token": trace.first_token_s,
            latency + "time_in_model_prefill": trace.prefill_s,
            latency + "time_in_model_decode": trace.decode_s,
            latency + "time_in_model_inference": trace.inference_s,
        }
        if trace.steps is not None:
            attributes[latency + "time_in_scheduler"] = trace.steps.python_s
            if self._details & {"model", "all"}:
                attributes[latency + "time_in_model_forward"] = trace.steps.forward_s
            if self._details & {"worker", "all"}:
                attributes[latency + "time_in_model_execute"] = trace.steps.execute_s
        return {name: value for name, value in attributes.items() if value is not None}


def _with_path(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    return parts._replace(path=TRACES_PATH).geturl() if parts.path in ("", "/") else endpoint


def _resource() -> Resource:
    """Who sends: what the environment says, else this program's name."""
    named = "OTEL_SERVICE_NAME" in os.environ or "service.name=" in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create({} if named else {"service.name": "octavo"})
