"""Admission: what it takes for a waiting request to run.

Owns: the size that can never run, the fit of one request into this step, the spare blocks, and
who may pass a request that does not fit.
Does not know: the order of the queue, rows.

A request is admitted with blocks for all its known tokens, even if this step computes only the
first chunk: a prefill that has begun never waits for blocks, so half-done prefills cannot lock
each other.

A big request that does not fit would idle the machine for those behind it. So a few later ones are
tried, but each waiting request is passed only so often in its life; then it stands first until it
fits. Nobody starves, and the order is kept but for a bound.
"""

from __future__ import annotations

from collections.abc import Iterable

from octavo.config.engine import SchedulerConfig
from octavo.contracts.kv_plan import KVPlan
from octavo.errors import PromptTooLongError
from octavo.kvcache.manager import KVManager
from octavo.kvcache.matching import PrefixMatch
from octavo.scheduling.budget import StepBudget
from octavo.scheduling.queues import WaitingQueue
from octavo.scheduling.request import Request

MAX_LOOK_AHEAD = 8
"""Waiting requests that one plan leaves out and looks past."""
MAX_TIMES_PASSED = 16
"""Requests that may pass a waiting one."""

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


def num_owed_rows(searches: Iterable[Request]) -> int:
    """Rows that searches will take: they have one for each beam only after their first step."""
    return sum([one.num_rows - len(one.holders) for one in searches])


def num_owed_blocks(holders: Iterable[Request], kv: KVManager) -> int:
    """Blocks that half-computed prompts will still take.

    Groups with a window get theirs chunk by chunk. What is owed stays free, or prompts that have
    begun would take blocks from each other in circles.
    """
    windowed = [place for place, group in enumerate(kv.groups) if group.window]
    if not windowed:
        return 0
    num_owed = 0
    for holder in holders:
        num_tokens = holder.num_tokens
        if num_tokens - holder.num_computed_tokens > 1:
            wanted = sum(
                kv.groups[place].most_blocks(num_tokens, kv.block_size) for place in windowed
            )
            tables = [holder.table.block_ids[place] for place in windowed]
            held = sum(block_id >= 0 for ids in tables for block_id in ids)
            num_owed += max(0, wanted - held)
    return num_owed


def admit(
    request: Request,
    kv: KVManager,
    budget: StepBudget,
    num_spare: int,
    *,
    uses_cache: bool = True,
) -> int:
    """Give `request` blocks for all its known tokens; returns the tokens that it computes now.

    0 means that it must wait; nothing has changed then. Without the cache it needs fewer blocks at
    once: a block that is reused in part is held beside its copy.
    """
    if kv.num_free_blocks <= num_spare:
        return 0  # at least the last known token needs a block of its own
    table, num_known = request.table, request.num_tokens
    if table.is_swapped:
        return _admit_swapped(request, kv, budget, num_spare)
    match = kv.match(table) if uses_cache else None
    num_found = match.num_tokens if match is not None else 0
    num_tokens = budget.first_chunk(num_known - num_found)
    num_tokens = _fitting_chunk(request, kv, match, num_found, num_tokens, num_spare)
    if not num_tokens:
        return 0
    chunk_end = num_found + num_tokens
    num_computed = kv.admit(table, num_known, match, chunk_end=chunk_end)
    if num_computed is None:
        return 0
    if num_computed < num_found:  # the tier lost a block: more is missing than it seemed
        num_tokens = budget.first_chunk(num_known - num_computed)
        num_tokens = min(num_tokens, chunk_end - num_computed)
        if not num_tokens:
            kv.free(table)
            return 0
    kv.announce(table, num_computed + num_tokens)
    request.num_computed_tokens = num_computed
    return num_tokens


def _admit_swapped(request: Request, kv: KVManager, budget: StepBudget, num_spare: int) -> int:
    """The same for a request whose computed tokens wait in host slots."""
    table, num_computed = request.table, request.num_computed_tokens
    num_tokens = budget.first_chunk(request.num_missing_tokens)
    num_tokens = _fitting_chunk(request, kv, None, num_computed, num_tokens, num_spare)
    if not num_tokens:
        return 0
    end = num_computed + num_tokens
    if not kv.swap_in(table) or kv.reserve(table, num_computed, end) is None:
        # Its last block is shared and there is none for a copy: it is computed again some day.
        kv.free(table)
        request.num_computed_tokens = 0
        return 0
    kv.announce(table, end)
    return num_tokens


def _fitting_chunk(
    request: Request,
    kv: KVManager,
    match: PrefixMatch | None,
    num_computed: int,
    num_tokens: int,
    num_spare: int,
) -> int:
    """The first chunk, at most `num_tokens`, for which there are blocks; 0 if for none.

    Only groups with a window need fewer blocks for a shorter chunk.
    """

    def num_lacking(num_tokens: int) -> int:
        end = num_computed + num_tokens
        return num_spare + kv.shortfall(request.table, request.num_tokens, match, chunk_end=end)

    if not num_tokens:
        return 0
    lacking = num_lacking(num_tokens)
    num_windowed = sum(group.window > 0 for group in kv.groups)
    if lacking > 0 and num_windowed:
        num_tokens = max(1, num_tokens - -(-lacking // num_windowed) * kv.block_size)
        lacking = num_lacking(num_tokens)
    return num_tokens if lacking <= 0 else 0


class LookAhead:
    """Which waiting request a plan tries next. Made for each plan."""

    __slots__ = ("_is_over", "_left_out", "_may_pass", "_skipped")

    def __init__(self, *, may_pass: bool) -> None:
        """Unless `may_pass`, the first request that does not fit ends it."""
        self._may_pass = may_pass
        self._is_over = False
        self._skipped: list[Request] = []
        self._left_out: set[str] = set()  # ids of the skipped and of the held ones

    def next_of(self, waiting: WaitingQueue) -> Request | None:
        """The request to try; None if no further one may be tried in this plan."""
        if self._is_over:
            return None
        for request in waiting.upcoming(len(self._left_out) + 1):
            if request.id not in self._left_out:
                return request
        return None

    def skip(self, request: Request) -> None:
        """It did not fit."""
        self._skipped.append(request)
        self._left_out.add(request.id)
        self._is_over = (
            not self._may_pass
            or len(self._skipped) > MAX_LOOK_AHEAD
            or request.num_times_passed >= MAX_TIMES_PASSED
        )

    def hold(self, request: Request) -> None:
        """It waits for another request, not for room: passing it is no loss and is not counted."""
        self._left_out.add(request.id)

    def note_admission(self, request: Request) -> None:
        """`request` runs: it has passed all that were skipped."""
        request.num_times_passed = 0
        for passed in self._skipped:
            passed.num_times_passed += 1
            self._is_over |= passed.num_times_passed >= MAX_TIMES_PASSED
