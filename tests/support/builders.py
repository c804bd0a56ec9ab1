"""Builders of the deciding column: requests, KV managers, schedulers, and a rig that runs them.

Small numbers on purpose: blocks of 4 tokens, so that a test can be checked in the head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from octavo.config.engine import SchedulerConfig
from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.contracts.grammar import TokenConstraint
from octavo.contracts.kv_plan import KVGroup, KVPlan
from octavo.contracts.kv_tier import KVTier
from octavo.contracts.request import EngineRequest
from octavo.contracts.step import SamplingSpec, StepPlan, StepResult, TokenLogprobs
from octavo.executor.scripted import (
    Block,
    Candidates,
    Script,
    ScriptedExecutor,
    hash_of_history,
)
from octavo.kvcache.manager import KVManager
from octavo.scheduling.invariants import check
from octavo.scheduling.scheduler import Scheduler

BLOCK_SIZE = 4


def make_request(
    request_id: str = "a",
    prompt: Iterable[int] = range(10),
    *,
    max_tokens: int = 4,
    sampling: SamplingSpec | None = None,
    **fields: Any,
) -> EngineRequest:
    """A request; `range(n)` prompts share their beginnings, other ranges share nothing."""
    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=list(prompt),
        max_tokens=max_tokens,
        sampling=sampling or SamplingSpec(),
        **fields,
    )


def make_groups(windows: Sequence[int]) -> tuple[KVGroup, ...]:
    """Groups by their windows: 0 for one that sees everything, -n for a state of n blocks."""
    return tuple(
        KVGroup(layers=(idx,), window=max(0, one), num_state_blocks=max(0, -one))
        for idx, one in enumerate(windows)
    )


def make_kv_plan(
    num_blocks: int = 16,
    block_size: int = BLOCK_SIZE,
    *,
    windows: Sequence[int] = (0,),
    num_host_slots: int = 0,
) -> KVPlan:
    """A pool; a group of layers for each of the `windows`, see `make_groups`."""
    return KVPlan(
        num_blocks=num_blocks,
        block_size=block_size,
        bytes_per_block=1024,
        groups=make_groups(windows),
        num_host_slots=num_host_slots,
    )


def make_kv(
    num_blocks: int = 16,
    block_size: int = BLOCK_SIZE,
    *,
    windows: Sequence[int] = (0,),
    num_host_slots: int = 0,
    **options: Any,
) -> KVManager:
    """A KV manager."""
    plan = make_kv_plan(num_blocks, block_size, windows=windows, num_host_slots=num_host_slots)
    return KVManager(plan, **options)


def make_scheduler(
    *,
    num_blocks: int = 16,
    block_size: int = BLOCK_SIZE,
    max_num_batched_tokens: int = 64,
    max_num_seqs: int = 8,
    max_model_len: int = 1000,
    enable_prefix_caching: bool = True,
    windows: Sequence[int] = (0,),
    num_host_slots: int = 0,
    tier: KVTier | None = None,
    **options: Any,
) -> Scheduler:
    """A scheduler; `options` are further fields of SchedulerConfig."""
    config = SchedulerConfig(
        max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs, **options
    )
    kv = make_kv(
        num_blocks,
        block_size,
        windows=windows,
        num_host_slots=num_host_slots,
        enable_prefix_caching=enable_prefix_caching,
        tier=tier,
    )
    return Scheduler(config, kv, max_model_len)


class Rig:
    """A scheduler and a scripted executor. Every call ends with a check of all invariants."""

    def __init__(self, scheduler: Scheduler, executor: ScriptedExecutor) -> None:
        self.scheduler = scheduler
        self.executor = executor
        self.now_s = 0.0  # what the scheduler is told
        self.deltas: list[TokenDelta] = []

    def add(self, *requests: EngineRequest, constraint: TokenConstraint | None = None) -> None:
        for request in requests:
            self.scheduler.add(request, constraint)
        check(self.scheduler)

    def abort(self, request_id: str, **options: Any) -> bool:
        was_live = self.scheduler.abort(request_id, **options)
        check(self.scheduler)
        return was_live

    def plan(self) -> StepPlan:
        plan = self.scheduler.plan(self.now_s)
        check(self.scheduler)
        decoding = [
            one
            for one in self.scheduler.running
            if one.num_missing_tokens == 1 and one.search is None
        ]
        waits = [one for one in decoding if one not in self.scheduler.in_flight]
        assert not waits, f"a decoding request waits: {waits}"
        return plan

    def run(self, plan: StepPlan) -> StepResult:
        return self.executor.run(plan)

    def commit(self, plan: StepPlan, result: StepResult) -> list[TokenDelta]:
        return self._keep(self.scheduler.commit(plan, result))

    def fail_step(self, plan: StepPlan, message: str) -> list[TokenDelta]:
        return self._keep(self.scheduler.fail_step(plan, message))

    def step(self) -> StepPlan:
        """One step of the loop that the engine core runs; its deltas are kept."""
        plan = self.plan()
        self.finish_step(plan)
        return plan

    def finish_step(self, plan: StepPlan) -> None:
        """Run and commit a plan, if there is anything in it."""
        if plan.rows:
            self.commit(plan, self.run(plan))
        else:
            self._keep(self.scheduler.take_notices())

    def steps(self, count: int) -> list[StepPlan]:
        return [self.step() for _ in range(count)]

    def finish(self, limit: int = 1000) -> None:
        """Step until nothing is live. Every step computes something or ends somebody."""
        for _ in range(limit):
            if not self.scheduler.has_work():
                return
            num_deltas = len(self.deltas)
            plan = self.step()
            has_progress = bool(plan.rows) or len(self.deltas) > num_deltas
            assert has_progress, f"stuck with {self.scheduler.requests}"
        raise AssertionError(f"still live after {limit} steps: {self.scheduler.requests}")

    def tokens_of(self, request_id: str) -> list[int]:
        return [
            token for one in self.deltas if one.request_id == request_id for token in one.token_ids
        ]

    def end_of(self, request_id: str) -> TokenDelta:
        """The only last delta of a request."""
        (end,) = [one for one in self.deltas if one.request_id == request_id and one.finish_reason]
        return end

    def prompt_logprobs_of(self, request_id: str) -> list[TokenLogprobs]:
        return [
            entry
            for one in self.deltas
            if one.request_id == request_id
            for entry in one.prompt_logprobs or ()
        ]

    def _keep(self, deltas: list[TokenDelta]) -> list[TokenDelta]:
        self.deltas += deltas
        check(self.scheduler)
        return deltas


def make_rig(
    script: Script | None = None,
    candidates: Candidates | None = None,
    *,
    num_blocks: int = 16,
    block_size: int = BLOCK_SIZE,
    windows: Sequence[int] = (0,),
    num_host_slots: int = 0,
    tier: Callable[[list[Block]], KVTier] | None = None,
    **options: Any,
) -> Rig:
    """A rig around `make_scheduler(**options)`; `tier` is made around the executor's host slots."""
    pool: dict[str, Any] = {
        "num_blocks": num_blocks,
        "block_size": block_size,
        "windows": windows,
        "num_host_slots": num_host_slots,
    }
    executor = ScriptedExecutor(
        script or hash_of_history(1000),
        make_kv_plan(**pool),
        max_num_seqs=options.get("max_num_seqs", 8),
        candidates=candidates,
        tier=tier,
    )
    return Rig(make_scheduler(**pool, tier=executor.kv_tier(), **options), executor)


def solo_answer(request: EngineRequest, script: Script) -> tuple[list[int], FinishReason]:
    """What the request gets when nothing else exists: no scheduler, no cache, only the script."""
    token_ids = list(request.prompt_token_ids)
    answer: list[int] = []
    while True:
        token_id = script(request.request_id, token_ids, len(request.prompt_token_ids))
        token_ids.append(token_id)
        answer.append(token_id)
        if token_id in request.eos_token_ids or token_id in request.stop_token_ids:
            return answer, "stop"
        if len(answer) == request.max_tokens:
            return answer, "length"
