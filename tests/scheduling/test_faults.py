"""Aborts and errors: one request ends, its neighbours and the cache stay whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from octavo.contracts.delta import FinishReason
from octavo.contracts.step import UNANSWERABLE
from octavo.executor.scripted import hash_of_history
from tests.scheduling.conftest import MakeRig
from tests.support.builders import Rig, make_request, solo_answer

SCRIPT = hash_of_history(50)


def waiting(rig: Rig) -> None:
    """Not admitted yet."""


def running(rig: Rig) -> None:
    rig.steps(2)


def half_prefilled(rig: Rig) -> None:
    rig.step()
    (request,) = rig.scheduler.running
    assert 0 < request.num_computed_tokens < request.num_prompt_tokens


def preempted(rig: Rig) -> None:
    rig.step()
    rig.scheduler.roster.preempt(rig.scheduler.running.last)


@pytest.mark.parametrize(
    ("arrange", "budget"), [(waiting, 64), (running, 64), (half_prefilled, 4), (preempted, 64)]
)
def test_abort_is_legal_in_every_state(
    new_rig: MakeRig, arrange: Callable[[Rig], None], budget: int
):
    """Row and blocks are free at once, and one last delta says so."""
    rig = new_rig(max_num_batched_tokens=budget)
    rig.add(make_request("a"))
    arrange(rig)
    assert rig.abort("a")
    assert rig.scheduler.kv.num_used_blocks == 0
    assert rig.scheduler.rows.num_free == rig.scheduler.rows.num_rows
    rig.finish()
    assert rig.end_of("a").finish_reason == "abort"
    assert rig.scheduler.counters.num_finished["abort"] == 1


def test_abort_of_an_ended_or_unknown_request_does_nothing(new_rig: MakeRig):
    rig = new_rig()
    rig.add(make_request("a", max_tokens=1))
    rig.finish()
    assert not rig.abort("a")
    assert not rig.abort("never seen")
    assert not rig.scheduler.has_work()


def test_abort_while_its_step_runs_drops_the_token(new_rig: MakeRig):
    """Row and blocks stay taken until the commit: the runner is still writing there."""
    rig = new_rig()
    rig.add(make_request("a", range(10)), make_request("b", range(50, 60)))
    plan = rig.plan()
    rig.abort("a")
    assert rig.scheduler.kv.num_used_blocks == 6
    rig.commit(plan, rig.run(plan))
    assert rig.scheduler.kv.num_used_blocks == 3
    assert rig.tokens_of("a") == []
    assert len(rig.tokens_of("b")) == 1
    assert rig.step().freed_rows == [0]
    rig.finish()
    assert rig.end_of("a").finish_reason == "abort"


def test_what_an_aborted_request_computed_is_still_findable(new_rig: MakeRig):
    rig = new_rig()
    rig.add(make_request("a", range(10)))
    plan = rig.plan()
    rig.abort("a")
    rig.commit(plan, rig.run(plan))
    rig.add(make_request("b", range(10)))
    assert rig.step().num_tokens == [2]


def test_an_id_may_be_used_again_while_the_aborted_step_still_runs(new_rig: MakeRig):
    rig = new_rig(max_num_seqs=1)
    rig.add(make_request("a", range(10)))
    plan = rig.plan()
    rig.abort("a", silent=True)
    rig.add(make_request("a", range(50, 55), max_tokens=2))
    rig.commit(plan, rig.run(plan))
    rig.finish()
    assert len(rig.tokens_of("a")) == 2
    assert rig.end_of("a").finish_reason == "length"


@pytest.mark.parametrize("reason", ["abort", "stop"])
def test_a_silent_abort_makes_no_delta_and_counts_its_reason(
    new_rig: MakeRig, reason: FinishReason
):
    """The front end found a stop string and has written the last output itself."""
    rig = new_rig()
    rig.add(make_request("a"))
    rig.step()
    rig.abort("a", reason=reason, silent=True)
    assert not rig.scheduler.has_work()
    assert [delta.finish_reason for delta in rig.deltas] == [None]
    assert rig.scheduler.counters.num_finished[reason] == 1


def test_an_error_of_a_row_ends_that_request_alone(new_rig: MakeRig):
    rig = new_rig(SCRIPT)
    good, bad = make_request("good", range(10)), make_request("bad", range(50, 60))
    rig.add(good, bad)
    rig.steps(2)
    rig.executor.fail_row("bad", "NaN in the logits")
    rig.finish()
    assert (
        rig.end_of("bad").finish_reason,
        rig.end_of("bad").error,
    ) == ("error", "NaN in the logits")
    assert len(rig.tokens_of("bad")) == 2
    assert solo_answer(good, SCRIPT)[0] == rig.tokens_of("good")


@pytest.mark.parametrize(("message", "is_theirs"), [(UNANSWERABLE, True), ("NaN", False)])
def test_a_request_that_excludes_every_token_is_told_from_a_fault(
    new_rig: MakeRig, message: str, is_theirs: bool
):
    rig = new_rig(SCRIPT)
    rig.add(make_request("bad"))
    rig.executor.fail_row("bad", message)
    rig.finish()
    assert rig.end_of("bad").is_unanswerable == is_theirs


def test_a_failed_request_leaves_nothing_findable(new_rig: MakeRig):
    """If bad KV entries caused the fault, a later request would run into them again."""
    rig = new_rig()
    rig.add(make_request("bad", range(10)))
    rig.step()
    rig.executor.fail_row("bad", "NaN")
    rig.step()
    rig.add(make_request("next", range(10)))
    assert rig.step().num_tokens == [10]


def test_what_a_failed_row_announced_is_computed_again_by_its_sharers(new_rig: MakeRig):
    """Three equal prompts in one step; the first, which computes the shared blocks, fails.

    The sharers read content that does not exist. They are innocent: they start over and answer
    as if they had been alone. The third shares blocks of the second too.
    """
    rig = new_rig(SCRIPT)
    prompts = {"bad": range(10), "one": [*range(8), 70, 71, 72, 73, 74], "two": range(8)}
    prompts["two"] = [*range(8), 70, 71, 72, 73, 75]
    requests = {name: make_request(name, prompt) for name, prompt in prompts.items()}
    rig.add(*requests.values())
    rig.executor.fail_row("bad", "NaN")
    plan = rig.step()
    assert plan.num_tokens == [10, 5, 1]
    assert [delta.request_id for delta in rig.deltas] == ["bad"]
    assert rig.step().num_tokens == [13, 1]
    rig.finish()
    for name in ("one", "two"):
        assert solo_answer(requests[name], SCRIPT)[0] == rig.tokens_of(name)


def test_the_owner_of_shared_blocks_does_not_suffer_from_a_failed_sharer(new_rig: MakeRig):
    rig = new_rig(SCRIPT)
    owner = make_request("owner", range(10))
    rig.add(owner, make_request("bad", range(10)))
    rig.executor.fail_row("bad", "NaN")
    rig.step()
    assert len(rig.tokens_of("owner")) == 1
    rig.finish()
    assert rig.scheduler.counters.num_preemptions == 0
    assert solo_answer(owner, SCRIPT)[0] == rig.tokens_of("owner")


def test_a_row_that_fails_after_its_request_was_aborted_is_cleaned_up_too(new_rig: MakeRig):
    rig = new_rig(SCRIPT)
    sharer = make_request("sharer", range(10))
    rig.add(make_request("bad", range(10)), sharer)
    rig.executor.fail_row("bad", "NaN")
    plan = rig.plan()
    rig.abort("bad")
    rig.commit(plan, rig.run(plan))
    assert rig.end_of("bad").finish_reason == "abort"
    assert rig.step().num_tokens == [10]
    rig.finish()
    assert solo_answer(sharer, SCRIPT)[0] == rig.tokens_of("sharer")


@pytest.mark.parametrize("before_changes", [True, False])
def test_a_failed_step_ends_what_runs_and_spares_what_waits(new_rig: MakeRig, before_changes: bool):
    rig = new_rig(SCRIPT, max_num_seqs=2)
    for start in range(0, 80, 20):
        rig.add(make_request(str(start), range(start, start + 10)))
    rig.step()
    rig.abort("0")  # its row is freed by the very plan that fails
    plan = rig.plan()
    rig.executor.fail_run(RuntimeError("device lost"), before_changes=before_changes)
    with pytest.raises(RuntimeError):
        rig.run(plan)
    rig.fail_step(plan, "device lost")
    assert [rig.end_of(name).finish_reason for name in ("20", "40")] == ["error", "error"]
    assert rig.scheduler.kv.num_used_blocks == 0
    assert rig.step().freed_rows == [0, 1]
    rig.finish()
    assert rig.end_of("60").finish_reason == "length"


@pytest.mark.parametrize("num_steps_before", [0, 1])
def test_nothing_that_took_part_in_a_failed_step_is_findable(
    new_rig: MakeRig, num_steps_before: int
):
    """Neither what it should have computed nor what it was computed from."""
    rig = new_rig()
    rig.add(make_request("a", range(10)))
    rig.steps(num_steps_before)
    plan = rig.plan()
    rig.executor.fail_run(RuntimeError("lost"))
    with pytest.raises(RuntimeError):
        rig.run(plan)
    rig.fail_step(plan, "lost")
    rig.add(make_request("b", range(10)))
    assert rig.step().num_tokens == [10]


def test_five_hundred_aborts_leak_nothing(new_rig: MakeRig):
    """Abort at every age, then count."""
    rig = new_rig(num_blocks=12, max_num_batched_tokens=16, max_num_seqs=4)
    for number in range(500):
        rig.add(make_request(str(number), range(number % 7, 10), max_tokens=20))
        if number >= 5:
            rig.abort(str(number - 5))
        if number % 3:
            rig.step()
    for request_id in list(rig.scheduler.requests):
        rig.abort(request_id)
    assert rig.scheduler.kv.num_used_blocks == 0
    assert rig.scheduler.rows.num_free == 4
    assert len(rig.scheduler.running) + len(rig.scheduler.waiting) == 0
