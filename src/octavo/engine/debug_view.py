"""Debug view: requests and blocks of one engine core as plain data, for `/debug/kv`.

Owns the shape of that answer. Read on the engine's thread between two steps, so that all of it is
from one moment. Holds ids, counts and hashes; never a token or a text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octavo.engine.core import EngineCore
from octavo.kvcache.block_table import BlockTable
from octavo.scheduling.request import Request
from octavo.scheduling.scheduler import Scheduler


def debug_view(core: EngineCore, now_s: Callable[[], float]) -> dict[str, Any]:
    """Everything to be seen. `now_s` is the clock by which requests have arrived."""
    scheduler, stats = core.scheduler, core.stats()
    now = now_s()
    return {
        "max_model_len": core.memory_plan.max_model_len,
        "steps": {
            "count": stats.num_steps,
            "tokens": stats.num_step_tokens,
            "python_s": stats.python_s,
            "compute_s": stats.compute_s,
        },
        "requests": [_shown(request, now) for request in scheduler.requests.values()],
        "kv": scheduler.kv.snapshot(_holdings(scheduler)),
    }


def _holdings(scheduler: Scheduler) -> dict[str, tuple[BlockTable, int]]:
    """Who holds blocks. The beams of a search are numbered."""
    holdings = {}
    for request in scheduler.requests.values():
        holders = request.holders
        for number, holder in enumerate(holders):
            name = request.id if len(holders) == 1 else f"{request.id}#{number}"
            holdings[name] = holder.table, holder.num_computed_tokens
    return holdings


def _shown(request: Request, now_s: float) -> dict[str, Any]:
    """One live request. A beam search shows the sums of its beams."""
    holders = request.holders
    state = "swapped" if request.lead.table.is_swapped else request.status.value
    return {
        "id": request.id,
        "state": state,
        "tenant": request.tenant,
        "priority": request.priority,
        "age_s": round(now_s - request.arrival_s, 6),
        "rows": len(holders),
        "prompt_tokens": request.num_prompt_tokens,
        "generated_tokens": sum(one.num_tokens - one.num_prompt_tokens for one in holders),
        "computed_tokens": sum(one.num_computed_tokens for one in holders),
        "cached_tokens": request.num_cached_tokens,
        "preemptions": request.num_preemptions,
        "swaps": request.num_swaps,
    }
