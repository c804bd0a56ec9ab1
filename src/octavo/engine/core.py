"""Engine core: the loop body that joins deciding and computing.

Owns: one scheduler, one executor, the order plan -> run -> commit, what happens when a run fails.
Does not know: text, HTTP, threads. It is not thread-safe: one thread makes all calls.
Used by: the front ends in this package.

    plan = executor.start(report)
    core = EngineCore.around(config.scheduler, config.cache, executor, plan, clock)
    core.add_request(engine_request)
    while core.has_work():
        for delta in core.step(): ...

Every request that was added ends with exactly one delta that has a `finish_reason`, unless it was
aborted with `silent=True`. When EngineDeadError leaves `step` or `add_request`, the engine is over
and no further delta comes: the caller tells whoever waits for one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from octavo.config.engine import CacheConfig, SchedulerConfig
from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.contracts.grammar import ConstraintError, TokenConstraint
from octavo.contracts.kv_plan import MemoryPlan
from octavo.contracts.request import EngineRequest
from octavo.contracts.step import NewRow, StepPlan, StepResult
from octavo.contracts.tracing import StepTotals
from octavo.engine.grammars import Grammars
from octavo.engine.stats import EngineStats, StepStats, StepTimes, take_stats
from octavo.errors import EngineDeadError, InvalidRequestError, OverloadedError
from octavo.executor.base import Executor
from octavo.foundation.clock import Clock
from octavo.kvcache.manager import KVManager
from octavo.scheduling.scheduler import Scheduler

if TYPE_CHECKING:
    from octavo.engine.kv_events import KVEventPublisher

logger = logging.getLogger(__name__)

_TIER_POLL_S = 0.002  # between two looks at whether the tier has written a slot away
_TIER_PATIENCE_S = 30.0  # a disk that writes nothing for so long is given up at the end


class EngineCore:
    """One engine: requests go in, token deltas come out, one `step` at a time."""

    def __init__(
        self,
        scheduler: Scheduler,
        executor: Executor,
        memory_plan: MemoryPlan,
        clock: Clock,
        publisher: KVEventPublisher | None = None,
    ) -> None:
        """Join parts that are ready: `executor` has been started and answered `memory_plan`."""
        self._scheduler = scheduler
        self._executor = executor
        self._memory_plan = memory_plan
        self._clock = clock
        self._publisher = publisher
        self._grammars: Grammars | None = None
        self._times = StepTimes()
        self._admitted_s: dict[str, float] = {}  # of requests whose first delta is still to come
        self._totals_before: dict[str, StepTotals] = {}  # the same requests, where collected
        self._collects_totals = False
        self._death: EngineDeadError | None = None
        self._is_stopped = False

    @classmethod
    def around(
        cls,
        scheduler_config: SchedulerConfig,
        cache_config: CacheConfig,
        executor: Executor,
        memory_plan: MemoryPlan,
        clock: Clock,
        publisher: KVEventPublisher | None = None,
    ) -> Self:
        """Build the scheduler for the pool that a started executor could make: `memory_plan`.

        `publisher` is told what changes in the prefix cache, and closed by `stop`.
        """
        kv = KVManager(
            memory_plan.kv,
            enable_prefix_caching=cache_config.enable_prefix_caching,
            tier=executor.kv_tier() if cache_config.enable_prefix_caching else None,
            collects_events=publisher is not None,
        )
        scheduler = Scheduler(scheduler_config, kv, memory_plan.max_model_len)
        return cls(scheduler, executor, memory_plan, clock, publisher)

    def use_grammars(self, grammars: Grammars) -> None:
        """What makes the constraints of requests with a grammar. Comes before the first of them."""
        self._grammars = grammars

    def collect_totals(self) -> None:
        """From now on deltas tell what steps took."""
        self._collects_totals = True

    @property
    def memory_plan(self) -> MemoryPlan:
        """How memory was divided; `octavo.scheduling.admission.check_fits` takes its `kv`."""
        return self._memory_plan

    @property
    def scheduler(self) -> Scheduler:
        """The deciding side, for those who look at it between two steps."""
        return self._scheduler

    def describe(self) -> str:
        """Where the model runs, for people."""
        return self._executor.describe()

    @property
    def last_step(self) -> StepStats | None:
        """The step that ran last; None before the first."""
        return self._times.last

    def require_room(self, requests: Sequence[EngineRequest], max_waiting: int) -> None:
        """Refuse requests that would make more than `max_waiting` wait for rows or blocks.

        They are the choices of a caller's request, to be added together. One that has more of them
        than ever may wait is not refused while nobody else waits, or, where nobody may wait, while
        nobody else runs: it would never come in.

        Where the policy puts them before others that wait and never ran, those leave the queue
        instead: their last delta has the seconds.

        Raises OverloadedError with the seconds after which there should be room, EngineDeadError.
        """
        self._raise_if_dead()
        if self._scheduler.roster.num_waiting + len(requests) <= max_waiting:
            return  # most requests need no closer look
        standing = self._scheduler.standing_with(requests)
        num_before, num_after = standing.num_before, standing.num_after
        if num_after <= max_waiting:
            return
        is_idle = not self._scheduler.requests
        if not num_before and (is_idle or 0 < max_waiting < len(requests)):
            return
        num_places = num_after - max_waiting
        wait_s = self._scheduler.estimate_wait_s(min(num_before, num_places))
        if self._scheduler.take_places(requests, standing, num_places, wait_s):
            return
        raise OverloadedError(
            f"{num_before} requests wait already, at most {max_waiting} may, and "
            f"{num_after - num_before} more would; try again later",
            retry_after_s=wait_s,
        )

    def add_request(self, request: EngineRequest) -> None:
        """Queue a request; its first delta comes from a later `step`.

        Lengths, ids and grammars were checked before. Raises InvalidRequestError for a `request_id`
        that is live already, EngineDeadError after the executor died.
        """
        self._raise_if_dead()
        if request.request_id in self._scheduler.requests:
            raise InvalidRequestError(
                f"a request with the id {request.request_id!r} is running; choose another id",
                param="request_id",
            )
        try:
            self._scheduler.add(request, self._constraint_of(request))
        except ConstraintError as error:
            message = f"structured_outputs cannot be enforced: {error}"
            raise InvalidRequestError(message, param="structured_outputs") from None

    def abort(
        self, request_id: str, *, reason: FinishReason = "abort", silent: bool = False
    ) -> bool:
        """End a request now, in whatever state it is. False if it is unknown or has ended already.

        Its row and blocks are free before the next plan. The next `step` returns a last delta
        without tokens and with `reason`. A front end that has composed the last output itself (a
        stop string matched: `reason="stop"`) asks for silence and gets no further delta.
        """
        if silent:
            self._admitted_s.pop(request_id, None)
            self._totals_before.pop(request_id, None)
        return self._scheduler.abort(request_id, reason, silent)

    def has_work(self) -> bool:
        """Whether `step` would do or return anything."""
        return self._scheduler.has_work()

    def step(self) -> list[TokenDelta]:
        """Plan, run and commit one step; the news of all requests that it touched.

        An error of one row ends that request with finish_reason "error". If `Executor.run` raises,
        all running requests end so and the engine goes on with the waiting ones; if what it raised
        is EngineDeadError, that leaves this method and every later call of it.
        """
        deltas = self._run_step()
        if self._admitted_s:  # empty while all that runs only decodes
            self._date_admissions(deltas)
        if self._collects_totals:
            self._add_totals(deltas)
        if self._publisher is not None:
            self._publisher.publish(self._scheduler.kv.take_events())
        return deltas

    def reset_prefix_cache(self, *, reset_external: bool = False) -> bool:
        """Forget all cached blocks. False, and nothing happens, while any block is in use.

        `reset_external` clears the disk tier as well, if there is one.
        """
        has_reset = self._scheduler.reset_prefix_cache(reset_external=reset_external)
        if self._publisher is not None:  # the next step may be far off
            self._publisher.publish(self._scheduler.kv.take_events())
        return has_reset

    def stats(self) -> EngineStats:
        """A snapshot from live state."""
        return take_stats(self._scheduler, self._times)

    def stop(self) -> None:
        """Stop the executor; the disk tier gets what it lacks first. May be called twice."""
        if self._death is None and not self._is_stopped:
            self._is_stopped = True
            self._flush_to_tier()
        self._executor.stop()
        if self._publisher is not None:
            self._publisher.close()

    def _constraint_of(self, request: EngineRequest) -> TokenConstraint | None:
        """A constraint of its own for each choice."""
        if request.grammar is None and request.thinking is None:
            return None
        assert self._grammars is not None, "use_grammars comes first"
        return self._grammars.constraint(request.grammar, request.thinking)

    def _run_step(self) -> list[TokenDelta]:
        self._raise_if_dead()
        now_s = self._clock.now_s
        begin_s = now_s()
        plan = self._scheduler.plan(begin_s)
        if not plan.rows:
            return self._scheduler.take_notices()
        if plan.new_rows:
            self._note_admissions(plan.new_rows, begin_s)
        computed_s = self._executor.compute_s
        try:
            result = self._executor.run(plan)
            _check_result(plan, result)
        except EngineDeadError as error:
            self._death = error
            raise
        except Exception as error:  # border: this step is lost, the engine goes on
            logger.exception("step failed", extra={"step_id": plan.step_id})
            return self._scheduler.fail_step(plan, f"the step failed: {error!r}")
        computed_s = self._executor.compute_s - computed_s
        self._scheduler.note_step(plan, computed_s, result.swap_s)
        deltas = self._scheduler.commit(plan, result)
        self._times.add(
            StepStats(
                num_rows=len(plan.rows),
                num_tokens=plan.total_tokens,
                python_s=now_s() - begin_s - computed_s,
                compute_s=computed_s,
                swap_s=result.swap_s,
                sample_s=result.sample_s,
            )
        )
        return deltas

    def _flush_to_tier(self) -> None:
        """Send down what the prefix cache holds and the tier lacks, for the next start."""
        progress_s = self._clock.now_s()
        try:
            while (plan := self._scheduler.plan_flush()) is not None:
                if plan.swap_out_to:
                    self._executor.run(plan)
                    self._scheduler.kv.commit()
                    progress_s = self._clock.now_s()
                elif self._clock.now_s() - progress_s > _TIER_PATIENCE_S:
                    logger.warning("the KV offload folder does not keep up; its rest is dropped")
                    return
                else:
                    time.sleep(_TIER_POLL_S)
        except Exception:  # border: a stop must come to its end
            logger.exception("the prefix cache was not written to the KV offload folder")

    def _note_admissions(self, new_rows: list[NewRow], now_s: float) -> None:
        """Remember since when requests run; one that comes back from a preemption is not new."""
        requests = self._scheduler.requests
        for new_row in new_rows:
            if not requests[new_row.request_id].num_preemptions:
                # The beams of a search enter one after the other under one id.
                self._admitted_s.setdefault(new_row.request_id, now_s)
                if self._collects_totals:
                    self._totals_before.setdefault(new_row.request_id, self._times.totals())

    def _date_admissions(self, deltas: list[TokenDelta]) -> None:
        """Put the time of the first admission into the first delta after it."""
        for delta in deltas:
            delta.admitted_s = self._admitted_s.pop(delta.request_id, None)

    def _add_totals(self, deltas: list[TokenDelta]) -> None:
        totals = self._times.totals()
        for delta in deltas:
            delta.totals = totals
            delta.totals_before = self._totals_before.pop(delta.request_id, None)

    def _raise_if_dead(self) -> None:
        if self._death is not None:
            raise EngineDeadError("the engine has stopped, see the cause") from self._death


def _check_result(plan: StepPlan, result: StepResult) -> None:
    """Refuse an answer that does not belong to the plan before anything is changed by it."""
    num_wanted = sum(plan.samples)
    if plan.draft_rows or result.accepted:
        num_wanted += sum(result.accepted)
    if len(result.accepted) != len(plan.draft_rows):
        raise RuntimeError(
            f"step {plan.step_id} has {len(plan.draft_rows)} rows with drafts, the executor tested "
            f"those of {len(result.accepted)}"
        )
    if result.step_id != plan.step_id or len(result.sampled) != num_wanted:
        raise RuntimeError(
            f"step {plan.step_id} wanted {num_wanted} tokens, the executor answered for step "
            f"{result.step_id} with {len(result.sampled)}"
        )
