"""The start banner: what runs, on what, and the sum of the memory."""

from __future__ import annotations

from octavo.contracts.kv_plan import KVPlan, MemoryPlan
from octavo.engine.build import Engine
from octavo.foundation.quantities import format_bytes, format_count
from octavo.version import version


def banner(engine: Engine, url: str | None) -> list[str]:
    """A few lines for the log."""
    lines = [
        f"Octavo {version()}: {engine.name}",
        engine.hardware,
        memory_line(engine.memory_plan),
    ]
    if engine.memory_plan.kv.num_host_slots:
        lines.append(swap_line(engine.memory_plan.kv))
    if url is not None:
        lines.append(f"ready at {url}")
    return lines


def swap_line(plan: KVPlan) -> str:
    """What lies outside the pool."""
    num_bytes = plan.num_host_slots * plan.bytes_per_block
    return (
        f"host slots: {format_bytes(num_bytes)} for {format_count(plan.num_host_slots)} KV blocks "
        "that are swapped out, or on their way to or from the disk"
    )


def memory_line(plan: MemoryPlan) -> str:
    """The memory plan as one sum."""
    kv_bytes = plan.kv.num_blocks * plan.kv.bytes_per_block
    total_bytes = plan.weights_bytes + plan.workspace_bytes + kv_bytes
    return (
        f"memory: weights {format_bytes(plan.weights_bytes)} + workspace "
        f"{format_bytes(plan.workspace_bytes)} + KV {format_bytes(kv_bytes)} = "
        f"{format_bytes(total_bytes)} of {format_bytes(plan.limit_bytes)}; KV holds "
        f"{format_count(plan.kv.num_tokens)} tokens, {plan.max_concurrency:.1f} requests of "
        f"{format_count(plan.max_model_len)}"
    )
