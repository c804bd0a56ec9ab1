"""Scheduler: who runs next.

Owns: the order of a plan and of a commit, the step in flight.
Does not know: time, text, what computes. It raises nothing for what a request contains.
Used by: engine.core.

    plan()     running requests in policy order: one token each for those that decode, a chunk for
               those that catch up; a missing block is taken from the last one (preemption.py)
               then waiting ones in policy order (admission.py), up to the first that does not fit
               then guesses of the next tokens of those that decode (drafts.py), in what is left
    commit()   errors of rows first; then append tokens, test for the end, make deltas (outcome.py)

There is no prefill phase and no decode phase: a new prompt, a chunk, a prefix hit, a resumed
request and a decoding one differ only in how many of their known tokens are not computed yet.
`invariants.check` holds between any two calls.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from octavo.config.engine import SchedulerConfig
from octavo.config.speculative import parse_speculative
from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.contracts.grammar import TokenConstraint
from octavo.contracts.request import EngineRequest
from octavo.contracts.step import StepPlan, StepResult
from octavo.kvcache.manager import KVManager
from octavo.scheduling.admission import (
    LookAhead,
    admit,
    num_owed_blocks,
    num_owed_rows,
    num_spare_blocks,
    reason_against_ever,
)
from octavo.scheduling.beams import BeamGrowth, open_search, reason_against_search
from octavo.scheduling.budget import StepBudget
from octavo.scheduling.chunks import open_budget
from octavo.scheduling.deadlines import Deadlines
from octavo.scheduling.drafts import Drafts
from octavo.scheduling.fair import Shares
from octavo.scheduling.forecast import Forecast, Load
from octavo.scheduling.guide import Guide
from octavo.scheduling.outcome import move_on, settle_errors
from octavo.scheduling.outlook import Standing, standing_with
from octavo.scheduling.pacing import MeasuredSpeed
from octavo.scheduling.places import GAVE_WAY, who_gives_way
from octavo.scheduling.plan_builder import PlanBuilder
from octavo.scheduling.policy import find_policy
from octavo.scheduling.preemption import Preemption, victims_of_arrival
from octavo.scheduling.queues import RequestQueue
from octavo.scheduling.request import Family, Request, Status
from octavo.scheduling.roster import Roster, last_delta

_NUM_SAMPLED = 32  # waiting requests that tell how long the prompts of all of them are


class Scheduler:
    """Calls: `add` and `abort` at any time; `plan`, then `commit` or `fail_step`, in turn."""

    def __init__(self, config: SchedulerConfig, kv: KVManager, max_model_len: int) -> None:
        # Every running request needs a token in every step, so the budget caps them too.
        num_rows = min(config.max_num_seqs, config.max_num_batched_tokens)
        self.kv = kv
        self._policy = find_policy(config.scheduling_policy)
        self.shares = Shares() if self._policy.shares_by_tenant else None
        if self.shares is not None:
            self.roster = Roster(kv, num_rows, self.shares.waiting, self.shares.running)
        else:
            self.roster = Roster(kv, num_rows, RequestQueue(), RequestQueue())
        self.waiting = self.roster.waiting
        self.running = self.roster.running
        self.rows = self.roster.rows
        self.requests = self.roster.requests  # live ones, by id
        self.counters = self.roster.counters
        self.in_flight: list[Request] = []  # parallel to the rows of the plan being run
        self.speed = MeasuredSpeed()
        self._forecast = Forecast(self.speed)
        self._was_idle = True  # nothing was live at some time since the last plan
        self._deadlines = Deadlines(self.roster, self.speed)
        self._preemption = Preemption(config.preemption_mode, self.roster, self.speed)
        lookup = parse_speculative(config.speculative_config)
        self._drafts = Drafts(lookup, kv, self.speed) if lookup is not None else None
        if lookup is not None:
            self.counters.num_accepted_by_place = [0] * lookup.num_drafts
        self._searches: list[Request] = []  # that run, while the plan in the making admits
        self._completed: list[Request] = []  # leaders whose prompt the plan in the making completes
        self._config = config
        self._max_model_len = max_model_len
        self._num_added = 0
        self._num_planned = 0

    def has_work(self) -> bool:
        """Whether a request is live or a last delta waits to be taken."""
        return self.roster.has_work()

    def add(self, source: EngineRequest, constraint: TokenConstraint | None = None) -> None:
        """Put a request into the waiting queue. Its id must not be live.

        `constraint` is at the beginning of its answer. Raises ConstraintError if it cannot be
        followed.
        """
        guide = None if constraint is None else Guide(constraint)
        assert source.request_id not in self.requests, f"{source.request_id} is live"
        assert source.prompt_token_ids, f"{source.request_id} has an empty prompt"
        self._was_idle = self._was_idle or not self.requests
        order = self._policy.sort_key(source, self._num_added)
        self._num_added += 1
        request = Request(source, order, self._max_model_len, self.kv)
        request.guide = guide
        if self._drafts is not None and guide is None:
            request.drafting = self._drafts.open(source)
        if source.beam is not None:
            open_search(source, request, self.kv)
        first_id = source.fork_of
        if first_id is not None:  # the first choice sends what is known of the prompt
            request.sampling = replace(source.sampling, num_prompt_logprobs=-1)
        if first_id is not None and self.requests.get(first_id) in self.in_flight:
            first_id = None  # too late to share the computing of the prompt
        self.roster.add(request, first_id)
        self._deadlines.watch(request)

    def abort(self, request_id: str, reason: FinishReason = "abort", silent: bool = False) -> bool:
        """End a request in any state. False if it is not live.

        Unless `silent`, `take_notices` gets a last delta. While a step with this request is in
        flight its row and blocks stay taken until the commit, which ignores its result.
        """
        request = self.requests.get(request_id)
        if request is None:
            return False
        if any(holder in self.in_flight for holder in request.holders):
            self.roster.end_in_flight(request, reason)
        else:
            self.roster.end(request, reason)
        if not silent:
            self.roster.notify(last_delta(request, reason))
        return True

    def take_notices(self) -> list[TokenDelta]:
        """The last deltas of requests that ended outside a commit, once."""
        return self.roster.take_notices()

    def plan(self, now_s: float = 0.0) -> StepPlan:
        """Decide what the next step computes, and reserve blocks for it. Starts nothing.

        `now_s` is the engine clock. A plan without `rows` is not in flight and is not committed:
        nothing was live, or what was live could not run even alone and has ended.
        """
        assert not self.in_flight, "the last plan was not committed"
        builder = PlanBuilder(self._num_planned)
        counters = self.counters
        totals = counters.num_ended, counters.num_generation_tokens
        self._forecast.note(now_s, *totals, was_idle=self._was_idle)
        self._was_idle = False
        self._deadlines.end_overdue(now_s)
        if self.shares is not None:
            self.shares.settle()
        if self.waiting and self.running:
            self._displace_for_arrival()
        budget = open_budget(self._config, self._policy, self.roster, self.speed)
        num_preemptions = counters.num_preemptions
        self._grow_running(builder, budget)
        num_grown = len(builder.requests)
        self._charge(builder, 0)
        # What a victim of a shortage gave back is not for those who pass it.
        may_pass = counters.num_preemptions == num_preemptions
        self._admit_waiting(builder, budget, LookAhead(may_pass=may_pass))
        if not builder.requests:
            return builder.plan  # moves that were decided wait for the next plan
        if self._drafts is not None and not budget.is_probe:
            self._add_drafts(builder, budget, num_grown)
        for leader in self._completed:
            self.roster.families.keep_snapshot(leader)
        self._completed.clear()
        self._num_planned += 1
        self.in_flight = builder.requests
        plan = builder.close(self.rows.take_freed(), self.kv.take_moves())
        self.counters.count_moves(plan)
        return plan

    def commit(self, plan: StepPlan, result: StepResult) -> list[TokenDelta]:
        """Take in what the planned step produced; the news of every request that it touched."""
        deltas = self.take_notices()
        if result.errors:
            deltas += settle_errors(self.roster, self.in_flight, plan, result.errors)
        self.kv.commit()
        move_on(self.roster, self.in_flight, plan, result, deltas)
        self.in_flight = []
        self.roster.release_aborted()
        return deltas

    def fail_step(self, plan: StepPlan, message: str) -> list[TokenDelta]:
        """The planned step failed as a whole: end all running requests with an error.

        Nobody knows how far the runner came, so the next plan frees all its rows again, and what
        the step moved is lost: who was swapped out by it computes again.
        """
        deltas = self.take_notices()
        for holder in self.in_flight:
            self.kv.forget(holder.table)
        self.kv.fail_step()
        self.in_flight = []
        self.roster.families.drop_all_snapshots()
        for request in list(self.running):
            deltas.append(self.roster.fail(request, message))
        self.roster.release_aborted()
        self.roster.forget_lost_swaps()
        self.rows.free_again(plan.freed_rows)
        return deltas

    def note_step(self, plan: StepPlan, compute_s: float, swap_s: float) -> None:
        """How long a step took: seconds of computing, and seconds of swaps (part of it or not)."""
        # A single token that does not sample is a chunk of a prompt.
        grants = zip(plan.num_tokens, plan.samples, strict=True)
        num_decode_rows = sum([num == 1 and samples for num, samples in grants])
        if plan.draft_rows:
            num_decode_rows += sum([1 + len(token_ids) for token_ids in plan.draft_token_ids])
        self.speed.note_step(
            plan.total_tokens - num_decode_rows,
            num_decode_rows,
            compute_s,
            len(plan.swap_out_to) + len(plan.swap_in_to),
            swap_s,
        )

    def standing_with(self, arrivals: Sequence[EngineRequest]) -> Standing:
        """How many choices wait for rows or blocks now, and how many would if `arrivals` came too.

        Those that only wait for the next steps do not count.
        """
        return standing_with(self.roster, arrivals)

    def take_places(
        self, arrivals: Sequence[EngineRequest], standing: Standing, num_places: int, wait_s: float
    ) -> bool:
        """End waiting requests that must give `num_places` to `arrivals`; False if none must.

        They are told to come again after `wait_s` seconds.
        """
        starting = standing.starting
        leaving = who_gives_way(self.roster, self._policy, arrivals, starting, num_places)
        for request in reversed(leaving):  # nobody is to lead a family that leaves
            self.roster.end(request, "abort")
            delta = last_delta(request, "abort")
            delta.error = GAVE_WAY
            delta.retry_after_s = wait_s
            self.roster.notify(delta)
        return bool(leaving)

    def estimate_wait_s(self, num_places: int = 1) -> float:
        """Seconds until so many of those that wait for rows or blocks will have found them."""
        some = self.waiting.upcoming(_NUM_SAMPLED)
        load = Load(
            num_waiting=len(some),
            num_waiting_tokens=sum([one.num_missing_tokens for one in some]),
            num_running=len(self.running),
        )
        return self._forecast.wait_s(load, num_places)

    def reset_prefix_cache(self, *, reset_external: bool = False) -> bool:
        """Forget all cached blocks. False, and nothing happens, while any block is in use.

        `reset_external` clears the disk tier as well, if there is one.
        """
        return self.kv.reset(resets_tier=reset_external)

    def plan_flush(self) -> StepPlan | None:
        """A plan of moves alone: findable blocks that the tier lacks go to host slots.

        For the end of an engine, with a commit of the KV manager after each. Without moves: wait
        for the tier to free slots. None when the tier has everything.
        """
        if self.kv.link is None:
            return None
        num_staged = self.kv.stage_unstored()
        if not num_staged and not self.kv.link.busy_slots:
            return None
        plan = PlanBuilder(self._num_planned).close([], self.kv.take_moves())
        self._num_planned += bool(plan.swap_out_to)
        return plan

    # ---- plan

    def _displace_for_arrival(self) -> None:
        """Make room for the first waiting request where others run that must yield to it."""
        arrival = self.waiting.first
        candidates = self._who_may_yield(arrival)
        if not candidates:
            return
        num_rows = self.rows.num_rows
        for victim in victims_of_arrival(arrival, candidates, self.running, self.kv, num_rows):
            self._preemption.send_away(victim)

    def _who_may_yield(self, arrival: Request) -> list[Request]:
        """Running requests that may be displaced at once, by the policy, in this order."""
        if self.shares is not None:
            return self.shares.who_may_yield(arrival)
        if not (self._policy.preempts_on_arrival and self._config.priority_preemption):
            return []
        if arrival.priority >= self.running.last.priority:
            return []
        return [one for one in reversed(self.running) if one.priority > arrival.priority]

    def _charge(self, builder: PlanBuilder, first: int) -> None:
        """Tenants pay for what was granted from entry `first` of the plan on."""
        if self.shares is not None:
            granted = zip(builder.requests[first:], builder.plan.num_tokens[first:], strict=True)
            for holder, num_tokens in granted:
                self.shares.charge(holder, num_tokens)

    def _add_drafts(self, builder: PlanBuilder, budget: StepBudget, num_grown: int) -> None:
        """What is left of the step tests guesses of the `num_grown` requests that ran before."""
        assert self._drafts is not None, "speculation is off"
        granted = self._drafts.add(builder, budget, num_grown, len(self.running))
        if self.shares is not None:
            for request, num_tokens in granted:
                self.shares.charge(request, num_tokens)

    def _grow_running(self, builder: PlanBuilder, budget: StepBudget) -> None:
        """Grant tokens to running requests, in order. Victims leave at the end of the queue."""
        block_size = self.kv.block_size
        for request in self.running:
            if request.search is not None:
                BeamGrowth(self.roster, self._preemption, builder, budget).grow(request.search)
                continue
            num_known = len(request.token_ids)
            if num_known - request.num_computed_tokens > 1:
                self._catch_up(request, builder, budget)
                continue
            budget.num_kept -= 1
            # Only the first and the last token of a block need anything from the KV manager, and
            # the first one after a fork.
            is_due = num_known % block_size <= 1 or request.table.is_forked
            if is_due and not self._extend(request, num_known, builder):
                continue
            builder.grant(request, 1)
            budget.spend(1)
            if request.family is not None and _leads(request):
                self._completed.append(request)
        for leader in list(self._completed):
            self._enter_twins(leader, builder)

    def _catch_up(self, request: Request, builder: PlanBuilder, budget: StepBudget) -> None:
        """Grant a chunk, but keep a token for each decoding row behind: none of them waits."""
        num_missing, num_computed = request.num_missing_tokens, request.num_computed_tokens
        sharer = budget.sharer_of(request)
        num_tokens = budget.next_chunk(num_missing, budget.num_kept, sharer)
        if not num_tokens:
            return
        end = self.kv.fitting(request.table, num_computed, num_computed + num_tokens)
        end = max(end, num_computed + 1)
        if not self._extend(request, end, builder):
            return
        budget.spend_on_prompt(end - num_computed, num_missing, sharer)
        if builder.grant(request, end - num_computed) and _leads(request):
            self._completed.append(request)

    def _extend(self, request: Request, end: int, builder: PlanBuilder) -> bool:
        """Blocks for the tokens up to `end`; False if `request` itself had to yield."""
        table, num_computed = request.table, request.num_computed_tokens
        edits = self.kv.reserve(table, num_computed, end)
        while edits is None:
            if not self._preemption.make_room_for(request):
                return False
            edits = self.kv.reserve(table, num_computed, end)
        builder.edit_table(request.row, edits)
        self.kv.announce(table, end)
        return True

    def _enter_twins(self, leader: Request, builder: PlanBuilder) -> None:
        """The other choices of a prompt that this step completes enter, as many as find room."""
        family = leader.family
        assert family is not None, f"{leader} leads nobody"
        num_free = self.kv.num_free_blocks - num_spare_blocks(self.kv, len(self.running))
        for twin in self.roster.families.complete(family):
            num_free -= self.kv.kv_plan.num_written_blocks  # of the next step
            if not self.rows.num_free or num_free < 0 or not self._may_go_first(twin):
                return
            table = self.kv.fork(leader.table, twin.token_ids)
            self.roster.start_fork(twin, table, leader.num_prompt_tokens)
            builder.enter(twin, leader.row)
            builder.grant(twin, 0)

    def _may_go_first(self, twin: Request) -> bool:
        """Whether a twin may enter before all that wait: sharing is worth more than arrival."""
        first = self.waiting.first
        if self.shares is not None:
            return self.shares.may_go_before(twin, first)
        return first.priority >= twin.priority

    def _admit_waiting(
        self, builder: PlanBuilder, budget: StepBudget, look_ahead: LookAhead
    ) -> None:
        """Let waiting requests run, in order; some that do not fit are passed (admission.py)."""
        if self.waiting:
            self._searches = [one for one in self.running if one.search is not None]
        while self.rows.num_free and budget.has_room_for_prompts:
            num_granted = len(builder.requests)
            request = look_ahead.next_of(self.waiting)
            if request is None:
                return
            reason = self._reason_against_ever(request)
            if reason is not None:
                self.roster.notify(self.roster.fail(request, reason))
            elif any(leader.family is request.family is not None for leader in self._completed):
                look_ahead.hold(request)  # the prompt's blocks have no content before the step
            elif self._admit(request, builder, budget):
                look_ahead.note_admission(request)
                self._charge(builder, num_granted)
            elif self.running:
                look_ahead.skip(request)
            elif not self._ease(request):
                if not self._admit(request, builder, budget, uses_cache=False):
                    look_ahead.skip(request)
                self._charge(builder, num_granted)

    def _reason_against_ever(self, request: Request) -> str | None:
        """Why this request cannot run even alone; None if it can."""
        if request.search is not None:
            reason = reason_against_search(request.search, self.kv, self.rows.num_rows)
            if reason is not None:
                return reason
        return reason_against_ever(request, self.kv)

    def _admit(
        self,
        request: Request,
        builder: PlanBuilder,
        budget: StepBudget,
        *,
        uses_cache: bool = True,
    ) -> bool:
        """Let one waiting request run in this step, if it fits."""
        if request.num_rows + num_owed_rows(self._searches) > self.rows.num_free:
            return False
        num_spare = num_spare_blocks(self.kv, len(self.running))
        family = request.family
        if family is not None and family.snapshot is not None and request.status is Status.WAITING:
            return self._admit_fork(request, family, num_spare, builder, budget)
        lead = request.lead
        if self.running and any(group.window for group in self.kv.groups):
            begun = [holder for one in self.running for holder in one.holders]
            num_spare += num_owed_blocks([lead, *begun], self.kv)
        num_missing = lead.num_missing_tokens
        num_tokens = admit(lead, self.kv, budget, num_spare, uses_cache=uses_cache)
        if not num_tokens:
            return False
        self.roster.start(request)
        if request.search is not None:
            self._searches.append(request)
        builder.enter(lead)
        budget.spend_on_prompt(num_tokens, min(num_missing, lead.num_missing_tokens))
        if builder.grant(lead, num_tokens) and _leads(request):
            self._completed.append(request)
            self._enter_twins(request, builder)
        return True

    def _admit_fork(
        self,
        request: Request,
        family: Family,
        num_spare: int,
        builder: PlanBuilder,
        budget: StepBudget,
    ) -> bool:
        """A choice that came too late for a twin computes the last token of the prompt again."""
        assert family.snapshot is not None, f"no snapshot for {request}"
        num_known = request.num_tokens
        table = self.kv.fork(family.snapshot, request.token_ids)
        has_room = self.kv.num_free_blocks > num_spare
        if not has_room or self.kv.reserve(table, num_known - 1, num_known) is None:
            self.kv.free(table)
            return False
        self.kv.announce(table, num_known)
        self.roster.start_fork(request, table, num_known - 1)
        builder.enter(request)
        builder.grant(request, 1)
        budget.spend(1)
        return True

    def _ease(self, request: Request) -> bool:
        """Nothing runs, and still `request` does not fit: give up what was kept for others."""
        return self.roster.families.drop_a_snapshot() or self.roster.drop_swapped(request)


def _leads(request: Request) -> bool:
    """Whether other choices wait for the end of its prompt."""
    return request.family is not None and request.family.leader is request
