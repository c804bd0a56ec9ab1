"""Random request streams: whatever happens to its neighbours, a request gets its solo answer."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
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
    st.integers(0, 14),
    st.lists(st.integers(0, 3), min_size=1, max_size=5),
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
        "num_blocks": st.integers(3, 14),
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

    @initialize(options=engines)
    def start(self, options: dict[str, Any]) -> None:
        self.rig = make_rig(SCRIPT, **options)
        self.is_cached = options["enable_prefix_caching"]
        self.requests: dict[str, EngineRequest] = {}
        self.may_fail: set[str] = set()  # a fault was injected for it
        self.aborted: set[str] = set()
        self.writer_salts: dict[int, str | None] = {}  # block id -> salt of its last writer
        self.first_admitted: list[str] = []

    @rule(fields=requests)
    def add(self, fields: dict[str, Any]) -> None:
        fields = dict(fields)
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
            self._judge(self.rig.step())

    @precondition(lambda self: self.rig.scheduler.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self._abort(data.draw(st.sampled_from(sorted(self.rig.scheduler.requests))))

    @precondition(lambda self: self.rig.scheduler.requests)
    @rule(data=st.data(), row_fails=st.booleans())
    def abort_while_a_step_runs(self, data: st.DataObject, row_fails: bool) -> None:
        plan = self.rig.plan()
        self._judge(plan)
        request_id = data.draw(st.sampled_from(sorted(self.rig.scheduler.requests) or [""]))
        if row_fails:
            self._inject(request_id)
        if not plan.rows:
            return
        result = self.rig.run(plan)
        self._abort(request_id)
        self.rig.commit(plan, result)

    @precondition(lambda self: self.rig.scheduler.requests)
    @rule(data=st.data())
    def a_row_fails(self, data: st.DataObject) -> None:
        self._inject(data.draw(st.sampled_from(sorted(self.rig.scheduler.requests))))
        self.step(1)

    @rule(before_changes=st.booleans())
    def a_step_fails(self, before_changes: bool) -> None:
        plan = self.rig.plan()
        self._judge(plan)
        if not plan.rows:
            return
        self.may_fail.update(one.id for one in self.rig.scheduler.running)
        self.rig.executor.fail_run(RuntimeError("lost"), before_changes=before_changes)
        try:
            self.rig.run(plan)
        except RuntimeError as error:
            self.rig.fail_step(plan, str(error))

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

    # ---- what must hold

    def _judge(self, plan: StepPlan) -> None:
        """Salts separate, and nothing is read that should not be."""
        by_row = {one.row: one for one in self.rig.scheduler.running}
        for new in plan.new_rows:
            self._judge_new_row(new)
        for row in plan.rows:
            salt = self.requests[by_row[row].id].cache_salt
            first_block = by_row[row].num_computed_tokens // self.rig.scheduler.kv.block_size
            for block_id in by_row[row].table.block_ids[first_block:]:
                self.writer_salts[block_id] = salt

    def _judge_new_row(self, new: NewRow) -> None:
        request = self.requests[new.request_id]
        if request.skip_prefix_cache or not self.is_cached:
            assert new.num_computed_tokens == 0
        block_size = self.rig.scheduler.kv.block_size
        for block_id in new.block_ids[: new.num_computed_tokens // block_size]:
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


TestRequestStreams = RequestStreams.TestCase
TestRequestStreams.settings = settings(
    max_examples=200,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
