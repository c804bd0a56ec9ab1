"""Fit a cost model to steps of a real engine on this machine.

    python -m benchmarks.simulator.fit --model smollm2:135m --out benchmarks/results/FILE

Runs a mixed load (several rates of chat-like requests, one after another) on the native engine and
notes the size and the time of every step. The first steps warm up and do not count; of the rest the
percent that is furthest from a first fit is left out, because something else ran on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.cost_model import Fit, MeasuredStep, fit
from benchmarks.drive import Drive, FinalLengths, sequences
from benchmarks.machines import EngineMachine
from benchmarks.record import write_results
from benchmarks.traces import WORKLOADS, fitted, make_trace
from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.engine.build import start_core

_NUM_WARM_UP = 20
_OUTLIERS = 0.01  # share of the steps


def record_steps(
    machine: EngineMachine,
    scheduler: SchedulerConfig,
    *,
    rates: Sequence[float],
    num_requests: int,
    workload: str = "chat",
) -> list[MeasuredStep]:
    """Every step of one run for each rate."""
    steps: list[MeasuredStep] = []
    machine.watched.steps = steps
    make_requests = partial(sequences, vocab_size=machine.vocab_size, knows_sharing=True)
    for seed, rate in enumerate(rates):
        trace = make_trace(
            WORKLOADS[workload],
            rate=rate,
            num_requests=num_requests,
            seed=seed,
            max_model_len=machine.max_model_len,
        )
        parts = machine.parts(lambda request_id: None)
        config = EngineConfig(scheduler=scheduler, cache=CacheConfig(enable_prefix_caching=False))
        core = start_core(config, parts.executor, parts.pacer, lambda phase, share: None)
        entries = (fitted(entry, machine.max_model_len) for entry in trace)
        Drive(core, parts.pacer, make_requests, FinalLengths()).run(entries)
    machine.watched.steps = None
    return steps


def fit_usable(steps: Sequence[MeasuredStep], origin: str) -> Fit:
    """Fit, leave out the steps that are furthest from the fit, and fit the others.

    Raises ValueError when there are too few.
    """
    later = list(steps[_NUM_WARM_UP:])
    first = fit(later, origin).model
    later.sort(key=first.relative_error)
    return fit(later[: len(later) - int(len(later) * _OUTLIERS)], origin)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, fit, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator.fit")
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--rates", default="0.2,1,4", help="Requests per second, one run each.")
    parser.add_argument("--num-requests", type=int, default=40, help="Of each run.")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="chat")
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--max-num-seqs", type=int, default=64)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    scheduler = SchedulerConfig(max_num_seqs=options.max_num_seqs)
    model = ModelConfig(model=options.model, max_model_len=options.max_model_len)
    machine = EngineMachine(EngineConfig(model=model, scheduler=scheduler))
    try:
        steps = record_steps(
            machine,
            scheduler,
            rates=[float(rate) for rate in options.rates.split(",")],
            num_requests=options.num_requests,
            workload=options.workload,
        )
        origin = f"fitted to measured steps: {machine.describe()}"
    finally:
        machine.close()
    found = fit_usable(steps, origin)
    print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
    if options.out:
        write_results(
            options.out, {"benchmark": "simulator.fit", "fit": msgspec.to_builtins(found)}
        )


if __name__ == "__main__":
    main()
