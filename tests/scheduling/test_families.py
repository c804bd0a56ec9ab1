"""n choices of one prompt: computed once, every block shared, nobody left behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import pytest

from octavo.contracts.request import EngineRequest
from octavo.contracts.step import SamplingSpec
from octavo.scheduling.request import Status
from tests.scheduling.conftest import MakeRig
from tests.support.builders import Rig, make_request, solo_answer


def by_choice(request_id: str, token_ids: Sequence[int], _num_prompt_tokens: int) -> int:
    """Each choice goes its own way."""
    return hash((crc32(request_id.encode()), *token_ids)) % 50


def make_family(
    count: int, prompt: Sequence[int] = range(10), name: str = "a", **fields: Any
) -> list[EngineRequest]:
    """The first choice is called `name`, the others `name/1` and so on."""
    return [
        make_request(
            f"{name}/{place}" if place else name, prompt, fork_of=name if place else None, **fields
        )
        for place in range(count)
    ]


def judge(rig: Rig, family: list[EngineRequest]) -> None:
    for request in family:
        assert solo_answer(request, by_choice)[0] == rig.tokens_of(request.request_id)


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_the_others_enter_as_twins_with_the_same_blocks(
    new_rig: MakeRig, enable_prefix_caching: bool
):
    """The prompt is computed once: the twins compute nothing in that step, and sample."""
    rig = new_rig(by_choice, enable_prefix_caching=enable_prefix_caching)
    family = make_family(3)
    rig.add(*family)
    plan = rig.step()
    assert plan.num_tokens == [10, 0, 0]
    assert plan.samples == [True, True, True]
    assert [new.twin_row for new in plan.new_rows] == [-1, 0, 0]
    first, *twins = plan.new_rows
    assert all(first.block_ids == twin.block_ids for twin in twins)
    assert rig.scheduler.kv.num_used_blocks == 3
    rig.finish()
    judge(rig, family)


def test_the_first_write_into_a_shared_block_copies_it(new_rig: MakeRig):
    """Two of three copy the partial block; the last one has it for itself by then."""
    rig = new_rig(by_choice)
    rig.add(*make_family(3))
    rig.step()
    plan = rig.step()
    assert plan.num_tokens == [1, 1, 1]
    assert len(plan.copy_to) == 2
    assert rig.scheduler.kv.num_used_blocks == 2 + 3
    assert rig.step().copy_to == []


def test_a_prompt_of_whole_blocks_needs_no_copy(new_rig: MakeRig):
    rig = new_rig(by_choice)
    family = make_family(2, range(8))
    rig.add(*family)
    plans = rig.steps(3)
    assert [plan.copy_to for plan in plans] == [[], [], []]
    rig.finish()
    judge(rig, family)


def test_twins_wait_for_the_last_chunk_of_the_prompt(new_rig: MakeRig):
    rig = new_rig(by_choice, max_num_batched_tokens=4)
    family = make_family(3)
    rig.add(*family)
    assert [plan.num_tokens for plan in rig.steps(3)] == [[4], [4], [2, 0, 0]]
    rig.finish()
    judge(rig, family)


def test_held_choices_let_others_pass(new_rig: MakeRig):
    rig = new_rig(by_choice, max_num_batched_tokens=12)
    rig.add(*make_family(2, range(20)), make_request("b", [90], max_tokens=1))
    rig.steps(2)
    assert rig.end_of("b").finish_reason == "length"


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
def test_a_choice_without_a_row_forks_later_and_computes_one_token(
    new_rig: MakeRig, enable_prefix_caching: bool
):
    rig = new_rig(by_choice, max_num_seqs=2, enable_prefix_caching=enable_prefix_caching)
    family = make_family(3, max_tokens=2)
    rig.add(*family)
    assert rig.step().num_tokens == [10, 0]
    rig.step()
    plan = rig.step()
    assert [new.request_id for new in plan.new_rows] == ["a/2"]
    assert plan.num_tokens == [1]
    rig.finish()
    judge(rig, family)


def test_a_snapshot_goes_when_nobody_wants_it(new_rig: MakeRig):
    rig = new_rig(by_choice, max_num_seqs=1)
    rig.add(*make_family(2, max_tokens=3))
    rig.step()
    (family,) = rig.scheduler.roster.families
    assert family.snapshot is not None
    rig.abort("a/1")
    assert family.snapshot is None


def test_under_shortage_the_snapshot_goes_before_anybody_yields(new_rig: MakeRig):
    """Three blocks of prompt, shared with the snapshot; the pool has five."""
    rig = new_rig(by_choice, num_blocks=5, max_num_seqs=1)
    family = make_family(2, max_tokens=8)
    rig.add(*family)
    rig.finish()
    assert rig.scheduler.counters.num_preemptions == 0
    judge(rig, family)


@pytest.mark.parametrize("num_steps", [0, 1, 2])
def test_if_the_leader_is_aborted_the_next_one_leads(new_rig: MakeRig, num_steps: int):
    """Before its first step, in the middle of the prompt, and after it."""
    rig = new_rig(by_choice, max_num_batched_tokens=6)
    family = make_family(3)
    rig.add(*family)
    rig.steps(num_steps)
    rig.abort("a")
    rig.finish()
    judge(rig, family[1:])
    assert rig.end_of("a").finish_reason == "abort"


def test_a_leader_that_is_aborted_in_its_last_step_still_serves_the_twins(new_rig: MakeRig):
    rig = new_rig(by_choice)
    family = make_family(3)
    rig.add(*family)
    plan = rig.plan()
    rig.abort("a")
    rig.commit(plan, rig.run(plan))
    assert len(rig.tokens_of("a/1")) == 1
    rig.finish()
    judge(rig, family[1:])


def test_a_held_choice_can_be_aborted(new_rig: MakeRig):
    rig = new_rig(by_choice, max_num_batched_tokens=6)
    family = make_family(3)
    rig.add(*family)
    rig.step()
    assert rig.scheduler.roster.num_waiting == 2
    assert rig.abort("a/1")
    rig.finish()
    judge(rig, [family[0], family[2]])


def test_if_the_leaders_row_fails_the_twins_compute_the_prompt_themselves(new_rig: MakeRig):
    """They sampled from logits that nobody can trust."""
    rig = new_rig(by_choice)
    family = make_family(3)
    rig.add(*family)
    rig.executor.fail_row("a", "NaN")
    rig.step()
    assert rig.end_of("a").finish_reason == "error"
    assert rig.tokens_of("a/1") == []
    rig.finish()
    judge(rig, family[1:])


def test_a_failed_twin_ends_alone(new_rig: MakeRig):
    rig = new_rig(by_choice)
    family = make_family(3)
    rig.add(*family)
    rig.executor.fail_row("a/1", "NaN")
    rig.finish()
    assert rig.end_of("a/1").finish_reason == "error"
    judge(rig, [family[0], family[2]])


def test_only_the_first_choice_sends_prompt_logprobs(new_rig: MakeRig):
    rig = new_rig(by_choice)
    sampling = SamplingSpec(num_prompt_logprobs=0)
    rig.add(*make_family(2, sampling=sampling, skip_prefix_cache=True))
    assert rig.step().num_tokens == [10, 0]
    rig.finish()
    assert len(rig.prompt_logprobs_of("a")) == 9
    assert rig.prompt_logprobs_of("a/1") == []


def test_a_choice_that_comes_after_the_prompt_is_an_ordinary_request(new_rig: MakeRig):
    rig = new_rig(by_choice)
    family = make_family(2)
    rig.add(family[0])
    rig.step()
    rig.add(family[1])
    assert rig.step().new_rows[0].twin_row == -1
    rig.finish()
    judge(rig, family)


def test_a_choice_that_comes_while_the_prompt_is_computed_is_not_forgotten(new_rig: MakeRig):
    rig = new_rig(by_choice)
    family = make_family(2)
    rig.add(family[0])
    plan = rig.plan()
    rig.add(family[1])
    rig.commit(plan, rig.run(plan))
    rig.finish()
    judge(rig, family)


def test_a_choice_whose_first_is_gone_is_an_ordinary_request(new_rig: MakeRig):
    rig = new_rig(by_choice)
    family = make_family(2)
    rig.add(family[1])
    rig.finish()
    judge(rig, family[1:])


@pytest.mark.parametrize("preemption_mode", ["recompute", "swap"])
def test_members_are_preempted_like_anybody(new_rig: MakeRig, preemption_mode: str):
    rig = new_rig(by_choice, num_blocks=7, preemption_mode=preemption_mode, num_host_slots=12)
    family = make_family(3, max_tokens=12)
    rig.add(*family)
    rig.finish()
    assert rig.scheduler.counters.num_preemptions >= 1
    judge(rig, family)


def test_a_preempted_leader_keeps_the_others_waiting(new_rig: MakeRig):
    rig = new_rig(by_choice, num_blocks=5, scheduling_policy="priority", max_num_batched_tokens=8)
    family = make_family(2, range(12), priority=5)
    rig.add(*family)
    rig.step()
    rig.add(make_request("high", range(50, 62), priority=0))
    rig.step()
    assert rig.scheduler.requests["a"].status is Status.PREEMPTED
    rig.finish()
    judge(rig, family)


def test_windows_and_forks_go_together(new_rig: MakeRig):
    rig = new_rig(by_choice, num_blocks=32, windows=(0, 6))
    family = make_family(3, range(13), max_tokens=14)
    rig.add(*family)
    rig.finish()
    judge(rig, family)


def test_a_failed_step_ends_who_ran_and_the_held_ones_begin(new_rig: MakeRig):
    rig = new_rig(by_choice, max_num_batched_tokens=6)
    family = make_family(3)
    rig.add(*family)
    plan = rig.plan()
    rig.executor.fail_run(RuntimeError("lost"))
    with pytest.raises(RuntimeError):
        rig.run(plan)
    rig.fail_step(plan, "lost")
    assert rig.end_of("a").finish_reason == "error"
    rig.finish()
    judge(rig, family[1:])


def test_the_prompt_of_a_family_is_counted_once(new_rig: MakeRig):
    rig = new_rig(by_choice)
    rig.add(*make_family(3))
    rig.finish()
    assert rig.scheduler.counters.num_prompt_tokens == 10
