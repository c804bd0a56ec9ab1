"""Scheduler: who runs next.

Owns: all live requests, the waiting and the running queue, the rows, the step in flight.
Does not know: time, text, what computes. It raises nothing for what a request contains.
Used by: engine.core.

    plan()     running requests in policy order: one token each for those that decode, a chunk for
               those that catch up; a missing block is taken from the last one (preemption.py)
               then waiting ones in policy order (admission.py), up to the first that does not fit
    commit()   errors of rows first; then append tokens, test for the end (stop.py), make deltas

There is no prefill phase and no decode phase: a new prompt, a chunk, a prefix hit, a resumed
request and a decoding one differ only in how many of their known tokens are not computed yet.
`invariants.check` holds between any two calls.
"""

from __future__ import annotations

from octavo.config.engine import SchedulerConfig
from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.contracts.request import EngineRequest
from octavo.contracts.step import StepPlan, StepResult, TokenLogprobs
from octavo.kvcache.manager import KVManager
from octavo.scheduling.admission import admit, num_spare_blocks, reason_against_ever
from octavo.scheduling.budget import StepBudget
from octavo.scheduling.counters import Counters
from octavo.scheduling.plan_builder import PlanBuilder
from octavo.scheduling.policy import find_policy
from octavo.scheduling.preemption import victim_of_shortage, victims_of_arrival
from octavo.scheduling.queues import RequestQueue
from octavo.scheduling.request import Request, Status
from octavo.scheduling.rows import RowLedger
from octavo.scheduling.stop import finish_of


