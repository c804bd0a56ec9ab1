"""Preemption: who yields, what it costs, and that nobody can tell from the answer."""

from __future__ import annotations

import pytest

from octavo.contracts.step import SamplingSpec
from octavo.executor.scripted import hash_of_history
from octavo.scheduling.request import Status
from tests.scheduling.conftest import MakeRig
from tests.support.builders import Rig, make_request, solo_answer


def statuses(rig: Rig) -> dict[str, Status]:
    return {request.id: request.status for request in rig.scheduler.requests.values()}


def test_the_youngest_yields_under_fcfs(new_rig: MakeRig):
    """Both fill two blocks of a pool of four; token nine needs a fifth."""
    rig = new_rig(num_blocks=4)
    rig.add(make_request("old", range(8)), make_request("young", range(50, 58)))
    plan = rig.steps(2)[1]
    assert plan.rows == [0]
    assert plan.freed_rows == [1]
    assert statuses(rig) == {"old": Status.RUNNING, "young": Status.PREEMPTED}
    assert rig.scheduler.counters.num_preemptions == 1


def test_the_worst_priority_yields_under_priority(new_rig: MakeRig):
    rig = new_rig(num_blocks=4, scheduling_policy="priority")
    rig.add(make_request("low", range(8), priority=5), make_request("high", range(50, 58)))
    rig.steps(2)
    assert statuses(rig) == {"low": Status.PREEMPTED, "high": Status.RUNNING}


def test_of_equal_priority_the_one_that_came_later_yields(new_rig: MakeRig):
    rig = new_rig(num_blocks=4, scheduling_policy="priority")
    rig.add(make_request("late", range(8), arrival_s=2.0))
    rig.add(make_request("early", range(50, 58), arrival_s=1.0))
    rig.steps(2)
    assert statuses(rig) == {"late": Status.PREEMPTED, "early": Status.RUNNING}


def test_a_preempted_request_waits_before_all_others(new_rig: MakeRig):
    rig = new_rig(num_blocks=4)
    rig.add(make_request("a", range(8)), make_request("b", range(50, 58)), make_request("c", [90]))
    rig.steps(2)
    assert [request.id for request in rig.scheduler.waiting] == ["b", "c"]


def test_it_comes_back_through_its_own_cached_blocks(new_rig: MakeRig):
    """Preemption gives blocks away but keeps their hashes: only the tail is computed again."""
    rig = new_rig(num_blocks=6)
    rig.add(make_request("old", range(12), max_tokens=3), make_request("young", range(50, 59)))
    rig.steps(3)
    assert Status.PREEMPTED is statuses(rig)["young"]
    plan = rig.step()  # "old" has ended: "young" knows 10 tokens, its two full blocks are findable
    (new,) = plan.new_rows
    assert (new.request_id, new.num_computed_tokens, plan.num_tokens) == ("young", 8, [2])
    assert new.num_prompt_tokens == 9
    assert [*range(50, 59), *rig.tokens_of("young")[:1]] == new.token_ids
    rig.finish()


def test_coming_back_does_not_count_as_a_prefix_hit(new_rig: MakeRig):
    rig = new_rig(num_blocks=5)
    rig.add(make_request("old", range(12), max_tokens=3), make_request("young", range(50, 58)))
    rig.finish()
    assert rig.scheduler.counters.num_preemptions == 1
    counters = rig.scheduler.counters
    assert (counters.prefix_query_tokens, counters.prefix_hit_tokens) == (20, 0)
    assert rig.end_of("young").num_cached_tokens == 0


@pytest.mark.parametrize("enable_prefix_caching", [True, False])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_answers_are_those_of_a_quiet_machine(
    new_rig: MakeRig, policy: str, enable_prefix_caching: bool
):
    """Six requests in a pool for two: many preemptions, the same tokens."""
    script = hash_of_history(50)
    rig = new_rig(
        script,
        num_blocks=8,
        max_num_batched_tokens=9,
        scheduling_policy=policy,
        enable_prefix_caching=enable_prefix_caching,
    )
    requests = [
        make_request(str(start), range(start, start + 6), max_tokens=12, priority=-start)
        for start in range(0, 60, 10)
    ]
    for request in requests:
        rig.add(request)
        rig.steps(2)
    rig.finish()
    assert rig.scheduler.counters.num_preemptions >= 3
    for request in requests:
        assert solo_answer(request, script)[0] == rig.tokens_of(request.request_id)


def test_a_lone_request_that_outgrows_the_pool_fails_with_the_numbers(new_rig: MakeRig):
    """It has nobody to displace; waiting would be for ever."""
    rig = new_rig(num_blocks=3)
    rig.add(make_request("a", range(10), max_tokens=9))
    rig.finish()
    end = rig.end_of("a")
    assert end.finish_reason == "error"
    assert "has 13 tokens and needs 4 KV blocks of 4 tokens, the whole cache has 3" in (
        end.error or ""
    )
    assert len(rig.tokens_of("a")) == 3


def test_prompt_logprobs_are_not_sent_twice(new_rig: MakeRig):
    """A resumed request computes its prompt again; the front end has those entries already."""
    rig = new_rig(num_blocks=5, max_num_batched_tokens=16)
    sampling = SamplingSpec(num_prompt_logprobs=0)
    rig.add(make_request("old", range(12), max_tokens=3))
    rig.add(make_request("young", range(50, 58), sampling=sampling, skip_prefix_cache=True))
    rig.finish()
    assert rig.scheduler.counters.num_preemptions == 1
    entries = rig.prompt_logprobs_of("young")
    assert list(range(51, 58)) == [entry.token_ids[0] for entry in entries]


