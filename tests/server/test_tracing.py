"""Traces of requests: one span each, to a collector, under the caller's trace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from octavo.executor.scripted import ScriptedExecutor
from octavo.foundation.clock import ManualClock
from octavo.sampling_params import SamplingParams
from tests.support.asgi import Client, scripted_server
from tests.support.scripted_engine import ENDLESS, ROOM_FOR_ENDLESS, scripted_llm

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="needs pip install 'octavo[otel]'"
)

from tests.support.otlp_collector import Collector

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
PATH = "/v1/completions"
SERVER = 2  # the number of SpanKind.SERVER on the wire


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@asynccontextmanager
async def traced_server(collector: Collector, **options: Any) -> AsyncIterator[Client]:
    """A server whose spans are with the collector after the block."""
    details = options.pop("details", ())
    observability = {
        "otlp_traces_endpoint": collector.endpoint,
        "collect_detailed_traces": details,
    }
    async with scripted_server(observability=observability, **options) as client:
        yield client


async def test_a_request_is_a_span_under_its_callers_trace(collector: Collector) -> None:
    """With vLLM's attributes, the times of the engine's clock, and the standard's names."""
    clock = ManualClock()
    body = {
        "prompt": "hello",
        "max_tokens": 3,
        "ignore_eos": True,
        "temperature": 0.5,
        "top_p": 0.9,
    }
    options = {"clock": clock, "before_run": lambda plan: clock.advance(2.0)}
    async with traced_server(collector, **options) as client:
        reply = await client.post(PATH, body, headers=TRACEPARENT)

    [span] = collector.spans
    found = span.attributes
    num_prompt = reply.json["usage"]["prompt_tokens"]
    assert (span.name, span.kind, span.is_error) == ("llm_request", SERVER, False)
    assert (span.trace_id, span.parent_id) == (TRACE, PARENT)
    assert found["gen_ai.request.id"] == reply.json["id"]
    assert found["gen_ai.response.model"] == "tiny"
    assert found["gen_ai.response.finish_reasons"] == ["length"]
    assert (found["gen_ai.request.n"], found["gen_ai.request.max_tokens"]) == (1, 3)
    assert (found["gen_ai.request.temperature"], found["gen_ai.request.top_p"]) == (0.5, 0.9)
    assert found["gen_ai.usage.prompt_tokens"] == found["gen_ai.usage.input_tokens"] == num_prompt
    assert found["gen_ai.usage.completion_tokens"] == found["gen_ai.usage.output_tokens"] == 3
    assert found["gen_ai.usage.cache_read.input_tokens"] == 0
    assert found["gen_ai.latency.time_in_queue"] == 0.0
    first = found["gen_ai.latency.time_to_first_token"]
    assert first == found["gen_ai.latency.time_in_model_prefill"] >= 2.0
    inference = found["gen_ai.latency.time_in_model_inference"]
    assert inference == first + found["gen_ai.latency.time_in_model_decode"] == 6.0
    assert found["gen_ai.latency.e2e"] == 6.0
    assert span.seconds == pytest.approx(6.0, abs=1e-6)
    assert collector.paths == {"/v1/traces"}
    assert collector.services == {"octavo"}
    assert "gen_ai.latency.time_in_scheduler" not in found


async def test_requests_without_a_trace_begin_one_and_keep_apart(collector: Collector) -> None:
    """Also beside one that has a trace, in the same batch."""
    async with traced_server(collector) as client:
        await asyncio.gather(
            client.post(PATH, {"prompt": "one", "max_tokens": 4}),
            client.post(PATH, {"prompt": "two", "max_tokens": 4}, headers=TRACEPARENT),
            client.post(PATH, {"prompt": "three", "max_tokens": 4}),
        )

    assert len({span.trace_id for span in collector.spans}) == 3
    assert sorted(span.parent_id for span in collector.spans) == ["", "", PARENT]


