"""The lines that a server starts with."""

from __future__ import annotations

from octavo.cli.banner import memory_line, swap_line
from octavo.contracts.kv_plan import KVPlan, MemoryPlan

MIB = 1 << 20


def test_the_memory_line_is_a_sum_that_adds_up() -> None:
    """The parts give the total, which is compared with the machine."""
    plan = MemoryPlan(
        limit_bytes=1024 * MIB,
        usable_bytes=512 * MIB,
        weights_bytes=90 * MIB,
        workspace_bytes=10 * MIB,
        kv=KVPlan(num_blocks=100, block_size=32, bytes_per_block=2 * MIB),
        max_model_len=1600,
    )

    assert memory_line(plan) == (
        "memory: weights 90.0 MiB + workspace 10.0 MiB + KV 200.0 MiB = 300.0 MiB of 1.0 GiB; "
        "KV holds 3,200 tokens, 2.0 requests of 1,600"
    )


def test_host_slots_have_a_line_of_their_own() -> None:
    """Their size is not in the sum of the pool."""
    plan = KVPlan(num_blocks=100, block_size=32, bytes_per_block=2 * MIB, num_host_slots=64)

    assert swap_line(plan).startswith("host slots: 128.0 MiB for 64 KV blocks")
