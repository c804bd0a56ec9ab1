"""Random request streams: whatever happens to its neighbours, a request gets its solo answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from octavo.contracts.request import EngineRequest
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan
from octavo.executor.scripted import hash_of_history
from tests.support.builders import Rig, make_request, make_rig, solo_answer

SCRIPT = hash_of_history(6)  # few tokens, so that stop ids are met and answers repeat each other
SALTS = (None, None, None, "salt", "pepper")

prompts = st.builds(
    lambda shared, own: list(range(shared)) + own,
    st.sampled_from([0, 5, 9, 9, 13]),
    st.lists(st.integers(0, 1), min_size=1, max_size=4),
)
requests = st.fixed_dictionaries(
    {
        "prompt": prompts,
        "max_tokens": st.integers(1, 12),
        "eos_token_ids": st.sampled_from([[], [], [5]]),
        "stop_token_ids": st.sampled_from([[], [], [4], [4, 5]]),
        "priority": st.integers(0, 2),
        "cache_salt": st.sampled_from(SALTS),
        "wants_prompt_logprobs": st.sampled_from([False, False, False, True]),
    }
)
engines = st.fixed_dictionaries(
    {
        "num_tokens": st.integers(12, 48),  # of the pool
        "block_size": st.sampled_from([1, 2, 4]),
        "max_num_batched_tokens": st.integers(1, 24),
        "max_num_seqs": st.integers(1, 5),
        "scheduling_policy": st.sampled_from(["fcfs", "priority"]),
        "enable_chunked_prefill": st.booleans(),
        "enable_prefix_caching": st.sampled_from([True, True, True, False]),
    }
)


class RequestStreams(RuleBasedStateMachine):
    """Add, abort, step and break things in any order; judge every answer at the end."""

    rig: Rig

    @initialize(options=engines, several=st.lists(requests, min_size=2, max_size=6))
    def start(self, options: dict[str, Any], several: list[dict[str, Any]]) -> None:
        options = dict(options)
        options["num_blocks"] = options.pop("num_tokens") // options["block_size"]
        self.rig = make_rig(SCRIPT, **options)
        self.is_cached = options["enable_prefix_caching"]
        self.requests: dict[str, EngineRequest] = {}
        self.may_fail: set[str] = set()  # a fault was injected for it
        self.aborted: set[str] = set()
        self.writer_salts: dict[int, str | None] = {}  # block id -> salt of its last writer
        self.add(several)

    @rule(several=st.lists(requests, min_size=1, max_size=4))
    def add(self, several: list[dict[str, Any]]) -> None:
        for fields in several:
            self._add(dict(fields))

    def _add(self, fields: dict[str, Any]) -> None:
        wants_prompt_logprobs = fields.pop("wants_prompt_logprobs")
        sampling = SamplingSpec(num_prompt_logprobs=0 if wants_prompt_logprobs else -1)
        request = make_request(
            f"r{len(self.requests)}",
            sampling=sampling,
            skip_prefix_cache=wants_prompt_logprobs,
            **fields,
        )
        self.requests[request.request_id] = request
        self.rig.add(request)

    @rule(count=st.integers(1, 8))
    def step(self, count: int) -> None:
        for _ in range(count):
            plan = self.rig.plan()
            self._judge(plan)
            self.rig.finish_step(plan)

    @precondition(lambda self: self.rig.scheduler.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self._abort(data.draw(st.sampled_from(sorted(self.rig.scheduler.requests))))

    @precondition(lambda self: self.rig.scheduler.requests)
    @rule(data=st.data())
    def abort_while_a_step_runs(self, data: st.DataObject) -> None:
        self._step_with_abort(data)

    def _step_with_abort(self, data: st.DataObject, *, aborted_row_fails: bool = False) -> None:
        plan = self.rig.plan()
        self._judge(plan)
        request_id = data.draw(st.sampled_from(sorted(self.rig.scheduler.requests) or [""]))
        if aborted_row_fails:
            self._inject(request_id)
        if plan.rows:
            result = self.rig.run(plan)
            self._abort(request_id)
            self.rig.commit(plan, result)

    @rule()
    def reset_prefix_cache(self) -> None:
        num_used = self.rig.scheduler.kv.num_used_blocks
        assert (num_used == 0) == self.rig.scheduler.reset_prefix_cache()

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        self.rig.finish()
        kv, rows = self.rig.scheduler.kv, self.rig.scheduler.rows
        assert kv.num_used_blocks == 0
        assert rows.num_free == rows.num_rows
        for request in self.requests.values():
            self._judge_answer(request)
            event(f"ended with {self.rig.end_of(request.request_id).finish_reason}")
        counters = self.rig.scheduler.counters
        event(f"preemptions: {min(counters.num_preemptions, 3)}")
        event(f"prefix hits: {counters.prefix_hit_tokens > 0}")

    # ---- what must hold

    def _judge(self, plan: StepPlan) -> None:
        """Salts separate, and nothing is read that should not be."""
        for one in self.rig.scheduler.in_flight:
            first_block = one.num_computed_tokens // self.rig.scheduler.kv.block_size
            for block_id in one.table.block_ids[first_block:]:
                self.writer_salts[block_id] = self.requests[one.id].cache_salt
        for new in plan.new_rows:
            self._judge_new_row(new)

    def _judge_new_row(self, new: NewRow) -> None:
        request = self.requests[new.request_id]
        if request.skip_prefix_cache or not self.is_cached:
            assert new.num_computed_tokens == 0
        block_size = self.rig.scheduler.kv.block_size
        for block_id in new.block_ids[0][: new.num_computed_tokens // block_size]:
            assert self.writer_salts[block_id] == request.cache_salt

    def _judge_answer(self, request: EngineRequest) -> None:
        request_id = request.request_id
        answer, finish_reason = solo_answer(request, SCRIPT)
        actual, end = self.rig.tokens_of(request_id), self.rig.end_of(request_id)
        if end.finish_reason == finish_reason:
            assert answer == actual
            self._judge_prompt_logprobs(request)
            return
        assert answer[: len(actual)] == actual
        if end.finish_reason == "abort":
            assert request_id in self.aborted
            return
        assert end.finish_reason == "error"
        num_computed = len(request.prompt_token_ids) + len(answer) - 1
        kv = self.rig.scheduler.kv
        fits = kv.num_blocks_for(num_computed) <= kv.num_blocks
        assert request_id in self.may_fail or not fits, end

    def _judge_prompt_logprobs(self, request: EngineRequest) -> None:
        wanted = request.prompt_token_ids[1:] if request.skip_prefix_cache else []
        entries = self.rig.prompt_logprobs_of(request.request_id)
        assert wanted == [entry.token_ids[0] for entry in entries]

    def _abort(self, request_id: str) -> None:
        if self.rig.abort(request_id):
            self.aborted.add(request_id)

    def _inject(self, request_id: str) -> None:
        self.may_fail.add(request_id)
        self.rig.executor.fail_row(request_id, "injected")


class FaultyRequestStreams(RequestStreams):
    """The same with an executor that fails: one row, or a whole step."""

    @precondition(lambda self: self.rig.scheduler.requests)
    @rule(data=st.data())
    def a_row_fails(self, data: st.DataObject) -> None:
        self._inject(data.draw(st.sampled_from(sorted(self.rig.scheduler.requests))))
        self.step(1)

    @precondition(lambda self: self.rig.scheduler.requests)
    @rule(data=st.data())
    def a_row_fails_and_is_aborted(self, data: st.DataObject) -> None:
        self._step_with_abort(data, aborted_row_fails=True)

    @precondition(lambda self: self.rig.scheduler.requests)
    @rule(before_changes=st.booleans())
    def a_step_fails(self, before_changes: bool) -> None:
        plan = self.rig.plan()
        self._judge(plan)
        if not plan.rows:
            return
        self.may_fail.update(one.id for one in self.rig.scheduler.running)
        self.rig.executor.fail_run(RuntimeError("lost"), before_changes=before_changes)
        with pytest.raises(RuntimeError, match="lost"):
            self.rig.run(plan)
        self.rig.fail_step(plan, "lost")


_SETTINGS = settings(
    max_examples=150,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestRequestStreams = RequestStreams.TestCase
TestRequestStreams.settings = _SETTINGS
TestFaultyRequestStreams = FaultyRequestStreams.TestCase
TestFaultyRequestStreams.settings = _SETTINGS
