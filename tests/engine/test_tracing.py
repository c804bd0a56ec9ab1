"""Traces that nobody asked for cost nothing; those that cannot be had are refused."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from octavo.config.engine import ObservabilityConfig
from octavo.engine.tracing import open_tracer, trace_headers
from octavo.errors import ConfigError
from octavo.sampling_params import SamplingParams
from tests.support.imports import forget_modules
from tests.support.scripted_engine import scripted_engine

ENDPOINT = "http://127.0.0.1:1"
ONE = SamplingParams(max_tokens=1)


def test_without_the_option_opentelemetry_is_not_imported() -> None:
    """Nor looked for."""
    code = (
        "import sys, octavo.server.serve, octavo.engine.build, octavo.llm;"
        "from octavo.engine.tracing import open_tracer;"
        "from octavo.config.engine import ObservabilityConfig;"
        "assert open_tracer(ObservabilityConfig(), 'm') is None;"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )

    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "[]"


def test_a_missing_extra_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the engine starts, before anything is loaded."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    forget_modules(monkeypatch, "octavo.engine.otlp")

    with pytest.raises(ConfigError, match=r"install it with pip install 'octavo\[otel\]'"):
        open_tracer(ObservabilityConfig(otlp_traces_endpoint=ENDPOINT), "m")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"otlp_traces_endpoint": "grpc://localhost:4317"}, r"--otlp-traces-endpoint must be an h"),
        ({"otlp_traces_endpoint": "localhost:4318"}, r"--otlp-traces-endpoint must be an http or"),
        ({"collect_detailed_traces": ("model",)}, r"needs --otlp-traces-endpoint"),
        (
            {"otlp_traces_endpoint": ENDPOINT, "collect_detailed_traces": ("model,gpu",)},
            r"--collect-detailed-traces takes model, worker, all, got 'gpu'",
        ),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    """With the flag, and what would be right."""
    with pytest.raises(ConfigError, match=message):
        ObservabilityConfig(**options)


def test_only_headers_of_the_trace_are_kept() -> None:
    """Others may hold secrets."""
    headers = {"traceparent": "a", "tracestate": "b", "authorization": "Bearer secret"}

    assert trace_headers(headers) == {"traceparent": "a", "tracestate": "b"}


def test_an_engine_without_traces_has_no_tracer_and_collects_nothing() -> None:
    """Deltas are as small as before."""
    engine = scripted_engine()
    [request] = engine.intake.requests("a", engine.intake.encode("One"), ONE)
    engine.core.add_request(request)
    deltas = engine.core.step()
    engine.core.stop()

    assert engine.tracer is None
    assert [(delta.totals, delta.totals_before) for delta in deltas] == [(None, None)]
