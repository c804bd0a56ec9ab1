"""One point of a comparison: a policy, a rate, a seed.

Owns: the shape of a case (workload, samples, beams, prefix), and the numbers of one run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from benchmarks.drive import Drive, FinalLengths, sequences
from benchmarks.machines import Machine
from benchmarks.serving_policies.policies import PAGED, make_core
from benchmarks.traces import WORKLOADS, TraceEntry, fitted, make_trace, with_shape
from octavo.config.engine import CacheConfig, SchedulerConfig


@dataclass(frozen=True, slots=True)
class Case:
    """What is asked for."""

    workload: str
    n: int = 1
    beam_width: int = 0
    prefix_len: int = 0

    @property
    def title(self) -> str:
        """For people."""
        parts = [self.workload]
        if self.n > 1:
            parts.append(f"n = {self.n}")
        if self.beam_width:
            parts.append(f"beam width {self.beam_width}")
        if self.prefix_len:
            parts.append(f"shared prefix of {self.prefix_len}")
        return ", ".join(parts)

    def trace(
        self, *, rate: float, num_requests: int, seed: int, max_model_len: int
    ) -> list[TraceEntry]:
        """The same requests for every policy."""
        base = make_trace(
            WORKLOADS[self.workload],
            rate=rate,
            num_requests=num_requests,
            seed=seed,
            max_model_len=max_model_len,
        )
        shaped = with_shape(base, n=self.n, beam_width=self.beam_width, prefix_len=self.prefix_len)
        return [fitted(entry, max_model_len) for entry in shaped]


@dataclass(frozen=True, slots=True)
class Point:
    """One run."""

    case: Case
    policy: str
    rate: float  # requests per second
    seed: int


def run_point(
    point: Point, machine: Machine, scheduler: SchedulerConfig, *, num_requests: int
) -> dict[str, Any]:
    """Serve one trace under one policy; the numbers that a results file keeps."""
    trace = point.case.trace(
        rate=point.rate,
        num_requests=num_requests,
        seed=point.seed,
        max_model_len=machine.max_model_len,
    )
    knows_sharing = point.policy == PAGED
    make_requests = partial(sequences, vocab_size=machine.vocab_size, knows_sharing=knows_sharing)
    final_lens = FinalLengths()
    parts = machine.parts(final_lens.get)
    cache = CacheConfig(enable_prefix_caching=bool(point.case.prefix_len))
    core = make_core(point.policy, scheduler, cache, parts.executor, parts.pacer, parts.meter)
    drive = Drive(core, parts.pacer, make_requests, final_lens, parts.meter.close)
    outcome = drive.run(trace)
    return {
        "case": asdict(point.case),
        "policy": point.policy,
        "rate": point.rate,
        "seed": point.seed,
        "requests": outcome.summary(),
        "kv": asdict(parts.meter.averages()),
    }