class Scheduler:
    """Calls: `add` and `abort` at any time; `plan`, then `commit` or `fail_step`, in turn."""

    def __init__(self, config: SchedulerConfig, kv: KVManager, max_model_len: int) -> None:
        self.kv = kv
        self.waiting = RequestQueue()
        self.running = RequestQueue()
        # Every running request needs a token in every step, so the budget caps them too.
        self.rows = RowLedger(min(config.max_num_seqs, config.max_num_batched_tokens))
        self.counters = Counters()
        self.requests: dict[str, Request] = {}  # live ones, by id
        self.in_flight: list[Request] = []  # parallel to the rows of the plan being run
        self._aborted_in_flight: list[Request] = []  # still hold row and blocks until the commit
        self._notices: list[TokenDelta] = []  # last deltas of requests that ended outside a commit
        self._config = config
        self._policy = find_policy(config.scheduling_policy)
        self._max_model_len = max_model_len
        self._num_added = 0
        self._num_planned = 0

    def has_work(self) -> bool:
        """Whether a request is live or a last delta waits to be taken."""
        return bool(self.requests or self._notices)

    def add(self, source: EngineRequest) -> None:
        """Put a request into the waiting queue. Its id must not be live."""
        assert source.request_id not in self.requests, f"{source.request_id} is live"
        assert source.prompt_token_ids, f"{source.request_id} has an empty prompt"
        order = self._policy.sort_key(source, self._num_added)
        self._num_added += 1
        request = Request(source, order, self._max_model_len, self.kv)
        self.requests[request.id] = request
        self.waiting.add(request)

    def abort(self, request_id: str, reason: FinishReason = "abort", silent: bool = False) -> bool:
        """End a request in any state. False if it is not live.

        Unless `silent`, `take_notices` gets a last delta. While a step with this request is in
        flight its row and blocks stay taken until the commit, which ignores its result.
        """
        request = self.requests.get(request_id)
        if request is None:
            return False
        if request in self.in_flight:
            self.running.remove(request)
            self._aborted_in_flight.append(request)
        else:
            self._leave_queue(request)
        self._close(request, reason)
        if not silent:
            self._notices.append(_last_delta(request, reason))
        return True

    def take_notices(self) -> list[TokenDelta]:
        """The last deltas of requests that ended outside a commit, once."""
        notices, self._notices = self._notices, []
        return notices

    def plan(self) -> StepPlan:
        """Decide what the next step computes, and reserve blocks for it. Starts nothing.

        A plan without `rows` is not in flight and is not committed: nothing was live, or what was
        live could not run even alone and has ended.
        """
        assert not self.in_flight, "the last plan was not committed"
        builder = PlanBuilder(self._num_planned)
        budget = StepBudget(self._config)
        if self._policy.preempts_on_arrival:
            self._displace_for_arrival()
        self._grow_running(builder, budget)
        self._admit_waiting(builder, budget)
        if builder.requests:
            self._num_planned += 1
            builder.plan.freed_rows = self.rows.take_freed()
            self.in_flight = builder.requests
        return builder.plan

    def commit(self, plan: StepPlan, result: StepResult) -> list[TokenDelta]:
        """Take in what the planned step produced; the news of every request that it touched."""
        deltas = self.take_notices()
        if result.errors:
            deltas += self._settle_errors(result.errors)
        self.kv.commit()
        self._commit_rows(plan, result, deltas)
        self.in_flight = []
        self._release_aborted()
        return deltas

    def fail_step(self, plan: StepPlan, message: str) -> list[TokenDelta]:
        """The planned step failed as a whole: end all running requests with an error.

        Nobody knows how far the runner came, so the next plan frees all its rows again.
        """
        deltas = self.take_notices()
        for request in self.in_flight:
            self.kv.retract(request.table)
            self.kv.forget(request.table)
        self.kv.commit()
        self.in_flight = []
        for request in list(self.running):
            deltas.append(self._fail(request, message))
        self._release_aborted()
        self.rows.free_again(plan.freed_rows)
        return deltas

    def reset_prefix_cache(self) -> bool:
        """Forget all cached blocks. False, and nothing happens, while any block is in use."""
        return self.kv.reset()

    # ---- plan

    def _displace_for_arrival(self) -> None:
        """Make room for the first waiting request where worse ones run."""
        if not (self.waiting and self.running):
            return
        arrival = self.waiting.first
        if arrival.priority >= self.running.last.priority:
            return
        for victim in victims_of_arrival(arrival, self.running, self.kv, self.rows.num_rows):
            self._preempt(victim)

    def _grow_running(self, builder: PlanBuilder, budget: StepBudget) -> None:
        """Grant tokens to running requests, in order. Victims leave at the end of the queue."""
        block_size = self.kv.block_size
        for request in self.running:
            num_known = len(request.token_ids)
            num_missing = num_known - request.num_computed_tokens
            if num_missing > 1:
                self._catch_up(request, num_missing, builder, budget)
                continue
            # Only the first and the last token of a block need anything from the KV manager.
            if num_known % block_size <= 1 and not self._extend(request, num_known, builder):
                continue
            builder.grant(request, 1)
            budget.spend(1)

    def _catch_up(
        self, request: Request, num_missing: int, builder: PlanBuilder, budget: StepBudget
    ) -> None:
        """Grant a chunk, but keep a token for each decoding request behind: none of them waits."""
        behind = self.running.after(request)
        num_decoding = sum([later.num_missing_tokens == 1 for later in behind])
        num_tokens = budget.next_chunk(num_missing, num_decoding)
        if not num_tokens:
            return
        self.kv.announce(request.table, request.num_computed_tokens + num_tokens)
        builder.grant(request, num_tokens)
        budget.spend(num_tokens)

    def _extend(self, request: Request, num_tokens: int, builder: PlanBuilder) -> bool:
        """Make the block table long enough; False if `request` itself had to yield."""
        table = request.table
        gained = self.kv.reserve(table, num_tokens)
        while gained is None:
            victim = victim_of_shortage(self.running)
            self._preempt(victim)
            if victim is request:
                return False
            gained = self.kv.reserve(table, num_tokens)
        builder.append_blocks(request.row, len(table.block_ids) - len(gained), gained)
        self.kv.announce(table, num_tokens)
        return True

    def _admit_waiting(self, builder: PlanBuilder, budget: StepBudget) -> None:
        """Let waiting requests run, strictly in order: the first that does not fit ends it."""
        while self.waiting and self.rows.num_free and budget.num_tokens_left:
            request = self.waiting.first
            reason = reason_against_ever(request, self.kv)
            if reason is not None:
                self._notices.append(self._fail(request, reason))
                continue
            num_spare = num_spare_blocks(self.kv, len(self.running))
            num_tokens = admit(request, self.kv, budget, num_spare)
            if not num_tokens:
                return
            self._start(request)
            builder.enter(request)
            builder.grant(request, num_tokens)
            budget.spend(num_tokens)

    # ---- commit

    def _commit_rows(self, plan: StepPlan, result: StepResult, deltas: list[TokenDelta]) -> None:
        """Move on every request of the step that is still running."""
        sampled, logprobs, running = iter(result.sampled), result.logprobs, Status.RUNNING
        has_extras = bool(logprobs or result.prompt_logprobs)
        num_deltas = len(deltas)
        for request, num_tokens, samples in zip(
            self.in_flight, plan.num_tokens, plan.samples, strict=True
        ):
            token_id = next(sampled) if samples else -1
            if request.status is not running:
                continue
            prompt_logprobs = None
            if has_extras:
                prompt_logprobs = _unsent(request, result.prompt_logprobs.get(request.row))
            request.num_computed_tokens += num_tokens
            if not samples:
                if prompt_logprobs:
                    deltas.append(_chunk_delta(request, prompt_logprobs))
                continue
            request.token_ids.append(token_id)
            finish = finish_of(request, token_id)
            delta = TokenDelta(request.id, [token_id], num_cached_tokens=request.num_cached_tokens)
            deltas.append(delta)
            if has_extras:
                entry = logprobs.get(request.row)
                delta.logprobs = None if entry is None else [entry]
                delta.prompt_logprobs = prompt_logprobs
            if finish is not None:
                delta.finish_reason, delta.stop_reason = finish
                self._end(request, finish.reason)
        self.counters.num_generation_tokens += sum(
            [len(delta.token_ids) for delta in deltas[num_deltas:]]
        )

    def _settle_errors(self, errors: dict[int, str]) -> list[TokenDelta]:
        """End the rows that failed, alone.

        What they announced for this step was not computed. A request that was admitted in this
        step may have matched it; that request is innocent and computes again. Owners stand before
        sharers in the plan, so one pass finds all.
        """
        deltas, lost = [], set[int]()
        for request in self.in_flight:
            message = errors.get(request.row)
            if message is None and lost.isdisjoint(request.table.block_ids):
                continue
            lost |= self.kv.retract(request.table)
            if message is not None:
                # A fault may come from bad KV entries: nobody else shall find them.
                self.kv.forget(request.table)
            if request.status is not Status.RUNNING:
                continue
            if message is None:
                self._preempt(request)
            else:
                deltas.append(self._fail(request, message))
        return deltas

    def _release_aborted(self) -> None:
        """Requests that were aborted during the step give row and blocks back."""
        for request in self._aborted_in_flight:
            self._release(request)
        self._aborted_in_flight.clear()

    # ---- moves of one request

    def _start(self, request: Request) -> None:
        """waiting -> running. The blocks are reserved."""
        if request.status is Status.WAITING:
            request.num_cached_tokens = request.num_computed_tokens
            self.counters.count_admission(request)
        self.waiting.remove(request)
        request.move_to(Status.RUNNING)
        request.row = self.rows.take()
        self.running.add(request)

    def _preempt(self, request: Request) -> None:
        """running -> waiting. Computed full blocks stay findable."""
        self.running.remove(request)
        self._release(request)
        request.move_to(Status.PREEMPTED)
        request.num_computed_tokens = 0
        request.num_preemptions += 1
        self.counters.num_preemptions += 1
        self.waiting.add(request)

    def _fail(self, request: Request, message: str) -> TokenDelta:
        """End a live request with an error."""
        self._leave_queue(request)
        self._close(request, "error")
        delta = _last_delta(request, "error")
        delta.error = message
        return delta

    def _end(self, request: Request, reason: FinishReason) -> None:
        """End a live request; the caller makes its last delta."""
        self._leave_queue(request)
        self._close(request, reason)

    def _leave_queue(self, request: Request) -> None:
        """Out of its queue; a running request gives row and blocks back."""
        if request.status is not Status.RUNNING:
            self.waiting.remove(request)
            return
        self.running.remove(request)
        self._release(request)

    def _release(self, request: Request) -> None:
        """Give row and blocks back."""
        self.kv.free(request.table)
        self.rows.give_back(request.row)
        del request.row

    def _close(self, request: Request, reason: FinishReason) -> None:
        """The request is not live any more."""
        request.move_to(Status.FINISHED)
        del self.requests[request.id]
        self.counters.num_finished[reason] += 1


def _last_delta(request: Request, reason: FinishReason) -> TokenDelta:
    return TokenDelta(
        request.id, [], finish_reason=reason, num_cached_tokens=request.num_cached_tokens
    )


def _unsent(request: Request, entries: list[TokenLogprobs] | None) -> list[TokenLogprobs] | None:
    """Prompt logprobs that the front end does not have: a resumed request computes some again.

    `entries` are for the prompt tokens after the first `num_computed_tokens + 1`.
    """
    if entries is None:
        return None
    first = request.num_computed_tokens  # entries[0] is for prompt token `first + 1`
    new = entries[max(0, request.num_prompt_logprobs_sent - first) :]
    request.num_prompt_logprobs_sent = max(request.num_prompt_logprobs_sent, first + len(entries))
    return new or None


def _chunk_delta(request: Request, prompt_logprobs: list[TokenLogprobs]) -> TokenDelta:
    """News of a request that computed a chunk of its prompt and sampled nothing."""
    return TokenDelta(
        request.id,
        [],
        prompt_logprobs=prompt_logprobs,
        num_cached_tokens=request.num_cached_tokens,
    )
