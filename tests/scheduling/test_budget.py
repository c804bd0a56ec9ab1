"""The token budget of one step, and how gaps are cut into chunks."""

from __future__ import annotations

import pytest

from octavo.config.engine import SchedulerConfig
from octavo.scheduling.budget import StepBudget


def make_budget(num_tokens: int, *, chunks: bool = True) -> StepBudget:
    config = SchedulerConfig(max_num_batched_tokens=num_tokens, enable_chunked_prefill=chunks)
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
