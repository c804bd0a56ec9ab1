"""Drives a core through a trace, on real or on virtual time, and keeps what every request saw.

Owns: when requests are added, when each got its first and its last token.
Does not know: policies, models. Anything with `add_request`, `has_work` and `step` is a core.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.record import quantile
from benchmarks.traces import TraceEntry
from octavo.contracts.delta import TokenDelta
from octavo.contracts.request import BeamSpec, EngineRequest
from octavo.contracts.step import SamplingSpec
from octavo.foundation.clock import ManualClock

_FILLER = [11 + (i * 2654435761 >> 7) % 30011 for i in range(1 << 14)]  # token ids of no meaning
_GREEDY = SamplingSpec()


class Core(Protocol):
    """An engine, as a front end sees it."""

    def add_request(self, request: EngineRequest) -> None: ...

    def has_work(self) -> bool: ...

    def step(self) -> list[TokenDelta]: ...


class Pacer(Protocol):
    """A clock that can wait."""

    def now_s(self) -> float: ...

    def wait_until(self, time_s: float) -> None: ...


class RealPacer:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()

    def now_s(self) -> float:
        """See `Pacer`."""
        return time.monotonic() - self._start_s

    def wait_until(self, time_s: float) -> None:
        """See `Pacer`."""
        time.sleep(max(0.0, time_s - self.now_s()))


class VirtualPacer(ManualClock):
    """A clock that stands still but for steps and waiting."""

    def wait_until(self, time_s: float) -> None:
        """See `Pacer`."""
        self.advance(max(0.0, time_s - self.now_s()))


class FinalLengths:
    """With how many tokens, prompt and answer, each live sequence will end. Beams: nobody knows."""

    def __init__(self) -> None:
        self._lens: dict[str, int] = {}
        self.get = self._lens.get  # what a KV meter asks

    def note(self, request: EngineRequest) -> None:
        """A sequence comes to life; it never ends before its length."""
        if request.beam is None:
            self._lens[request.request_id] = len(request.prompt_token_ids) + request.max_tokens

    def forget(self, request_id: str) -> None:
        """The sequence has ended."""
        self._lens.pop(request_id, None)


class _Family:
    """The sequences of one trace entry."""

    __slots__ = ("entry", "first_s", "num_open")

    def __init__(self, entry: TraceEntry, num_open: int) -> None:
        self.entry = entry
        self.num_open = num_open
        self.first_s = -1.0


@dataclass(slots=True)
class Outcome:
    """What requests saw, in the order in which they ended. Times in seconds."""

    latency_s: array[float] = field(default_factory=lambda: array("d"))
    first_token_s: array[float] = field(default_factory=lambda: array("d"))  # latency of the first
    output_lens: array[int] = field(default_factory=lambda: array("l"))
    num_tokens_out: int = 0  # over all samples of all requests
    num_preemptions: int = 0
    num_swaps: int = 0
    num_cached_tokens: int = 0  # prompt tokens that were found in the prefix cache
    num_prompt_tokens: int = 0
    last_arrival_s: float = 0.0
    end_s: float = 0.0

    @property
    def normalised_latency_s(self) -> float:
        """Mean over requests of (end-to-end latency / output length): seconds per token."""
        if not self.latency_s:
            return 0.0
        pairs = zip(self.latency_s, self.output_lens, strict=True)
        return sum(latency / length for latency, length in pairs) / len(self.latency_s)

    def summary(self) -> dict[str, float]:
        """The numbers that a results file keeps."""
        normalised = [
            latency / length
            for latency, length in zip(self.latency_s, self.output_lens, strict=True)
        ]
        duration_s = self.end_s or 1.0
        return {
            "num_requests": len(self.latency_s),
            "normalised_latency_s": self.normalised_latency_s,
            "normalised_latency_p50_s": quantile(normalised, 0.5),
            "normalised_latency_p99_s": quantile(normalised, 0.99),
            "latency_p50_s": quantile(self.latency_s, 0.5),
            "latency_p99_s": quantile(self.latency_s, 0.99),
            "first_token_p50_s": quantile(self.first_token_s, 0.5),
            "first_token_p99_s": quantile(self.first_token_s, 0.99),
            "output_tokens_per_s": self.num_tokens_out / duration_s,
            "requests_per_s": len(self.latency_s) / duration_s,
            "duration_s": self.end_s,
            "num_preemptions": self.num_preemptions,
            "num_swaps": self.num_swaps,
            "hit_rate": self.num_cached_tokens / (self.num_prompt_tokens or 1),
        }


MakeRequests = Callable[[int, TraceEntry], list[EngineRequest]]
"""(number of the entry, entry) -> its sequences, one or more."""


class Drive:
    """One run. `on_last_arrival` is called when no request is left to arrive."""

    def __init__(
        self,
        core: Core,
        pacer: Pacer,
        make_requests: MakeRequests,
        final_lens: FinalLengths,
        on_last_arrival: Callable[[], None] = lambda: None,
    ) -> None:
        self._core = core
        self._pacer = pacer
        self._make_requests = make_requests
        self._final_lens = final_lens
        self._on_last_arrival = on_last_arrival
        self._families: dict[str, _Family] = {}
        self._unseen: set[str] = set()  # sequences that had no token yet
        self._outcome = Outcome()

    def run(self, trace: Iterable[TraceEntry]) -> Outcome:
        """Serve the whole trace. Raises RuntimeError if a request does not end by its length."""
        core, pacer, entries = self._core, self._pacer, _numbered(trace)
        upcoming = next(entries, None)
        while upcoming is not None or core.has_work():
            now_s = pacer.now_s()
            while upcoming is not None and upcoming[1].arrival_s <= now_s:
                self._add(*upcoming)
                upcoming = next(entries, None)
                if upcoming is None:
                    self._on_last_arrival()
            if core.has_work():
                self._take(core.step())
            elif upcoming is not None:
                pacer.wait_until(upcoming[1].arrival_s)
        self._outcome.end_s = pacer.now_s()
        return self._outcome

    def _add(self, number: int, entry: TraceEntry) -> None:
        requests = self._make_requests(number, entry)
        family = _Family(entry, len(requests))
        self._outcome.last_arrival_s = entry.arrival_s
        for request in requests:
            self._families[request.request_id] = family
            self._unseen.add(request.request_id)
            self._final_lens.note(request)
            self._core.add_request(request)

    def _take(self, deltas: list[TokenDelta]) -> None:
        now_s, unseen = self._pacer.now_s(), self._unseen
        for delta in deltas:
            if unseen and delta.request_id in unseen and delta.token_ids:
                unseen.discard(delta.request_id)
                family = self._families[delta.request_id]
                if family.first_s < 0:
                    family.first_s = now_s
            if delta.finish_reason is not None:
                self._end(delta, now_s)

    def _end(self, delta: TokenDelta, now_s: float) -> None:
        if delta.finish_reason not in ("length", "stop"):
            raise RuntimeError(
                f"request {delta.request_id} ended with {delta.finish_reason}: {delta.error}"
            )
        family, outcome = self._families.pop(delta.request_id), self._outcome
        self._unseen.discard(delta.request_id)
        self._final_lens.forget(delta.request_id)
        entry = family.entry
        outcome.num_preemptions += delta.num_preemptions
        outcome.num_swaps += delta.num_swaps
        outcome.num_cached_tokens += delta.num_cached_tokens
        outcome.num_prompt_tokens += entry.prompt_len
        outcome.num_tokens_out += entry.output_len * max(1, entry.beam_width)
        family.num_open -= 1
        if family.num_open:
            return
        first_s = now_s if family.first_s < 0 else family.first_s
        outcome.latency_s.append(now_s - entry.arrival_s)
        outcome.first_token_s.append(first_s - entry.arrival_s)
        outcome.output_lens.append(entry.output_len)


def prompt_tokens(number: int, entry: TraceEntry, vocab_size: int) -> list[int]:
    """Token ids of a prompt. Two prompts share exactly the prefix that the trace says.

    The first token after the prefix is the number of the entry, so prompts are different as long as
    there are fewer of them than `vocab_size`.
    """
    own_len = entry.prompt_len - entry.prefix_len
    own = [number % vocab_size, *_filler(own_len - 1, number, vocab_size)]
    if not entry.prefix_len:
        return own
    first = (vocab_size - 1 - entry.prefix_id) % vocab_size
    return [first, *_filler(entry.prefix_len - 1, entry.prefix_id, vocab_size), *own]


def sequences(
    number: int, entry: TraceEntry, *, vocab_size: int, knows_sharing: bool
) -> list[EngineRequest]:
    """The engine requests of one entry. They never end before their length.

    Without `knows_sharing` samples and beams are sequences of their own, as in systems that cannot
    share memory.
    """
    tokens = prompt_tokens(number, entry, vocab_size)
    name = str(number)
    if entry.beam_width and knows_sharing:
        beam = BeamSpec(beam_width=entry.beam_width, num_returned=entry.beam_width)
        return [_request(name, tokens, entry, _GREEDY, beam=beam)]
    num_sequences = max(entry.n, entry.beam_width)
    if num_sequences == 1:
        return [_request(name, tokens, entry, _GREEDY)]
    return [
        _request(
            f"{name}/{choice}" if choice else name,
            tokens,
            entry,
            SamplingSpec(temperature=1.0, seed=number * 64 + choice),
            fork_of=name if choice and knows_sharing else None,
        )
        for choice in range(num_sequences)
    ]


def _request(
    request_id: str,
    tokens: list[int],
    entry: TraceEntry,
    sampling: SamplingSpec,
    *,
    fork_of: str | None = None,
    beam: BeamSpec | None = None,
) -> EngineRequest:
    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=tokens,
        sampling=sampling,
        max_tokens=entry.output_len,
        priority=entry.priority,
        arrival_s=entry.arrival_s,
        tenant=entry.tenant,
        fork_of=fork_of,
        beam=beam,
    )


def _filler(count: int, seed: int, vocab_size: int) -> list[int]:
    begin = seed % 1024
    if begin + count <= len(_FILLER) and vocab_size > 30100:
        return _FILLER[begin : begin + count]
    size = len(_FILLER)
    return [_FILLER[(begin + i) % size] % vocab_size for i in range(count)]


def _numbered(trace: Iterable[TraceEntry]) -> Iterator[tuple[int, TraceEntry]]:
    return iter(enumerate(trace))
