"""Schedulers that give each request one contiguous run of slots when it is admitted.

Owns: two ways to form batches over such slots, as systems before paging had them.

    static batches     FasterTransformer behind a batching server: a batch is formed when the last
                       one has ended, runs until its longest request ends, and is answered then
    iterations         Orca: requests come and go at every step

Does not know: time. Speaks the same contract as `octavo.scheduling`: plans out, results in. To both
it lends what the engine has and they had not: prompts in chunks within the token budget, and no
work for requests that have ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from benchmarks.serving_policies.slot_ranges import SlotRanges
from octavo.contracts.delta import TokenDelta
from octavo.contracts.kv_plan import KVPlan
from octavo.contracts.request import EngineRequest
from octavo.contracts.step import NewRow, StepPlan, StepResult

Reservation = Callable[[EngineRequest], int]
"""Slots that a request gets when it is admitted, for prompt and answer."""


class _Request:
    """A request with its run of slots."""

    __slots__ = ("blocks", "num_asked", "num_computed", "num_known", "num_total", "row", "source")

    def __init__(self, source: EngineRequest, num_asked: int) -> None:
        self.source = source
        self.num_asked = num_asked  # blocks
        self.blocks = range(0)
        self.row = -1
        self.num_known = len(source.prompt_token_ids)
        self.num_total = self.num_known + source.max_tokens
        self.num_computed = 0


class ContiguousScheduler:
    """First come, first served; nobody is ever preempted, since all slots are taken in advance."""

    def __init__(
        self,
        kv_plan: KVPlan,
        ranges: SlotRanges,
        reservation: Reservation,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        has_static_batches: bool,
    ) -> None:
        self._kv_plan = kv_plan
        self._ranges = ranges
        self._reservation = reservation
        self._max_num_tokens = max_num_batched_tokens
        self._has_static_batches = has_static_batches
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._ended: list[_Request] = []  # of a static batch that goes on
        self._held_deltas: list[TokenDelta] = []
        self._free_rows = list(range(min(max_num_seqs, max_num_batched_tokens) - 1, -1, -1))
        self._freed_rows: list[int] = []
        self._in_flight: list[_Request] = []
        self._num_planned = 0
        self._num_rounded = 0  # blocks that the allocator gave beyond what was asked for
        self._num_unreachable = 0  # free blocks while somebody waits for a hole

    @property
    def num_lost_blocks(self) -> int:
        """Blocks lost to holes and rounding, as of the last plan."""
        return self._num_rounded + self._num_unreachable

    def has_work(self) -> bool:
        """Whether a request is live."""
        return bool(self._waiting or self._running)

    def add(self, source: EngineRequest) -> None:
        """Queue a request. Raises ValueError for one that no pool of this size can run."""
        num_asked = -(-self._reservation(source) // self._kv_plan.block_size)
        if num_asked > self._kv_plan.num_blocks:
            raise ValueError(
                f"request {source.request_id} reserves {num_asked} blocks, the pool has "
                f"{self._kv_plan.num_blocks}; use a larger pool or a shorter context"
            )
        self._waiting.append(_Request(source, num_asked))

    def plan(self) -> StepPlan:
        """One token for each request that decodes, then chunks of prompts, within the budget."""
        plan = StepPlan(step_id=self._num_planned)
        self._num_planned += 1
        if not (self._has_static_batches and self._running):
            self._admit(plan)
        plan.freed_rows, self._freed_rows = self._freed_rows, []
        num_left = self._max_num_tokens
        decoding = [one for one in self._running if one.num_known - one.num_computed == 1]
        others = [one for one in self._running if one.num_known - one.num_computed > 1]
        for request in (*decoding, *others):
            num_missing = request.num_known - request.num_computed
            num_tokens = min(num_missing, num_left)
            if not num_tokens:
                break
            num_left -= num_tokens
            plan.rows.append(request.row)
            plan.num_tokens.append(num_tokens)
            plan.samples.append(num_tokens == num_missing)
            self._in_flight.append(request)
        return plan

    def commit(self, plan: StepPlan, result: StepResult) -> list[TokenDelta]:
        """Take the step in. Raises RuntimeError if a row failed: then there is no result."""
        if result.errors:
            raise RuntimeError(f"rows of the benchmark failed: {result.errors}")
        sampled, deltas = iter(result.sampled), []
        for request, num_tokens, samples in zip(
            self._in_flight, plan.num_tokens, plan.samples, strict=True
        ):
            request.num_computed += num_tokens
            if not samples:
                continue
            request.num_known += 1
            delta = TokenDelta(request.source.request_id, [next(sampled)])
            if request.num_known == request.num_total:
                delta.finish_reason = "length"
                self._running.remove(request)
                self._ended.append(request)
            deltas.append(delta)
        self._in_flight = []
        if not self._has_static_batches:
            self._release_ended()
            return deltas
        self._held_deltas += deltas
        if self._running:
            return []
        self._release_ended()
        deltas, self._held_deltas = self._held_deltas, []
        return deltas

    def _admit(self, plan: StepPlan) -> None:
        self._num_unreachable = 0
        while self._waiting and self._free_rows:
            request = self._waiting[0]
            blocks = self._ranges.take(request.num_asked)
            if blocks is None:
                if self._ranges.num_free >= request.num_asked:
                    self._num_unreachable = self._ranges.num_free
                return
            self._waiting.popleft()
            request.blocks = blocks
            self._num_rounded += len(blocks) - request.num_asked
            request.row = self._free_rows.pop()
            self._running.append(request)
            plan.new_rows.append(_new_row(request))

    def _release_ended(self) -> None:
        for request in self._ended:
            self._ranges.give_back(request.blocks)
            self._num_rounded -= len(request.blocks) - request.num_asked
            self._free_rows.append(request.row)
            self._freed_rows.append(request.row)
        self._ended.clear()


def _new_row(request: _Request) -> NewRow:
    source = request.source
    return NewRow(
        row=request.row,
        request_id=source.request_id,
        token_ids=source.prompt_token_ids,
        num_prompt_tokens=len(source.prompt_token_ids),
        num_computed_tokens=0,
        block_ids=[list(request.blocks[: request.num_asked])],
        sampling=source.sampling,
    )
