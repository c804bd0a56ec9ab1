"""What deciding costs: plan and commit of a step, and prefix caching that never hits.

    python -m benchmarks.scheduler_cost --out benchmarks/results/FILE

First part: the engine core on an executor that computes nothing, with 1, 32 and 256 requests that
decode. The time of a step without the executor is plan, commit and the core around them. Second
part: throughput of the native engine with prefix caching on and off, in turns, on prompts that
share nothing; pacing is off, so that all runs are made of the same steps. `--parts` chooses one of
them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.drive import Drive, FinalLengths, sequences
from benchmarks.machines import EngineMachine
from benchmarks.record import quantile, spread, write_results
from benchmarks.traces import TraceEntry
from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.contracts.kv_plan import KVPlan, MemoryPlan
from octavo.contracts.progress import ReportProgress
from octavo.contracts.step import StepPlan, StepResult
from octavo.engine.build import start_core
from octavo.engine.core import EngineCore
from octavo.foundation.clock import SystemClock

_PROMPT_LEN = 32
_VOCABULARY = 49152
_BLOCK_SIZE = CacheConfig().block_size


class IdleExecutor:
    """An `Executor` that answers at once with the same token for every row."""

    def __init__(self, memory_plan: MemoryPlan) -> None:
        self._memory_plan = memory_plan
        self._compute_s = 0.0

    def start(self, report: ReportProgress) -> MemoryPlan:
        """See `Executor`."""
        return self._memory_plan

    def run(self, plan: StepPlan) -> StepResult:
        """See `Executor`. Its own time counts as computing."""
        begin_s = time.perf_counter()
        result = StepResult(step_id=plan.step_id, sampled=[17] * sum(plan.samples))
        self._compute_s += time.perf_counter() - begin_s
        return result

    @property
    def compute_s(self) -> float:
        """See `Executor`."""
        return self._compute_s

    def describe(self) -> str:
        """See `Executor`."""
        return "nothing"

    def kv_tier(self) -> None:
        """There is no disk."""

    def stop(self) -> None:
        """See `Executor`."""


def step_costs(num_requests: int, num_steps: int, *, has_prefix_caching: bool) -> list[float]:
    """Seconds that each of `num_steps` steps took to decide, when all requests decode."""
    core = _idle_core(num_requests, num_steps, has_prefix_caching)
    entry = TraceEntry(
        arrival_s=0.0, prompt_len=_PROMPT_LEN, output_len=num_steps + num_requests + 2
    )
    for number in range(num_requests):
        for request in sequences(number, entry, vocab_size=_VOCABULARY, knows_sharing=True):
            core.add_request(request)
    while not _all_decode(core, num_requests):
        core.step()
    costs = []
    for _ in range(num_steps):
        core.step()
        last = core.last_step
        assert last is not None
        assert last.num_rows == last.num_tokens == num_requests, "a step of something else"
        costs.append(last.python_s)
    return costs


def _idle_core(num_requests: int, num_steps: int, has_prefix_caching: bool) -> EngineCore:
    longest = _PROMPT_LEN + num_steps + num_requests + 2
    blocks_each = -(-longest // _BLOCK_SIZE)
    memory_plan = MemoryPlan(
        limit_bytes=0,
        usable_bytes=0,
        weights_bytes=0,
        workspace_bytes=0,
        kv=KVPlan(
            num_blocks=2 * blocks_each * num_requests + 8,
            block_size=_BLOCK_SIZE,
            bytes_per_block=1,
        ),
        max_model_len=longest,
    )
    config = EngineConfig(
        scheduler=SchedulerConfig(max_num_seqs=num_requests),
        cache=CacheConfig(enable_prefix_caching=has_prefix_caching),
    )
    return start_core(config, IdleExecutor(memory_plan), SystemClock(), lambda phase, share: None)


def _all_decode(core: EngineCore, num_requests: int) -> bool:
    last = core.last_step
    return last is not None and last.num_rows == last.num_tokens == num_requests


def measure_costs(num_steps: int, num_rounds: int) -> list[dict[str, Any]]:
    """Median and p99 of every round, rounds of all settings in turns."""
    settings = [(num, caching) for num in (1, 32, 256) for caching in (True, False)]
    rounds: dict[tuple[int, bool], list[list[float]]] = {setting: [] for setting in settings}
    for _ in range(num_rounds):
        for num_requests, caching in settings:
            costs = step_costs(num_requests, num_steps, has_prefix_caching=caching)
            rounds[num_requests, caching].append(costs)
    return [
        {
            "num_requests": num_requests,
            "prefix_caching": caching,
            "median_ms": spread([1e3 * quantile(costs, 0.5) for costs in found]),
            "p99_ms": spread([1e3 * quantile(costs, 0.99) for costs in found]),
        }
        for (num_requests, caching), found in rounds.items()
    ]


def measure_caching(
    machine: EngineMachine, scheduler: SchedulerConfig, entry: TraceEntry, *, num_rounds: int
) -> dict[str, Any]:
    """Output tokens per second with prefix caching on and off, `max_num_seqs` equal requests."""
    numbers = count()
    rates: dict[bool, list[float]] = {True: [], False: []}
    for round_number in range(num_rounds + 1):
        order = (True, False) if round_number % 2 else (False, True)
        for caching in order:
            rate = _throughput(machine, scheduler, entry, caching=caching, first=next(numbers))
            if round_number:  # the first one warms up
                rates[caching].append(rate)
    pairs = zip(rates[True], rates[False], strict=True)
    return {
        "num_requests": scheduler.max_num_seqs,
        "prompt_len": entry.prompt_len,
        "output_len": entry.output_len,
        "tokens_per_s_on": spread(rates[True]),
        "tokens_per_s_off": spread(rates[False]),
        "cost_percent": spread([100 * (1 - on / off) for on, off in pairs]),
    }


def _throughput(
    machine: EngineMachine,
    scheduler: SchedulerConfig,
    entry: TraceEntry,
    *,
    caching: bool,
    first: int,
) -> float:
    parts = machine.parts(lambda request_id: None)
    config = EngineConfig(scheduler=scheduler, cache=CacheConfig(enable_prefix_caching=caching))
    core = start_core(config, parts.executor, parts.pacer, lambda phase, share: None)
    make = partial(sequences, vocab_size=machine.vocab_size, knows_sharing=True)
    num_requests = scheduler.max_num_seqs

    def distinct(number: int, asked: TraceEntry) -> list[Any]:
        return list(make(first * num_requests + number, asked))

    outcome = Drive(core, parts.pacer, distinct, FinalLengths()).run([entry] * num_requests)
    if outcome.num_cached_tokens:
        raise RuntimeError(f"{outcome.num_cached_tokens} tokens were found in the prefix cache")
    return outcome.num_tokens_out / outcome.end_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scheduler_cost")
    parser.add_argument("--parts", choices=("all", "steps", "caching"), default="all")
    parser.add_argument("--steps", type=int, default=500, help="Steps of each setting and round.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="smollm2:135m")
    parser.add_argument("--batch", type=int, default=32, help="Requests of the throughput part.")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    document: dict[str, Any] = {"benchmark": "scheduler_cost"}
    if options.parts != "caching":
        document["steps"] = measure_costs(options.steps, options.rounds)
        for row in document["steps"]:
            print(
                f"{row['num_requests']:>4} decoding, prefix caching "
                f"{'on ' if row['prefix_caching'] else 'off'}: median "
                f"{row['median_ms']['median']:.4f} ms, p99 {row['p99_ms']['median']:.4f} ms"
            )
    if options.parts != "steps":
        document["caching"] = _caching(options)
        print(f"prefix caching without hits: {document['caching']}")
    if options.out:
        write_results(options.out, document)


def _caching(options: argparse.Namespace) -> dict[str, Any]:
    scheduler = SchedulerConfig(max_num_seqs=options.batch, max_decode_slowdown=0)
    model = ModelConfig(model=options.model, max_model_len=512)
    machine = EngineMachine(EngineConfig(model=model, scheduler=scheduler))
    entry = TraceEntry(arrival_s=0.0, prompt_len=128, output_len=64)
    try:
        found = measure_caching(machine, scheduler, entry, num_rounds=options.rounds)
        return {"machine": machine.describe(), **found}
    finally:
        machine.close()


if __name__ == "__main__":
    main()
