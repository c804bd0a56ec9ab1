"""One simulation: a trace through the real engine core on virtual time.

Owns: how long it took in real time, and the summary.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from benchmarks.drive import Drive, FinalLengths, sequences
from benchmarks.machines import VirtualMachine
from benchmarks.traces import TraceEntry, fitted
from octavo.config.engine import CacheConfig, EngineConfig, SchedulerConfig
from octavo.engine.build import start_core
from octavo.engine.core import EngineCore

_YOUNG_OBJECTS = 100_000  # collections of the youngest generation: rarely, there are few cycles


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a simulation found."""

    requests: dict[str, float]
    kv: dict[str, float]
    engine: dict[str, float]
    wall_s: float

    def document(self) -> dict[str, Any]:
        """For a results file."""
        return asdict(self)


def simulate(
    trace: Iterable[TraceEntry],
    machine: VirtualMachine,
    scheduler: SchedulerConfig,
    cache: CacheConfig,
) -> Simulation:
    """Run the whole trace; memory does not grow with its length but for three numbers a request."""
    final_lens = FinalLengths()
    make_requests = partial(sequences, vocab_size=machine.vocab_size, knows_sharing=True)
    parts = machine.parts(final_lens.get)
    config = EngineConfig(scheduler=scheduler, cache=cache)
    core = start_core(config, parts.executor, parts.pacer, lambda phase, share: None)
    entries = (fitted(entry, machine.max_model_len) for entry in trace)
    gc.collect()
    gc.freeze()
    thresholds = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, *thresholds[1:])
    begin_s = time.perf_counter()
    try:
        drive = Drive(core, parts.pacer, make_requests, final_lens, parts.meter.close)
        outcome = drive.run(entries)
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
    wall_s = time.perf_counter() - begin_s
    return Simulation(
        requests=outcome.summary(),
        kv=asdict(parts.meter.averages()),
        engine=_engine_numbers(core),
        wall_s=wall_s,
    )


def _engine_numbers(core: EngineCore) -> dict[str, float]:
    stats = core.stats()
    return {
        "num_steps": stats.num_steps,
        "tokens_per_step": stats.num_step_tokens / max(stats.num_steps, 1),
        "compute_s": stats.compute_s,
        "num_preemptions": stats.num_preemptions,
        "prefix_hit_rate": stats.prefix_hit_tokens / max(stats.prefix_query_tokens, 1),
    }
