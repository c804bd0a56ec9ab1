"""/metrics: names, counts, and the times of requests."""

from __future__ import annotations

import json

import pytest

from octavo.engine.stats import EngineStats
from octavo.foundation.clock import ManualClock
from octavo.server.metrics import COUNTERS, HISTOGRAMS, OWN_COUNTERS
from tests.support.asgi import Client, scripted_server
from tests.support.scripted_engine import ENDLESS, ROOM_FOR_ENDLESS

PATH = "/v1/completions"


def sample(text: str, name: str, label: str = "") -> float:
    """The value of the first sample of a name with a label."""
    start = f"vllm:{name}{{"
    lines = [line for line in text.splitlines() if line.startswith(start) and label in line]
    return float(lines[0].rpartition(" ")[2])


async def scrape(client: Client) -> str:
    """The text of /metrics."""
    return (await client.get("/metrics")).content.decode()


async def test_metrics_have_vllms_names_from_the_start() -> None:
    """Every label set exists before the first request, and counters grow by what was used."""
    async with scripted_server() as client:
        before = await scrape(client)
        await client.post(PATH, {"prompt": "hello", "max_tokens": 3})
        after = await scrape(client)

    assert sample(before, "num_requests_running") == 0
    assert sample(before, "request_success_total", 'finished_reason="abort"') == 0
    assert sample(after, "generation_tokens_total") == 3
    assert sample(after, "e2e_request_latency_seconds_count") == 1
    assert sample(after, "kv_cache_usage_perc") == 0
    assert sample(after, "iteration_tokens_total_count") >= 3
    assert sample(before, "iteration_tokens_total_bucket", 'le="+Inf"') == 0


async def test_drafts_are_counted_under_vllms_names() -> None:
    """The text repeats itself, so all guesses are right; places are counted from the start."""
    lookup = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2}
    async with scripted_server(
        lambda *_: 7, scheduler={"speculative_config": json.dumps(lookup)}
    ) as client:
        before = await scrape(client)
        await client.post(PATH, {"prompt": "hello", "max_tokens": 20, "ignore_eos": True})
        after = await scrape(client)

    name = "spec_decode_num_accepted_tokens_per_pos_total"
    assert [sample(before, name, f'position="{place}"') for place in range(3)] == [0, 0, 0]
    counts = [sample(after, name, f'position="{place}"') for place in range(3)]
    assert counts == sorted(counts, reverse=True)
    assert sample(after, "spec_decode_num_accepted_tokens_total") == sum(counts) > 0
    assert sample(after, "spec_decode_num_draft_tokens_total") == sum(counts)
    assert sample(after, "spec_decode_num_drafts_total") == counts[0]
    assert sample(after, "generation_tokens_total") == 20


@pytest.mark.parametrize("stream", [False, True])
async def test_every_histogram_hears_of_every_request(stream: bool) -> None:
    """A whole answer has the times of a streamed one; only its tokens come at once."""
    body = {"prompt": "hello", "max_tokens": 3, "ignore_eos": True, "stream": stream}
    async with scripted_server() as client:
        await client.post(PATH, body)
        text = await scrape(client)

    names = {name for name, _, _ in HISTOGRAMS} - {"inter_token_latency_seconds"}
    assert dict.fromkeys(names, 1) == {name: sample(text, f"{name}_count") for name in names}
    assert sample(text, "request_generation_tokens_sum") == 3
    if not stream:
        assert sample(text, "inter_token_latency_seconds_count") == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_the_times_of_a_request_add_up(stream: bool) -> None:
    """Arrival, first step, first token, last token, all by the engine's clock."""
    clock = ManualClock()
    body = {"prompt": ["one", "two"], "max_tokens": 1, "stream": stream}
    async with scripted_server(
        clock=clock, scheduler={"max_num_seqs": 1}, before_run=lambda plan: clock.advance(2.0)
    ) as client:
        await client.post(PATH, body)
        text = await scrape(client)

    times = {name: sample(text, f"{name}_sum") for name, _, _ in HISTOGRAMS}
    queued, prefill = times["request_queue_time_seconds"], times["request_prefill_time_seconds"]
    assert queued == 2.0  # the second waits while the first has the only row
    assert prefill >= 4.0
    assert times["request_inference_time_seconds"] == prefill
    assert times["request_decode_time_seconds"] == 0.0
    assert times["time_to_first_token_seconds"] == queued + prefill
    assert times["e2e_request_latency_seconds"] == queued + prefill


async def test_a_request_that_nobody_waited_for_has_no_times() -> None:
    """A client that leaves says nothing about how fast the engine is."""
    async with scripted_server(**ROOM_FOR_ENDLESS) as client:
        body = {"prompt": "hello", "max_tokens": ENDLESS, "ignore_eos": True, "stream": True}
        await client.post(PATH, body, on_piece=lambda reply: len(reply.pieces) >= 3)
        text = await scrape(client)

    assert sample(text, "e2e_request_latency_seconds_count") == 0
    assert sample(text, "request_prompt_tokens_count") == 0


async def test_what_the_cache_and_the_queue_do_is_counted() -> None:
    """vLLM's names where it has one, ours for the rest; all from the start."""
    async with scripted_server() as client:
        before = await scrape(client)
        for _ in range(2):
            await client.post(PATH, {"prompt": "a prompt of several blocks", "max_tokens": 2})
        after = await scrape(client)

    for _, _, field in (*COUNTERS, *OWN_COUNTERS):
        assert hasattr(EngineStats, field), field
    for name, _, _ in COUNTERS:
        assert sample(before, f"{name}_total") == 0
    for name, _, _ in OWN_COUNTERS:
        assert f"\noctavo:{name}_total{{" in before
    for reason in ("capacity", "deferred"):
        assert sample(before, "num_requests_waiting_by_reason", f'reason="{reason}"') == 0
    assert sample(after, "prefix_cache_hits_total") > 0
    assert sample(after, "prefix_cache_queries_total") > sample(after, "prefix_cache_hits_total")


async def test_the_cache_is_described_by_labels() -> None:
    """Those that routers read, and the options of the cache."""
    async with scripted_server(num_blocks=77) as client:
        text = await scrape(client)

    assert sample(text, "cache_config_info", 'num_gpu_blocks="77"') == 1
    for label in (
        'block_size="4"',
        'enable_prefix_caching="True"',
        'num_cpu_blocks="0"',
        'num_kv_groups="1"',
        'swap_space="0.0"',
        "kv_cache_size_tokens=",
        "kv_cache_max_concurrency=",
    ):
        assert label in text


async def test_requests_that_wait_are_counted_by_reason() -> None:
    """Those without room."""
    async with scripted_server(scheduler={"max_num_seqs": 1}, **ROOM_FOR_ENDLESS) as client:
        text = await client.while_it_streams(
            PATH, {"prompt": ["one", "two"]}, lambda: scrape(client)
        )

    assert sample(text, "num_requests_waiting") == 1
    assert sample(text, "num_requests_waiting_by_reason", 'reason="capacity"') == 1
    assert sample(text, "num_requests_waiting_by_reason", 'reason="deferred"') == 0
