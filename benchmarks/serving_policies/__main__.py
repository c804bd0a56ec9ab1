"""The command: one comparison, all its points, one results file.

    python -m benchmarks.serving_policies --machine gpu --workload chat --rates 0.5,1,1.5,2
    python -m benchmarks.serving_policies --machine engine --model smollm2:135m --workload instruct
    python -m benchmarks.serving_policies --machine FILE --workload instruct --n 2,4,6,8

`--machine gpu` is virtual time with a formula from data sheets, FILE virtual time with a cost model
fitted by `python -m benchmarks.simulator.fit`, engine the native engine in real time. Points of all
policies are interleaved, so that a machine whose speed drifts treats all alike.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.cost_model import GPU, GPU_KV_SLOTS, CostModel, read_cost_model
from benchmarks.machines import EngineMachine, Machine, VirtualMachine
from benchmarks.record import write_results
from benchmarks.serving_policies.policies import POLICIES
from benchmarks.serving_policies.summary import print_summary
from benchmarks.serving_policies.sweep import Case, Point, run_point
from benchmarks.traces import WORKLOADS
from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.contracts.kv_plan import KVPlan


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every point, print the summary, write the file."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = command_parser().parse_args(arguments)
    scheduler = SchedulerConfig(
        max_num_seqs=options.max_num_seqs, max_num_batched_tokens=options.max_num_batched_tokens
    )
    machine = _machine(options, scheduler)
    cases = _cases(options)
    points = []
    print(machine.describe())
    try:
        for point in _points(cases, options):
            found = run_point(point, machine, scheduler, num_requests=options.num_requests)
            points.append(found)
            print(
                f"{point.case.title:<30} {point.policy:<22} {point.rate:>7g}/s seed {point.seed}: "
                f"{found['requests']['normalised_latency_s']:.4f} s/token, "
                f"{found['kv']['num_rows']:.1f} rows, waste {found['kv']['waste']:.1%}, "
                f"sharing saves {found['kv']['sharing']:.1%}",
                flush=True,
            )
    finally:
        machine.close()
    document = {
        "benchmark": "serving_policies",
        "command": f"python -m benchmarks.serving_policies {shlex.join(arguments)}",
        "machine": machine.describe(),
        "is_virtual": options.machine != "engine",
        "max_model_len": machine.max_model_len,
        "block_size": machine.kv_plan.block_size,
        "num_blocks": machine.kv_plan.num_blocks,
        "scheduler": asdict(scheduler),
        "num_requests": options.num_requests,
        "points": points,
    }
    print_summary(document)
    if options.out:
        write_results(options.out, document)


def _points(cases: Sequence[Case], options: argparse.Namespace) -> list[Point]:
    return [
        Point(case, policy, rate, seed)
        for case in cases
        for seed in range(options.seeds)
        for rate in options.rates
        for policy in options.policies
    ]


def _cases(options: argparse.Namespace) -> list[Case]:
    workload = options.workload
    cases = [Case(workload, n=n) for n in options.n]
    cases += [Case(workload, beam_width=width) for width in options.beam_width]
    cases += [Case(workload, prefix_len=length) for length in options.prefix_len]
    return cases or [Case(workload)]


def _machine(options: argparse.Namespace, scheduler: SchedulerConfig) -> Machine:
    if options.machine == "engine":
        config = EngineConfig(
            model=ModelConfig(model=options.model, max_model_len=options.max_model_len),
            cache=CacheConfig(
                block_size=options.block_size, num_gpu_blocks_override=_num_blocks(options)
            ),
            scheduler=scheduler,
        )
        return EngineMachine(config)
    cost = _cost(options.machine)
    kv_plan = KVPlan(
        num_blocks=_num_blocks(options), block_size=options.block_size, bytes_per_block=1
    )
    return VirtualMachine(cost, kv_plan, options.max_model_len)


def _cost(name: str) -> CostModel:
    return GPU if name == "gpu" else read_cost_model(Path(name))


def _num_blocks(options: argparse.Namespace) -> int:
    return int(options.kv_slots // options.block_size)


def command_parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving_policies",
        description="Compare allocation and batching policies.",
    )
    parser.add_argument("--machine", default="gpu", help="gpu, engine, or a cost model file.")
    parser.add_argument("--model", default="smollm2:135m", help="Model of the engine.")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="chat")
    parser.add_argument("--policies", type=_names, default=list(POLICIES))
    parser.add_argument("--rates", type=_floats, default=[0.5, 1.0, 1.5, 2.0], help="Requests/s.")
    parser.add_argument("--num-requests", type=int, default=500, help="Requests of each point.")
    parser.add_argument("--seeds", type=int, default=3, help="Runs of each point.")
    parser.add_argument("--kv-slots", type=int, default=GPU_KV_SLOTS, help="Tokens in the pool.")
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-num-batched-tokens", type=int, default=2048)
    parser.add_argument("--n", type=_ints, default=[], help="Parallel samples: 2,4,6,8.")
    parser.add_argument("--beam-width", type=_ints, default=[], help="Beams: 2,4,6.")
    parser.add_argument("--prefix-len", type=_ints, default=[], help="Shared prefix: 80,341.")
    parser.add_argument("--out", type=Path, help="Results file.")
    return parser


def _floats(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _ints(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _names(text: str) -> list[str]:
    names = text.split(",")
    wrong = [name for name in names if name not in POLICIES]
    if wrong:
        raise argparse.ArgumentTypeError(f"no policy {wrong[0]!r}; choose from {POLICIES}")
    return names


if __name__ == "__main__":
    main()
