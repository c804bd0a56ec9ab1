"""The load generator: sends requests to a server when they are due and times what comes back.

Owns: arrivals, the bound on requests in flight, the reading of streams of /v1/completions and
/v1/chat/completions. Does not know: what is made of the times.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from octavo.cli.bench.datasets import Sample
from octavo.cli.bench.http_stream import post_lines
from octavo.cli.bench.metrics import RequestTimes
from octavo.cli.client import ServerError
from octavo.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Target:
    """A server and how to ask it."""

    base_url: str
    endpoint: str
    model: str
    headers: Mapping[str, str] = field(default_factory=dict)
    is_chat: bool = False
    ignore_eos: bool = False
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    def body(self, sample: Sample) -> bytes:
        """The request as it is sent; made before the clock starts."""
        fields: dict[str, Any] = {
            "model": self.model,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"ignore_eos": True} if self.ignore_eos else {}),
            **self.extra_body,
        }
        if self.is_chat:
            fields["messages"] = [{"role": "user", "content": sample.prompt}]
            fields["max_completion_tokens"] = sample.output_len
        else:
            fields["prompt"] = sample.prompt
            fields["max_tokens"] = sample.output_len
        own = {"temperature": sample.temperature, "seed": sample.seed}
        fields |= {name: value for name, value in own.items() if value is not None}
        if sample.n > 1:
            fields["n"] = sample.n
        return json.dumps(fields).encode()


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When requests come. An infinite rate: all at once."""

    rate: float = math.inf  # requests per second
    burstiness: float = 1.0  # shape of the gamma distribution of gaps; 1: a Poisson process
    max_concurrency: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("--request-rate", self.rate), ("--burstiness", self.burstiness)):
            if not value > 0:
                raise ConfigError(f"{name} must be above 0, got {value}")
        if self.max_concurrency is not None and self.max_concurrency < 1:
            raise ConfigError(f"--max-concurrency must be at least 1, got {self.max_concurrency}")

    def times_s(self, count: int) -> list[float]:
        """Of each request from the begin on.

        Gaps are scaled so that the last request comes at count / rate: the rate that was asked for
        is met exactly, whatever was drawn.
        """
        if math.isinf(self.rate):
            return [0.0] * count
        if math.isinf(self.burstiness):
            return [(number + 1) / self.rate for number in range(count)]
        generator = random.Random(self.seed)  # noqa: S311 - a load, no secret
        scale = 1.0 / (self.rate * self.burstiness)
        now_s, found = 0.0, []
        for _ in range(count):
            now_s += generator.gammavariate(self.burstiness, scale)
            found.append(now_s)
        factor = count / self.rate / now_s if now_s else 1.0
        return [time_s * factor for time_s in found]


async def run_load(
    target: Target, samples: Sequence[Sample], arrivals: Arrivals
) -> tuple[list[RequestTimes], float]:
    """What each request saw, in the order of the samples, and the seconds until the last end."""
    due_s = [
        own if sample.arrival_s is None else sample.arrival_s
        for sample, own in zip(samples, arrivals.times_s(len(samples)), strict=True)
    ]
    bodies = [target.body(sample) for sample in samples]
    gate = asyncio.Semaphore(arrivals.max_concurrency or len(samples) or 1)
    begin_s = time.perf_counter()

    async def one(sample: Sample, body: bytes, at_s: float) -> RequestTimes:
        arrived_s = begin_s + at_s
        await asyncio.sleep(max(0.0, arrived_s - time.perf_counter()))
        async with gate:
            start_s = time.perf_counter()
            seen = await send(target, sample, body, start_s)
            seen.queue_s = max(0.0, start_s - arrived_s)
            return seen

    found = await asyncio.gather(*map(one, samples, bodies, due_s))
    return list(found), time.perf_counter() - begin_s


async def send(target: Target, sample: Sample, body: bytes, start_s: float) -> RequestTimes:
    """One request. A failure is in `error`, never raised: others go on."""
    seen = RequestTimes(start_s, prompt_len=sample.prompt_len, group=sample.group)
    reader = _StreamReader(seen)
    try:
        headers = {"Content-Type": "application/json", **target.headers}
        lines = post_lines(urlsplit(target.base_url), target.endpoint, body, headers)
        async for line in lines:
            if line.startswith(b"data:"):
                reader.take(line[5:].strip(), time.perf_counter())
        reader.end(time.perf_counter())
    except ServerError as error:
        seen.error = str(error)
    return seen


class _StreamReader:
    """Turns the events of one stream into times. Pieces of several choices are told apart."""

    def __init__(self, seen: RequestTimes) -> None:
        self._seen = seen
        self._last_s: dict[int, float] = {}  # by choice
        self._num_pieces = 0
        self._usage: Mapping[str, Any] = {}

    def take(self, data: bytes, now_s: float) -> None:
        """One event. Raises ServerError when it is an error."""
        if data == b"[DONE]":
            return
        try:
            chunk = json.loads(data)
        except ValueError:
            raise ServerError(f"the server sent no JSON: {data[:100]!r}") from None
        if "error" in chunk:
            raise ServerError(str(chunk["error"].get("message", chunk["error"])))
        if chunk.get("usage"):
            self._usage = chunk["usage"]
        for choice in chunk.get("choices", ()):
            text = _text(choice)
            if text is not None:
                self._piece(choice.get("index", 0), text, now_s)

    def end(self, now_s: float) -> None:
        """The stream is over. Raises ServerError when nothing was in it."""
        seen = self._seen
        if not self._num_pieces:
            raise ServerError("the server ended the stream without a token")
        seen.output_len = int(self._usage.get("completion_tokens", self._num_pieces))
        seen.prompt_len = int(self._usage.get("prompt_tokens", seen.prompt_len))
        seen.latency_s = max(self._last_s.values(), default=now_s) - seen.start_s

    def _piece(self, choice: int, text: str, now_s: float) -> None:
        seen = self._seen
        if not self._num_pieces:
            seen.ttft_s = now_s - seen.start_s
        if choice in self._last_s:
            seen.gaps_s.append(now_s - self._last_s[choice])
        self._last_s[choice] = now_s
        self._num_pieces += 1
        if choice == 0:
            seen.text += text


def _text(choice: Mapping[str, Any]) -> str | None:
    """New text of a choice; None for an event that brings none, such as the role of a chat.

    A token may be empty text: half of a character, or a special one. In a completion any event of
    a choice is a token, but for the one with the finish reason alone.
    """
    if "delta" in choice:
        delta = choice["delta"]
        text = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning")
        return text or None
    text = str(choice.get("text") or "")
    return None if not text and choice.get("finish_reason") else text
