"""The statistics line of the log."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from octavo.server.stats_log import log_statistics, statistics_line
from tests.support.serving import ENDLESS, SHORT, serving, text_of

# As tools for vLLM's log look for it.
LINE = re.compile(
    r"Avg prompt throughput: (\S+) tokens/s, Avg generation throughput: (\S+) tokens/s, "
    r"Running: (\d+) reqs, Waiting: (\d+) reqs, GPU KV cache usage: (\S+)%, "
    r"Prefix cache hit rate: (\S+)%"
)


def numbers(line: str) -> list[float]:
    found = LINE.search(line)
    assert found is not None, line
    return [float(text) for text in found.groups()]


async def test_the_line_tells_of_the_last_interval_in_vllms_words() -> None:
    """Rates and hits of what came since the line before, gauges of now."""
    async with serving() as engine:
        nothing = await engine.stats()
        await text_of(engine.generate("Two", SHORT))
        before = await engine.stats()
        await text_of(engine.generate("Two " * 40, SHORT))
        await text_of(engine.generate("Two " * 40, SHORT))
        after = await engine.stats()

    assert numbers(statistics_line(None, before, 2.0))[:2] == [
        before.num_prompt_tokens / 2,
        before.num_generation_tokens / 2,
    ]
    prompt, generated, running, waiting, usage, hits = numbers(statistics_line(before, after, 0.5))
    assert prompt == 2 * (after.num_prompt_tokens - before.num_prompt_tokens)
    assert generated == 2 * (after.num_generation_tokens - before.num_generation_tokens)
    assert (running, waiting, usage) == (0, 0, 0)
    assert 40 < hits < 60  # about one of two prompts
    assert statistics_line(nothing, nothing, 10.0) == ""
    assert statistics_line(after, after, 10.0) == ""


async def test_a_line_is_written_while_requests_run(caplog: pytest.LogCaptureFixture) -> None:
    """At every interval, until the task is cancelled."""
    caplog.set_level(logging.INFO, logger="octavo.server.stats_log")
    async with serving() as engine:
        stream = engine.generate("Two", ENDLESS)
        await anext(stream)
        writing = asyncio.ensure_future(log_statistics(engine, 0.001))
        while len(caplog.messages) < 2:
            await anext(stream)
        writing.cancel()
        await stream.aclose()

    assert all(numbers(line)[2] == 1 for line in caplog.messages)
