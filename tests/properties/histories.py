"""A machine of random histories: everything that can happen to a scheduler, in any order.

The slow, obvious twin has two parts. The scripted executor knows what each KV entry must be and
raises for any other. `solo_answer` and `solo_beams` compute each answer as if nothing else existed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import pytest
from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from octavo.contracts.request import BeamSpec, EngineRequest
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan
from octavo.engine.beam_search import num_blocks_of_beams
from octavo.scheduling.request import Request
from tests.support.beam_twin import solo_beams
from tests.support.builders import Rig, make_request, make_rig, solo_answer
from tests.support.dict_tier import DictTier

VOCAB_SIZE = 6  # few tokens, so that stop ids are met and answers repeat each other
SPECULATION = (  # one that guesses often and far, and a careful one
    '{"method": "ngram", "num_speculative_tokens": 6, "prompt_lookup_max": 3, '
    '"prompt_lookup_min": 1}',
    '{"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}',
)
PREFILL_S, DECODE_S, BLOCK_S = 0.001, 0.01, 0.002  # what a step claims to take


def script(request_id: str, token_ids: Sequence[int], _num_prompt_tokens: int) -> int:
    """The next token; choices of one prompt differ, others answer equal prompts alike.

    Half of the tokens are those of three places before, so that guesses are often right.
    """
    choice = request_id.partition("/")[2]
    number = hash((crc32(choice.encode()), *token_ids))
    if number % 2 and len(token_ids) > 2:
        return token_ids[-3]
    return number // 2 % VOCAB_SIZE


def candidates(token_ids: Sequence[int], count: int) -> list[tuple[int, float]]:
    """Log-probabilities of a small vocabulary that depend on all tokens."""
    logits = [hash((7, token_id, *token_ids)) % 1000 / 250 for token_id in range(3 * VOCAB_SIZE)]
    log_sum = math.log(sum(math.exp(one) for one in logits))
    best = sorted(enumerate(logits), key=lambda one: -one[1])[:count]
    return [(token_id, logit - log_sum) for token_id, logit in best]


class Form:
    """A constraint that lets only the script's next token pass, and ends after some.

    A token that is told twice, or never, makes the next mask a wrong one.
    """

    def __init__(self, request: EngineRequest, length: int) -> None:
        self._request_id = request.request_id
        self._token_ids = list(request.prompt_token_ids)
        self._num_prompt_tokens = len(self._token_ids)
        self._num_left = length

    def mask(self) -> bytes:
        wanted = script(self._request_id, self._token_ids, self._num_prompt_tokens)
        return (1 << wanted).to_bytes(4, "little")

    def accept(self, token_id: int) -> bool:
        self._token_ids.append(token_id)
        self._num_left -= 1
        return self._num_left == 0


prompts = st.builds(
    lambda shared, own: list(range(shared)) + own,
    st.sampled_from([0, 5, 8, 9, 9, 13]),
    st.lists(st.integers(0, 1), min_size=1, max_size=4),
)
beams = st.builds(
    lambda width, num_returned, **fields: BeamSpec(
        beam_width=width, num_returned=min(width, num_returned), **fields
    ),
    st.integers(1, 4),
    st.integers(1, 4),
    length_penalty=st.sampled_from([1.0, 0.0, 2.0, -1.0]),
    early_stopping=st.sampled_from([False, True, "never"]),
)
requests = st.fixed_dictionaries(
    {
        "prompt": prompts,
        "max_tokens": st.integers(1, 12),
        "eos_token_ids": st.sampled_from([[], [], [5]]),
        "stop_token_ids": st.sampled_from([[], [], [4], [4, 5]]),
        "priority": st.integers(0, 2),
        "cache_salt": st.sampled_from([None, None, None, "salt", "pepper"]),
        "tenant": st.sampled_from(["", "", "one", "two"]),
        "wants_prompt_logprobs": st.sampled_from([False, False, False, True]),
        "num_choices": st.sampled_from([1, 1, 1, 2, 3, 5]),
        "beam": st.one_of(st.none(), st.none(), st.none(), beams),
        "timeout_s": st.sampled_from([None, None, None, None, 0.05, 0.5]),
        "form_length": st.sampled_from([None, None, None, 1, 3, 8]),
    }
)
engines = st.fixed_dictionaries(
    {
        "num_tokens": st.integers(12, 64),  # of the pool, in one group
        "block_size": st.sampled_from([1, 2, 4]),
        "max_num_batched_tokens": st.integers(1, 24),
        "max_num_seqs": st.integers(1, 6),
        "scheduling_policy": st.sampled_from(["fcfs", "priority", "fair"]),
        "enable_chunked_prefill": st.booleans(),
        "enable_prefix_caching": st.sampled_from([True, True, True, False]),
        "preemption_mode": st.sampled_from(["recompute", "swap", "swap", "auto"]),
        "num_host_slots": st.sampled_from([0, 3, 20]),
        "windows": st.sampled_from(
            [(0,), (0,), (0, 6), (5,), (0, 3, 3), (0, -1), (0, -3), (-1,), (0, 6, -2)]
        ),
        "max_decode_slowdown": st.sampled_from([0.0, 1.7]),
        "speculative_config": st.sampled_from([None, *SPECULATION]),
    }
)


class Histories(RuleBasedStateMachine):
    """Add, abort, step and let time pass in any order; judge every answer at the end."""

    rig: Rig

    @initialize(
        options=engines,
        has_tier=st.sampled_from([False, False, True]),
        several=st.lists(requests, min_size=2, max_size=6),
    )
    def start(self, options: dict[str, Any], has_tier: bool, several: list[dict[str, Any]]) -> None:
        options = dict(options)
        block_size, num_tokens = options["block_size"], options.pop("num_tokens")
        num_blocks = min(64, len(options["windows"]) * num_tokens // block_size)
        has_states = min(options["windows"]) < 0
        if has_states:  # guesses are refused there
            options["speculative_config"] = None
            options["enable_prefix_caching"] = False
        self.has_tier = has_tier and options["num_host_slots"] > 0 and not has_states
        tier = DictTier if self.has_tier else None
        self.rig = make_rig(script, candidates, num_blocks=num_blocks, tier=tier, **options)
        self.is_cached = options["enable_prefix_caching"]
        self.requests: dict[str, EngineRequest] = {}
        self.form_lengths: dict[str, int] = {}  # of requests whose answers have a form
        self.may_fail: set[str] = set()  # a fault was injected for it
        self.aborted: set[str] = set()
        self.colours: dict[int, tuple[str | None, str]] = {}  # of blocks: salt and tenant
        self.slot_colours: dict[int, tuple[str | None, str]] = {}
        self.add(several)

    @rule(several=st.lists(requests, min_size=1, max_size=4))
    def add(self, several: list[dict[str, Any]]) -> None:
        for fields in several:
            self._add(dict(fields))

    def _add(self, fields: dict[str, Any]) -> None:
        wants_prompt_logprobs = fields.pop("wants_prompt_logprobs")
        num_choices, timeout_s = fields.pop("num_choices"), fields.pop("timeout_s")
        form_length = None if fields["beam"] else fields["form_length"]
        del fields["form_length"]
        if fields["beam"] is not None:
            num_choices, wants_prompt_logprobs = 1, False
        deadline_s = None if timeout_s is None else self.rig.now_s + timeout_s
        first_id = f"r{len(self.requests)}"
        for choice in range(num_choices):
            request = make_request(
                f"{first_id}/{choice}" if choice else first_id,
                sampling=SamplingSpec(num_prompt_logprobs=0 if wants_prompt_logprobs else -1),
                skip_prefix_cache=wants_prompt_logprobs,
                fork_of=first_id if choice else None,
                arrival_s=self.rig.now_s,
                deadline_s=deadline_s,
                **fields,
            )
            self.requests[request.request_id] = request
            if form_length is None:
                self.rig.add(request)
            else:
                self.form_lengths[request.request_id] = form_length
                self.rig.add(request, constraint=Form(request, form_length))

    @rule(count=st.integers(1, 8))
    def step(self, count: int) -> None:
        for _ in range(count):
            self._finish_step(self._plan())

    def _plan(self) -> StepPlan:
        plan = self.rig.plan()
        self._judge(plan)
        return plan

    def _finish_step(self, plan: StepPlan) -> None:
        num_moved = len(plan.swap_out_to) + len(plan.swap_in_to)
        compute_s = DECODE_S + PREFILL_S * plan.total_tokens
        self.rig.finish_step(plan)
        self.rig.now_s += compute_s + BLOCK_S * num_moved
        if plan.rows:
            self.rig.scheduler.note_step(plan, compute_s, BLOCK_S * num_moved)

    @rule(seconds=st.sampled_from([0.01, 0.3]))
    def time_passes(self, seconds: float) -> None:
        self.rig.now_s += seconds

    @precondition(lambda self: self.rig.scheduler.requests)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self._abort(data.draw(st.sampled_from(sorted(self.rig.scheduler.requests))))

    @precondition(lambda self: self.rig.scheduler.requests)
    @rule(data=st.data())
    def abort_while_a_step_runs(self, data: st.DataObject) -> None:
        self._step_with_abort(data)

    def _step_with_abort(self, data: st.DataObject, *, aborted_row_fails: bool = False) -> None:
        plan = self._plan()
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

    @precondition(lambda self: self.has_tier)
    @rule()
    def the_tier_loses_a_block(self) -> None:
        tier = self.rig.executor.kv_tier()
        assert isinstance(tier, DictTier)
        tier.lost.update(list(tier.kept)[:1])

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        scheduler, num_steps, num_idle = self.rig.scheduler, 0, 0
        while scheduler.has_work():
            num_deltas = len(self.rig.deltas)
            plan = self._plan()
            self._finish_step(plan)
            # A plan may be empty once: the row for which prompts were held back had to yield.
            has_progress = bool(plan.rows) or len(self.rig.deltas) > num_deltas
            num_idle = 0 if has_progress else num_idle + 1
            assert num_idle < 3, f"stuck: {scheduler.requests}"
            num_steps += 1
            assert num_steps <= self._most_steps(), f"somebody starves: {scheduler.requests}"
        self._judge_end()
        for request in self.requests.values():
            self._judge_answer(request)
        self._report()

    def _most_steps(self) -> int:
        """A step for each token and beam, and ten times as many: others may make it begin again."""
        needed = sum(
            len(one.prompt_token_ids) + one.max_tokens * (one.beam.beam_width if one.beam else 1)
            for one in self.requests.values()
        )
        return 10 * (needed + 10)

    def _report(self) -> None:
        for end in self.rig.deltas:
            if end.finish_reason is not None:
                event(f"ended with {end.finish_reason}")
        counters = self.rig.scheduler.counters
        event(f"preemptions: {min(counters.num_preemptions, 3)}")
        event(f"swaps: {min(counters.num_swaps, 3)}")
        event(f"copies: {counters.num_blocks_copied > 0}")
        event(f"prefix hits: {counters.prefix_hit_tokens > 0}")
        event(f"drafts: {min(counters.num_draft_tokens, 3)}")
        event(f"accepted drafts: {min(counters.num_accepted_tokens, 3)}")

    # ---- what must hold

    def _judge(self, plan: StepPlan) -> None:
        """Salts and tenants separate, and nothing is read that should not be."""
        for sources, targets, source_ids, target_ids in (
            (self.colours, self.slot_colours, plan.swap_out_from, plan.swap_out_to),
            (self.slot_colours, self.colours, plan.swap_in_from, plan.swap_in_to),
            (self.colours, self.colours, plan.copy_from, plan.copy_to),
        ):
            for source, target in zip(source_ids, target_ids, strict=True):
                targets[target] = sources.get(source, ("?", "?"))
        if plan.rows:
            for holder in self.rig.scheduler.in_flight:
                self._colour(holder)
        for new in plan.new_rows:
            self._judge_new_row(new)

    def _colour(self, holder: Request) -> None:
        """The blocks that a request writes in this step have its colour."""
        request, block_size = self.requests[holder.id], self.rig.scheduler.kv.block_size
        for ids in holder.table.block_ids:
            for block_id in ids[holder.num_computed_tokens // block_size :]:
                self.colours[block_id] = (request.cache_salt, request.tenant)

    def _judge_new_row(self, new: NewRow) -> None:
        request = self.requests[new.request_id]
        is_first_time = not self.rig.scheduler.requests[new.request_id].num_preemptions
        is_alone = request.fork_of is None and request.beam is None
        if is_first_time and is_alone and (request.skip_prefix_cache or not self.is_cached):
            assert new.num_computed_tokens == 0
        block_size = self.rig.scheduler.kv.block_size
        if self.has_tier:
            return  # nobody tells which colour the tier's blocks have
        for ids in new.block_ids:
            for block_id in ids[: -(-new.num_computed_tokens // block_size)]:
                colour = (request.cache_salt, request.tenant)
                assert block_id < 0 or self.colours[block_id] == colour, new

    def _judge_end(self) -> None:
        """Nothing is left: no block, slot, row, family or entry."""
        scheduler = self.rig.scheduler
        assert scheduler.kv.num_used_blocks == 0
        assert scheduler.rows.num_free == scheduler.rows.num_rows
        assert not list(scheduler.roster.families)
        assert not len(scheduler.waiting)
        assert not len(scheduler.running)
        if scheduler.kv.link is not None:
            scheduler.kv.link.poll()
        assert scheduler.kv.slots.num_used == 0

    def _judge_answer(self, request: EngineRequest) -> None:
        end = self.rig.end_of(request.request_id)
        if end.finish_reason == "abort":
            has_timed_out = end.stop_reason == "timeout" and request.deadline_s is not None
            assert request.request_id in self.aborted or has_timed_out
        elif end.finish_reason == "error":
            self._judge_error(request, end.error or "")
        elif request.beam is not None:
            assert end.beams is not None
            expected = solo_beams(request, candidates)
            assert [tokens for tokens, _ in expected] == [one.token_ids for one in end.beams]
            assert [score for _, score in expected] == pytest.approx(
                [one.score for one in end.beams]
            )
            return
        if request.beam is not None:
            return
        answer, finish_reason = solo_answer(request, script)
        form_length = self.form_lengths.get(request.request_id)
        if form_length is not None and len(answer) >= form_length:
            answer, finish_reason = answer[:form_length], "stop"
        actual = self.rig.tokens_of(request.request_id)
        assert answer[: len(actual)] == actual
        if end.finish_reason not in {"abort", "error"}:
            assert (answer, finish_reason) == (actual, end.finish_reason)
            self._judge_prompt_logprobs(request)

    def _judge_error(self, request: EngineRequest, error: str) -> None:
        """Only for an injected fault, a deadline, or a request too large for the engine."""
        if request.request_id in self.may_fail:
            return
        if request.deadline_s is not None and "timeout" in error:
            return
        kv, width = self.rig.scheduler.kv, request.beam.beam_width if request.beam else 1
        num_blocks = num_blocks_of_beams(
            kv.kv_plan, width, len(request.prompt_token_ids), request.max_tokens
        )
        fits = num_blocks <= kv.num_blocks
        has_rows = width <= self.rig.scheduler.rows.num_rows
        assert not (fits and has_rows), error

    def _judge_prompt_logprobs(self, request: EngineRequest) -> None:
        """The first choice sends them once each, even if it was preempted."""
        is_wanted = request.sampling.num_prompt_logprobs >= 0 and request.fork_of is None
        wanted = request.prompt_token_ids[1:] if is_wanted else []
        entries = self.rig.prompt_logprobs_of(request.request_id)
        assert wanted == [entry.token_ids[0] for entry in entries]

    def _abort(self, request_id: str) -> None:
        if self.rig.abort(request_id):
            self.aborted.add(request_id)

    def _inject(self, request_id: str) -> None:
        self.may_fail.add(request_id)
        self.rig.executor.fail_row(request_id, "injected")


class FaultyHistories(Histories):
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
        plan = self._plan()
        if not plan.rows:
            return
        self.may_fail.update(one.id for one in self.rig.scheduler.running)
        self.rig.executor.fail_run(RuntimeError("lost"), before_changes=before_changes)
        with pytest.raises(RuntimeError, match="lost"):
            self.rig.run(plan)
        self.rig.fail_step(plan, "lost")
