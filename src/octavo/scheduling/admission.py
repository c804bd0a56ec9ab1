"""Admission: what it takes for a waiting request to run.

Owns: the size that can never run, the fit of one request into this step, the spare blocks.
Does not know: the order of the queue, rows.

A request is admitted with blocks for all its known tokens, even if this step computes only the
first chunk: a prefill that has begun never waits for blocks, so half-done prefills cannot lock
each other.
"""

from __future__ import annotations

from octavo.config.engine import SchedulerConfig
from octavo.contracts.kv_plan import KVPlan
from octavo.errors import PromptTooLongError
from octavo.kvcache.manager import KVManager
from octavo.scheduling.budget import StepBudget
from octavo.scheduling.request import Request

_POOL_PER_SPARE_BLOCK = 100  # one block in so many stays free for rows that decode


def largest_request(kv_plan: KVPlan) -> int:
    """Most tokens, prompt and answer together, that one request can reach when it runs alone.

    One more than the pool holds: the last token of an answer is never computed.
    """
    return kv_plan.num_tokens + 1


def check_fits(
    kv_plan: KVPlan, config: SchedulerConfig, num_prompt_tokens: int, max_tokens: int
) -> None:
    """For the intake: refuse a request that could never finish on this engine.

    Raises PromptTooLongError with the numbers and the option that would help.
    """
    limit = largest_request(kv_plan)
    pool = f"{kv_plan.num_tokens} tokens ({kv_plan.num_blocks} blocks of {kv_plan.block_size})"
    if num_prompt_tokens >= limit:
        raise PromptTooLongError(
            f"the prompt has {num_prompt_tokens} tokens, but the KV cache holds {pool}; shorten "
            "the prompt, or start the engine with more --kv-cache-memory-bytes",
            param="prompt",
        )
    if num_prompt_tokens + max_tokens > limit:
        raise PromptTooLongError(
            f"the prompt has {num_prompt_tokens} tokens, so max_tokens can be at most "
            f"{limit - num_prompt_tokens}, got {max_tokens}: the KV cache holds {pool}; ask for "
            "fewer tokens, or start the engine with more --kv-cache-memory-bytes",
            param="max_tokens",
        )
    budget = config.max_num_batched_tokens
    if not config.enable_chunked_prefill and num_prompt_tokens > budget:
        raise PromptTooLongError(
            f"the prompt has {num_prompt_tokens} tokens, but without chunked prefill a step "
            f"computes at most {budget}; shorten the prompt, or start the engine with "
            f"--enable-chunked-prefill or a larger --max-num-batched-tokens",
            param="prompt",
        )


def reason_against_ever(request: Request, kv: KVManager) -> str | None:
    """Why this request cannot run even alone; None if it can."""
    num_blocks = kv.num_blocks_for(request.num_tokens)
    if num_blocks <= kv.num_blocks:
        return None
    return (
        f"the request has {request.num_tokens} tokens and needs {num_blocks} KV blocks of "
        f"{kv.block_size} tokens, the whole cache has {kv.num_blocks}; start the engine with more "
        "--kv-cache-memory-bytes"
    )


def num_spare_blocks(kv: KVManager, num_running: int) -> int:
    """Free blocks that an admission leaves, so that it does not end in a preemption at once."""
    return kv.num_blocks // _POOL_PER_SPARE_BLOCK if num_running else 0


def admit(request: Request, kv: KVManager, budget: StepBudget, num_spare: int) -> int:
    """Give `request` blocks for all its known tokens; returns the tokens that it computes now.

    0 means that it must wait; nothing has changed then.
    """
    if kv.num_free_blocks <= num_spare:
        return 0  # at least the last known token needs a block of its own
    table, num_known = request.table, request.num_tokens
    matched = kv.match(table)
    num_cached = len(matched) * kv.block_size
    num_tokens = budget.first_chunk(num_known - num_cached)
    if not num_tokens or kv.shortfall(table, num_known, matched) + num_spare > 0:
        return 0
    gained = kv.reserve(table, num_known, matched)
    assert gained is not None, f"{request}: blocks vanished between two lines"
    kv.announce(table, num_cached + num_tokens)
    request.num_computed_tokens = num_cached
    return num_tokens
