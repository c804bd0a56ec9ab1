"""The command: one trace, one pool, one policy; a summary and a results file."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from benchmarks.cost_model import GPU, CostModel, read_cost_model
from benchmarks.machines import VirtualMachine
from benchmarks.record import write_results
from benchmarks.simulator.simulate import Simulation, simulate
from benchmarks.traces import WORKLOADS, TraceEntry, make_trace, read_trace, with_shape, write_trace
from octavo.config.engine import POLICIES, PREEMPTION_MODES, CacheConfig, SchedulerConfig
from octavo.contracts.kv_plan import KVPlan


def main(arguments: Sequence[str] | None = None) -> None:
    """Simulate, print, write."""
    options = _parser().parse_args(arguments)
    if options.write_trace:
        count = write_trace(options.write_trace, _trace(options))
        print(f"{count} requests written to {options.write_trace}")
        return
    cost = _cost(options)
    scheduler = SchedulerConfig(
        scheduling_policy=options.policy,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        preemption_mode=options.preemption_mode,
    )
    cache = CacheConfig(
        enable_prefix_caching=not options.no_prefix_caching,
        swap_space=options.host_slots / 2**30,  # of blocks of one byte each
    )
    kv_plan = KVPlan(
        num_blocks=options.blocks,
        block_size=options.block_size,
        bytes_per_block=1,
        num_host_slots=options.host_slots,
    )
    machine = VirtualMachine(cost, kv_plan, options.max_model_len)
    found = simulate(_trace(options), machine, scheduler, cache)
    _show(found)
    if options.out:
        document = {
            "benchmark": "simulator",
            "machine": machine.describe(),
            "num_blocks": options.blocks,
            "block_size": options.block_size,
            "max_model_len": options.max_model_len,
            "scheduler": asdict(scheduler),
            "prefix_caching": cache.enable_prefix_caching,
        }
        write_results(options.out, document | found.document())


def _trace(options: argparse.Namespace) -> Iterable[TraceEntry]:
    if options.trace:
        return read_trace(options.trace)
    base = make_trace(
        WORKLOADS[options.workload],
        rate=options.rate,
        num_requests=options.num_requests,
        seed=options.seed,
        max_model_len=options.max_model_len,
    )
    return with_shape(
        base, n=options.n, beam_width=options.beam_width, prefix_len=options.prefix_len
    )


def _cost(options: argparse.Namespace) -> CostModel:
    """Raises ValueError where swapping would be free, which it is nowhere."""
    name = options.cost_model
    cost = GPU if name == "gpu" else read_cost_model(Path(name))
    if options.moved_block_s is not None:
        cost = msgspec.structs.replace(cost, moved_block_s=options.moved_block_s)
    if options.host_slots and not cost.moved_block_s:
        raise ValueError(
            f"{name} does not say what moving a block takes; give --moved-block-s with --host-slots"
        )
    return cost


def _show(found: Simulation) -> None:
    requests, kv, engine = found.requests, found.kv, found.engine
    print(
        f"{requests['num_requests']} requests in {requests['duration_s']:.1f} s of virtual time: "
        f"{requests['requests_per_s']:.2f} requests/s, "
        f"{requests['output_tokens_per_s']:.1f} output tokens/s"
    )
    for name in ("latency", "first_token"):
        print(
            f"{name.replace('_', ' ')}: median {requests[f'{name}_p50_s']:.3f} s, "
            f"p99 {requests[f'{name}_p99_s']:.3f} s"
        )
    print(f"normalised latency: {requests['normalised_latency_s']:.4f} s/token")
    print(
        f"KV pool: {kv['live']:.1%} live, {kv['free']:.1%} free, waste {kv['waste']:.2%}, "
        f"sharing saves {kv['sharing']:.1%}; {kv['num_rows']:.1f} requests in a step"
    )
    print(
        f"{engine['num_preemptions']} preemptions, prefix hits {engine['prefix_hit_rate']:.1%}; "
        f"{engine['num_steps']} steps, simulated in {found.wall_s:.1f} s "
        f"({found.wall_s / max(requests['num_requests'], 1) * 1e6:.0f} us a request)"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulator", description="Simulate an engine on a trace."
    )
    parser.add_argument("--trace", type=Path, help="JSONL; without it one is made up.")
    parser.add_argument("--write-trace", type=Path, help="Only write the made-up trace.")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="chat")
    parser.add_argument("--rate", type=float, default=2.0, help="Requests per second.")
    parser.add_argument("--num-requests", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n", type=int, default=1)
    parser.add_argument("--beam-width", type=int, default=0)
    parser.add_argument("--prefix-len", type=int, default=0)
    parser.add_argument("--cost-model", default="gpu", help="gpu, or a file of the fit.")
    parser.add_argument("--blocks", type=int, default=983)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--host-slots", type=int, default=0, help="Blocks of swap space.")
    parser.add_argument("--moved-block-s", type=float, help="Seconds to swap one block.")
    parser.add_argument("--max-model-len", type=int, default=2048)
    parser.add_argument("--max-num-seqs", type=int, default=256)
    parser.add_argument("--max-num-batched-tokens", type=int, default=2048)
    parser.add_argument("--policy", choices=POLICIES, default="fcfs")
    parser.add_argument("--preemption-mode", choices=PREEMPTION_MODES, default="recompute")
    parser.add_argument("--no-prefix-caching", action="store_true")
    parser.add_argument("--out", type=Path, help="Results file.")
    return parser


if __name__ == "__main__":
    main()
