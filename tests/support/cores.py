"""Engine cores over a scripted executor, driven to their end."""

from __future__ import annotations

from typing import Any

from octavo.config.engine import CacheConfig, SchedulerConfig
from octavo.contracts.delta import TokenDelta
from octavo.engine.core import EngineCore
from octavo.executor.scripted import ScriptedExecutor, hash_of_history
from octavo.foundation.clock import ManualClock
from tests.support.builders import make_kv_plan

SCRIPT = hash_of_history(50)


def ignore_progress(phase: str, share: float) -> None:
    """Nobody watches."""


def make_core(
    executor: Any = None,
    clock: ManualClock | None = None,
    *,
    enable_prefix_caching: bool = True,
    **limits: Any,
) -> EngineCore:
    executor = executor or ScriptedExecutor(SCRIPT, make_kv_plan(32))
    return EngineCore.around(
        SchedulerConfig(**{"max_num_seqs": 4, "max_num_batched_tokens": 64, **limits}),
        CacheConfig(enable_prefix_caching=enable_prefix_caching),
        executor,
        executor.start(ignore_progress),
        clock or ManualClock(),
    )


def run_until_idle(core: EngineCore) -> list[TokenDelta]:
    deltas: list[TokenDelta] = []
    for _ in range(200):
        if not core.has_work():
            return deltas
        deltas += core.step()
    raise AssertionError("still busy after 200 steps")


def tokens_of(deltas: list[TokenDelta], request_id: str) -> list[int]:
    return [token for one in deltas if one.request_id == request_id for token in one.token_ids]
