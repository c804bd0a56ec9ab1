"""Traces: who asks for how much, and when.

Owns: the shape of a trace entry, the lengths of the workloads, Poisson arrivals, JSONL.
Does not know: engines, clocks.

Lengths are drawn from lognormal distributions whose mean *after clipping* is the mean of the
data sets that "Efficient Memory Management for Large Language Model Serving with PagedAttention"
(SOSP 2023, section 6.1) reports: ShareGPT 161 tokens in and 338 out, Alpaca 19 in and 58 out. The
spread is ours: the data sets themselves are not used.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist

import msgspec

_NUM_QUANTILES = 2000


class TraceEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request of a trace, and a line of a trace file. Lengths in tokens."""

    arrival_s: float
    prompt_len: int  # the shared prefix included
    output_len: int
    n: int = 1  # parallel samples of the prompt
    beam_width: int = 0  # above 0: a beam search instead
    prefix_id: int = 0  # entries with equal ids begin with the same `prefix_len` tokens
    prefix_len: int = 0
    tenant: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Lengths:
    """A lognormal distribution, rounded and clipped."""

    mean: float  # after clipping
    sigma: float  # of the logarithm
    shortest: int
    longest: int

    def draws(self, generator: random.Random) -> Iterator[int]:
        """Lengths for ever."""
        mu = self._mu()
        while True:
            yield self._clip(math.exp(generator.gauss(mu, self.sigma)))

    def _clip(self, value: float) -> int:
        return min(max(round(value), self.shortest), self.longest)

    def _mu(self) -> float:
        """Mean of the logarithm for which the clipped mean is `mean`, by bisection."""
        normal = NormalDist()
        steps = [normal.inv_cdf((i + 0.5) / _NUM_QUANTILES) for i in range(_NUM_QUANTILES)]
        low, high = math.log(self.shortest), math.log(self.longest)
        for _ in range(40):
            middle = (low + high) / 2
            total = sum(self._clip(math.exp(middle + self.sigma * step)) for step in steps)
            if total / _NUM_QUANTILES < self.mean:
                low = middle
            else:
                high = middle
        return (low + high) / 2


@dataclass(frozen=True, slots=True)
class Workload:
    """Lengths of one kind of traffic."""

    name: str
    prompt: Lengths
    output: Lengths


WORKLOADS = {
    "chat": Workload("chat", Lengths(161, 1.1, 4, 1024), Lengths(338, 0.9, 4, 1024)),
    "instruct": Workload("instruct", Lengths(19, 0.5, 4, 128), Lengths(58, 0.9, 4, 512)),
}


def make_trace(
    workload: Workload, *, rate: float, num_requests: int, seed: int, max_model_len: int
) -> Iterator[TraceEntry]:
    """Requests with Poisson arrivals of `rate` per second, in order.

    Lengths and unit gaps depend on the seed alone: the same requests come at every rate.
    """
    lengths, gaps = random.Random(seed), random.Random(seed + 1)  # noqa: S311 - a benchmark
    prompts, outputs = workload.prompt.draws(lengths), workload.output.draws(lengths)
    now_s = 0.0
    for _ in range(num_requests):
        now_s += gaps.expovariate(1.0) / rate
        prompt_len = min(next(prompts), max_model_len - 1)
        output_len = min(next(outputs), max_model_len - prompt_len)
        yield TraceEntry(arrival_s=now_s, prompt_len=prompt_len, output_len=output_len)


def with_shape(
    entries: Iterable[TraceEntry], *, n: int = 1, beam_width: int = 0, prefix_len: int = 0
) -> Iterator[TraceEntry]:
    """The same requests with parallel samples, beams, or a common prefix put before each prompt."""
    for entry in entries:
        yield TraceEntry(
            arrival_s=entry.arrival_s,
            prompt_len=entry.prompt_len + prefix_len,
            output_len=entry.output_len,
            n=n,
            beam_width=beam_width,
            prefix_len=prefix_len,
            tenant=entry.tenant,
            priority=entry.priority,
        )


def fitted(entry: TraceEntry, max_model_len: int) -> TraceEntry:
    """The entry, cut to the context: first the answer, then the prompt."""
    if entry.prompt_len + entry.output_len <= max_model_len:
        return entry
    output_len = max(1, min(entry.output_len, max_model_len - entry.prompt_len))
    prompt_len = min(entry.prompt_len, max_model_len - output_len)
    return _replaced(entry, prompt_len, output_len)


def _replaced(entry: TraceEntry, prompt_len: int, output_len: int) -> TraceEntry:
    return msgspec.structs.replace(
        entry,
        prompt_len=prompt_len,
        output_len=output_len,
        prefix_len=min(entry.prefix_len, prompt_len - 1),
    )


def read_trace(path: Path) -> Iterator[TraceEntry]:
    """The lines of a JSONL file. Raises ValueError that names the line and its fault."""
    decode, last_s = msgspec.json.Decoder(TraceEntry).decode, 0.0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                entry = decode(line)
            except msgspec.MsgspecError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            _check(entry, last_s, f"{path}, line {number}")
            last_s = entry.arrival_s
            yield entry


def write_trace(path: Path, entries: Iterable[TraceEntry]) -> int:
    """Write a JSONL file; returns the number of lines."""
    encode, count = msgspec.json.encode, 0
    with path.open("wb") as out:
        for entry in entries:
            out.write(encode(entry) + b"\n")
            count += 1
    return count


def _check(entry: TraceEntry, last_s: float, place: str) -> None:
    if entry.arrival_s < last_s:
        raise ValueError(f"{place}: arrival_s {entry.arrival_s} is before the line above")
    for name in ("prompt_len", "output_len", "n"):
        if getattr(entry, name) < 1:
            raise ValueError(f"{place}: {name} must be at least 1, got {getattr(entry, name)}")
    if not 0 <= entry.prefix_len < entry.prompt_len:
        raise ValueError(
            f"{place}: prefix_len must be from 0 to prompt_len - 1, got {entry.prefix_len}"
        )
