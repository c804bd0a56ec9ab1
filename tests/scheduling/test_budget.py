"""The token budget of one step, and how gaps are cut into chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.config.engine import SchedulerConfig
from octavo.scheduling.budget import StepBudget


def make_budget(num_tokens: int, *, chunks: bool = True, **options: int) -> StepBudget:
    config = SchedulerConfig(
        max_num_batched_tokens=num_tokens, enable_chunked_prefill=chunks, **options
    )
    return StepBudget(config)


def test_a_gap_that_fits_is_given_whole_and_a_longer_one_in_chunks():
    budget = make_budget(10)
    assert budget.first_chunk(10) == 10
    assert budget.first_chunk(11) == 10
    budget.spend(7)
    assert budget.first_chunk(11) == 3


def test_without_chunked_prefill_a_prompt_waits_until_it_fits_whole():
    budget = make_budget(10, chunks=False)
    budget.spend(3)
    assert budget.first_chunk(7) == 7
    assert budget.first_chunk(8) == 0


def test_without_chunked_prefill_a_gap_longer_than_any_step_is_cut_all_the_same():
    """A request preempted late knows more tokens than its prompt had; it must be able to return."""
    budget = make_budget(10, chunks=False)
    budget.spend(3)
    assert budget.first_chunk(11) == 7


def test_tokens_kept_for_others_are_not_given_to_a_chunk():
    budget = make_budget(10)
    assert budget.next_chunk(100, num_kept=4) == 6
    assert budget.next_chunk(5, num_kept=4) == 5
    assert budget.next_chunk(5, num_kept=10) == 0
    assert budget.next_chunk(5, num_kept=11) == 0


def test_overdrawing_is_caught():
    with pytest.raises(AssertionError, match="overdrawn by 1 tokens"):
        make_budget(3).spend(4)


def test_a_limit_for_prompts_leaves_the_rest_to_rows_that_decode():
    budget = make_budget(100)
    budget.limit_prefill(10)
    assert budget.next_chunk(50, num_kept=0) == 10
    budget.spend_on_prompt(10, 50)
    assert not budget.has_room_for_prompts
    assert (budget.first_chunk(5), budget.next_chunk(5, num_kept=0)) == (0, 0)
    budget.spend(90)


def test_a_limit_never_cuts_a_prompt_that_must_not_be_cut():
    """Without chunked prefill it would wait for ever; a step without any prompt is possible."""
    budget = make_budget(100, chunks=False)
    budget.limit_prefill(10)
    assert budget.first_chunk(50) == 50
    budget.limit_prefill(0)
    assert budget.first_chunk(50) == 0


def test_the_long_prefill_threshold_caps_each_prompt_alone():
    """vLLM's meaning: a cap per step for one prefill; others use what it leaves."""
    budget = make_budget(100, long_prefill_token_threshold=30)
    assert budget.next_chunk(500, num_kept=0) == 30
    budget.spend_on_prompt(30, 500)
    assert budget.first_chunk(500) == 30
    assert budget.first_chunk(20) == 20


def test_only_so_many_prompts_are_half_computed_at_once():
    budget = make_budget(100, max_num_partial_prefills=1)
    budget.spend_on_prompt(60, 500)
    assert budget.first_chunk(41) == 0
    assert budget.first_chunk(40) == 40


def test_a_prompt_that_is_done_makes_room_for_another_half_computed_one():
    budget = make_budget(100, max_num_partial_prefills=1)
    budget.spend_on_prompt(60, 60)
    assert budget.first_chunk(500) == 40


def test_shares_are_equal_and_who_wants_less_leaves_the_rest_to_others():
    budget = make_budget(100)
    budget.share([("long", 500), ("short", 10), ("long", 500), ("middle", 70)], num_kept=10)
    assert budget.next_chunk(10, 10, "short") == 10
    assert budget.next_chunk(500, 10, "long") == 40
    assert budget.next_chunk(70, 10, "middle") == 40
    budget.spend_on_prompt(40, 500, "long")
    assert budget.next_chunk(500, 10, "long") == 0
    assert budget.next_chunk(500, 10, "not a sharer") == 50


def test_tenants_share_before_the_prompts_of_each():
    budget = make_budget(100)
    wanted = [("a1", 500), ("a2", 10), ("b", 500), ("a3", 500)]
    budget.share(wanted, num_kept=0, tenants=["a", "a", "b", "a"])
    shares = [budget.next_chunk(num, 0, name) for name, num in wanted]
    assert shares == [20, 10, 50, 20]


def test_a_share_that_is_not_used_is_left_for_waiting_requests():
    budget = make_budget(100)
    budget.share([("running", 500), ("waiting", 30)], num_kept=0)
    budget.spend_on_prompt(budget.next_chunk(500, 0, "running"), 500, "running")
    assert budget.first_chunk(30) == 30


@given(st.dictionaries(st.text(max_size=2), st.integers(1, 50), min_size=1), st.integers(1, 99))
def test_shares_waste_nothing_and_differ_by_no_more_than_a_token(
    wants: dict[str, int], num_tokens: int
):
    budget = make_budget(num_tokens)
    budget.share(list(wants.items()), num_kept=0)
    shares = {name: budget.next_chunk(want, 0, name) for name, want in wants.items()}
    assert sum(shares.values()) == min(num_tokens, sum(wants.values()))
    unmet = [shares[name] for name in wants if shares[name] < wants[name]]
    assert not unmet or max(shares.values()) - min(unmet) <= 1