@pytest.mark.parametrize(
    ("details", "names"),
    [
        (["model"], {"time_in_model_forward"}),
        (["worker"], {"time_in_model_execute"}),
        (["model,worker"], {"time_in_model_forward", "time_in_model_execute"}),
        (["all"], {"time_in_model_forward", "time_in_model_execute"}),
    ],
)
async def test_detailed_traces_tell_of_the_steps(
    collector: Collector, details: list[str], names: set[str]
) -> None:
    """Of those that ran while the request did, and no others."""
    clock = ManualClock()

    options = {
        "clock": clock,
        "before_run": lambda plan: clock.advance(2.0),
        "executor_times": {"step_compute_s": 1.5, "step_sample_s": 0.25},
        "details": details,
    }
    async with traced_server(collector, **options) as client:
        for _ in range(2):
            await client.post(PATH, {"prompt": "hello", "max_tokens": 3, "ignore_eos": True})

    for span in collector.spans:
        steps = {
            name.removeprefix("gen_ai.latency."): value
            for name, value in span.attributes.items()
            if "scheduler" in name or "forward" in name or "execute" in name
        }
        expected = {"time_in_scheduler": 1.5, "time_in_model_forward": 3.75}
        expected["time_in_model_execute"] = 4.5
        assert steps == {name: expected[name] for name in ("time_in_scheduler", *names)}


async def test_a_client_that_leaves_is_an_aborted_span(collector: Collector) -> None:
    """With what had come until then."""
    async with traced_server(collector, **ROOM_FOR_ENDLESS) as client:
        body = {"prompt": "hello", "max_tokens": ENDLESS, "ignore_eos": True, "stream": True}
        await client.post(PATH, body, on_piece=lambda reply: len(reply.pieces) >= 3)

    [span] = collector.spans
    assert span.attributes["gen_ai.response.finish_reasons"] == ["abort"]
    assert span.attributes["gen_ai.usage.output_tokens"] >= 3


async def test_a_request_that_fails_is_a_span_with_an_error(collector: Collector) -> None:
    """One span, and its neighbour's is good."""

    def fails(executor: ScriptedExecutor) -> None:
        executor.fail_run(RuntimeError("boom"))

    async with traced_server(collector, on_executor=fails) as client:
        bad = await client.post(PATH, {"prompt": "one", "max_tokens": 3})
        good = await client.post(PATH, {"prompt": "two", "max_tokens": 3})

    assert (bad.status, good.status) == (500, 200)
    assert [span.is_error for span in collector.spans] == [True, False]
    assert collector.spans[0].attributes["gen_ai.response.finish_reasons"] == ["error"]


async def test_each_prompt_of_a_request_is_a_span(collector: Collector) -> None:
    """All of them under its trace; choices of a prompt are one."""
    body = {"prompt": ["one", "two"], "n": 3, "temperature": 1, "max_tokens": 2, "ignore_eos": True}
    async with traced_server(collector) as client:
        await client.post(PATH, body, headers=TRACEPARENT)

    assert [span.trace_id for span in collector.spans] == [TRACE, TRACE]
    for span in collector.spans:
        assert span.attributes["gen_ai.request.n"] == 3
        assert span.attributes["gen_ai.usage.completion_tokens"] == 6


def test_offline_requests_are_traced_too(collector: Collector) -> None:
    """They are sent before `shutdown` returns."""
    with scripted_llm(observability={"otlp_traces_endpoint": collector.endpoint}) as llm:
        llm.generate(["one", "two"], SamplingParams(max_tokens=2), use_tqdm=False)

    assert [span.name for span in collector.spans] == ["llm_request"] * 2


def test_a_collector_that_is_gone_hinders_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Answers come, and the end comes too."""
    with Collector() as collector:
        endpoint = collector.endpoint
    with scripted_llm(observability={"otlp_traces_endpoint": endpoint}) as llm:
        [output] = llm.generate("one", SamplingParams(max_tokens=2), use_tqdm=False)

    assert output.outputs[0].token_ids
    assert "the collector of traces does not answer" in caplog.text