def test_a_victim_does_not_come_back_in_the_same_plan_and_nobody_overtakes_it(new_rig: MakeRig):
    """Though "c" would fit into what is left."""
    rig = new_rig(num_blocks=4)
    rig.add(make_request("a", range(8)), make_request("b", range(50, 58)))
    rig.step()
    rig.add(make_request("c", [90]))
    assert rig.step().new_rows == []


def test_without_chunked_prefill_a_request_preempted_late_comes_back(new_rig: MakeRig):
    """It knows more tokens by now than a step computes; all or nothing would be nothing."""
    script = hash_of_history(50)
    rig = new_rig(
        script,
        num_blocks=6,
        max_num_batched_tokens=8,
        enable_chunked_prefill=False,
        enable_prefix_caching=False,
    )
    requests = [
        make_request("a", range(4), max_tokens=12),
        make_request("b", range(50, 54), max_tokens=12),
    ]
    rig.add(*requests)
    rig.steps(10)
    assert Status.PREEMPTED is statuses(rig)["b"]
    assert rig.scheduler.waiting.first.num_tokens == 13
    rig.finish()
    for request in requests:
        assert solo_answer(request, script)[0] == rig.tokens_of(request.request_id)


class TestArrival:
    """Under `priority` a better request does not wait behind worse ones that run."""

    def test_it_displaces_the_worst_when_rows_are_short(self, new_rig: MakeRig):
        rig = new_rig(max_num_seqs=2, scheduling_policy="priority")
        rig.add(make_request("mid", range(5), priority=1), make_request("low", [50], priority=2))
        rig.step()
        rig.add(make_request("high", [90], priority=0))
        plan = rig.step()
        assert [request.id for request in sorted_by_row(rig)] == ["mid", "high"]
        assert plan.freed_rows == [1]
        assert Status.PREEMPTED is statuses(rig)["low"]

    def test_it_displaces_as_many_as_it_needs_when_blocks_are_short(self, new_rig: MakeRig):
        rig = new_rig(num_blocks=6, scheduling_policy="priority")
        rig.add(*(make_request(str(n), range(9 * n, 9 * n + 7), priority=n) for n in (1, 2, 3)))
        rig.step()
        rig.add(make_request("high", range(90, 102), priority=0))
        rig.step()
        assert [request.id for request in rig.scheduler.running] == ["high", "1"]
        rig.finish()

    def test_it_displaces_one_when_the_tokens_of_a_step_are_short(self, new_rig: MakeRig):
        """Two decoding requests use up a step of two tokens."""
        rig = new_rig(max_num_batched_tokens=2, scheduling_policy="priority")
        rig.add(make_request("mid", [0], priority=1), make_request("low", [50], priority=2))
        rig.step()
        rig.add(make_request("high", [90], priority=0))
        rig.step()
        assert [request.id for request in rig.scheduler.running] == ["high", "mid"]

    def test_equals_are_not_displaced(self, new_rig: MakeRig):
        """An earlier arrival time decides the order of waiting, not who is thrown out."""
        rig = new_rig(max_num_seqs=1, scheduling_policy="priority")
        rig.add(make_request("first", range(5), arrival_s=2.0))
        rig.step()
        rig.add(make_request("second", [50], arrival_s=1.0))
        rig.step()
        assert [request.id for request in rig.scheduler.running] == ["first"]

    def test_nobody_is_displaced_in_vain(self, new_rig: MakeRig):
        """The worse one alone does not hold enough; it goes on."""
        rig = new_rig(num_blocks=6, scheduling_policy="priority")
        rig.add(make_request("best", range(13), priority=0), make_request("low", [90], priority=9))
        rig.step()
        rig.add(make_request("mid", range(50, 62), priority=5))
        rig.step()
        assert [request.id for request in rig.scheduler.running] == ["best", "low"]

    def test_a_block_that_two_victims_share_is_counted_once(self, new_rig: MakeRig):
        """They hold four blocks, two of them together; the arrival needs three."""
        rig = new_rig(num_blocks=4, scheduling_policy="priority")
        rig.add(*(make_request(name, range(9), priority=9) for name in ("one", "two")))
        rig.step()
        rig.add(make_request("high", range(50, 62), priority=0, max_tokens=1))
        rig.step()
        assert statuses(rig) == {"one": Status.PREEMPTED, "two": Status.PREEMPTED}
        assert rig.end_of("high").finish_reason == "length"

    def test_an_arrival_that_can_never_run_displaces_nobody(self, new_rig: MakeRig):
        rig = new_rig(num_blocks=4, scheduling_policy="priority")
        rig.add(make_request("low", range(8), priority=9))
        rig.step()
        rig.add(make_request("huge", range(50, 70), priority=0))
        rig.step()
        assert rig.end_of("huge").finish_reason == "error"
        assert statuses(rig) == {"low": Status.RUNNING}

    def test_equals_do_not_help_to_make_room(self, new_rig: MakeRig):
        rig = new_rig(num_blocks=6, scheduling_policy="priority")
        rig.add(make_request("equal", range(13), priority=5), make_request("low", [90], priority=9))
        rig.step()
        rig.add(make_request("new", range(50, 62), priority=5))
        rig.step()
        assert [request.id for request in rig.scheduler.running] == ["equal", "low"]

    def test_under_fcfs_nobody_is_displaced(self, new_rig: MakeRig):
        rig = new_rig(max_num_seqs=1)
        rig.add(make_request("first", range(5), priority=9))
        rig.step()
        rig.add(make_request("second", [50], priority=0))
        rig.step()
        assert [request.id for request in rig.scheduler.running] == ["first"]


def sorted_by_row(rig: Rig) -> list[object]:
    return sorted(rig.scheduler.running, key=lambda request: request.row)
