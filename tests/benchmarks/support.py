"""Small machines and cores for the tests of the benchmarks."""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.cost_model import CostModel
from benchmarks.drive import Drive, FinalLengths, Outcome, VirtualPacer, sequences
from benchmarks.executors import CostExecutor
from benchmarks.kv_meter import KVMeter
from benchmarks.machines import EngineMachine, VirtualMachine
from benchmarks.serving_policies.policies import make_core
from benchmarks.traces import TraceEntry
from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.contracts.kv_plan import KVPlan
from tests.support.random_checkpoint import RandomCheckpoint

FLAT = CostModel(origin="a test", base_s=1.0)
SCHEDULER = SchedulerConfig(max_decode_slowdown=0, max_num_seqs=16, max_num_batched_tokens=64)
NO_CACHE = CacheConfig(enable_prefix_caching=False)


def kv_plan(num_blocks: int = 16, block_size: int = 8, **fields: Any) -> KVPlan:
    """A small pool."""
    return KVPlan(num_blocks=num_blocks, block_size=block_size, bytes_per_block=1, **fields)


def entry(
    arrival_s: float = 0.0, prompt_len: int = 10, output_len: int = 6, **more: Any
) -> TraceEntry:
    """A small request."""
    return TraceEntry(arrival_s=arrival_s, prompt_len=prompt_len, output_len=output_len, **more)


def virtual_machine(num_blocks: int = 16, max_model_len: int = 64) -> VirtualMachine:
    """One second a step, whatever it holds."""
    return VirtualMachine(FLAT, kv_plan(num_blocks), max_model_len)


def engine_machine() -> EngineMachine:
    """A tiny random model on the native engine."""
    config = EngineConfig(
        model=ModelConfig(max_model_len=64, threads=1),
        cache=CacheConfig(num_gpu_blocks_override=32, block_size=8, kv_cache_dtype="float32"),
        scheduler=SCHEDULER,
    )
    return EngineMachine(config, RandomCheckpoint())


def serve(
    policy: str, trace: list[TraceEntry], *, num_blocks: int = 16, max_model_len: int = 64
) -> tuple[Outcome, KVMeter]:
    """One run on virtual time, prefix cache off."""
    plan, lens, pacer = kv_plan(num_blocks), FinalLengths(), VirtualPacer()
    meter = KVMeter(plan, lens.get)
    executor = CostExecutor(FLAT, plan, pacer, meter, max_model_len=max_model_len)
    core = make_core(policy, SCHEDULER, NO_CACHE, executor, pacer, meter)
    make = partial(sequences, vocab_size=1 << 30, knows_sharing=policy == "paged")
    return Drive(core, pacer, make, lens).run(trace), meter
