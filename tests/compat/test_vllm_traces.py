"""vLLM's engines and traces: whose they are, and that the end sends the last of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from octavo.compat.vllm.engines import AsyncLLM, LLMEngine
from octavo.config.keywords import engine_config
from octavo.engine.async_engine import AsyncLLM as Engine
from octavo.foundation.clock import SystemClock
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import SamplingParams
from tests.support.scripted_engine import (
    ROOM_FOR_ENDLESS,
    scripted_async_llm,
    scripted_engine,
)
from tests.support.tiny_encoders import make_encoder, save_encoder
from tests.support.tiny_pooling import SMALL

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="needs pip install 'octavo[otel]'"
)

from tests.support.otlp_collector import Collector

TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
ENDLESS = SamplingParams(ignore_eos=True, max_tokens=None)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


async def test_the_end_without_an_await_sends_the_last_spans(collector: Collector) -> None:
    """That of the request that it cuts off; the second end does nothing."""
    observability = {"otlp_traces_endpoint": collector.endpoint}
    engine = AsyncLLM(scripted_async_llm(observability=observability, **ROOM_FOR_ENDLESS))
    running = engine.generate("One", ENDLESS, "one", trace_headers=HEADERS)
    await anext(running)
    engine.shutdown()
    [*_, last] = [output async for output in running]
    engine.shutdown()

    assert (last.outputs[0].finish_reason, engine.is_running) == ("abort", False)
    assert [span.trace_id for span in collector.spans] == [TRACE]


async def test_a_vector_is_a_span_of_its_callers_trace(
    collector: Collector, tmp_path: Path
) -> None:
    """As an answer is."""
    folder = save_encoder(make_encoder("bert"), tmp_path / "model")
    options = {"model": str(folder), "otlp_traces_endpoint": collector.endpoint}
    engine = AsyncLLM(Engine.start(engine_config({**options, **SMALL})))
    params = PoolingParams(task="embed")
    found = [one async for one in engine.encode("a", params, "one", trace_headers=HEADERS)]
    engine.shutdown()

    assert len(found) == 1
    assert [span.trace_id for span in collector.spans] == [TRACE]


def test_a_request_that_is_stepped_by_hand_is_a_span_of_its_callers_trace(
    collector: Collector,
) -> None:
    """As one on an event loop is."""
    engine = LLMEngine(
        scripted_engine(observability={"otlp_traces_endpoint": collector.endpoint}), SystemClock()
    )
    engine.add_request("one", "One", SamplingParams(max_tokens=2), trace_headers=HEADERS)
    while engine.has_unfinished_requests():
        engine.step()
    engine.stop()

    assert [span.trace_id for span in collector.spans] == [TRACE]
