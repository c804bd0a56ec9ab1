"""The scripted executor refuses plans that no runner could run, and every wrong KV entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from octavo.contracts.step import NewRow, SamplingSpec, StepPlan
from octavo.executor.scripted import PlanError, ScriptedExecutor, answers, hash_of_history
from tests.support.builders import make_kv_plan


def make_executor(
    windows: tuple[int, ...] = (0,), num_host_slots: int = 2, **options: Any
) -> ScriptedExecutor:
    """Four blocks of four tokens, requests "a" and "b"."""
    script = answers({"a": [7, 8], "b": [9]})
    plan = make_kv_plan(4, windows=windows, num_host_slots=num_host_slots)
    return ScriptedExecutor(script, plan, **options)


def new_row(
    row: int = 0,
    request_id: str = "a",
    token_ids: tuple[int, ...] = (1, 2, 3, 4, 5),
    block_ids: tuple[int, ...] = (0, 1),
    computed: int = 0,
    twin_row: int = -1,
    **sampling: int,
) -> NewRow:
    return NewRow(
        row=row,
        request_id=request_id,
        token_ids=list(token_ids),
        num_prompt_tokens=len(token_ids),
        num_computed_tokens=computed,
        block_ids=[list(block_ids)],
        twin_row=twin_row,
        sampling=SamplingSpec(**sampling),  # type: ignore[arg-type]
    )


def first_step(*new: NewRow) -> StepPlan:
    """All rows compute everything they know and sample."""
    return StepPlan(
        step_id=0,
        new_rows=list(new),
        rows=[one.row for one in new],
        num_tokens=[len(one.token_ids) - one.num_computed_tokens for one in new],
        samples=[True] * len(new),
    )


def next_step(step_id: int = 1, **fields: list[int]) -> StepPlan:
    """Row 0 decodes one token."""
    plan = StepPlan(step_id=step_id, rows=[0], num_tokens=[1], samples=[True])
    for name, value in fields.items():
        setattr(plan, name, value)
    return plan


def test_it_answers_by_the_script_and_then_with_the_filler():
    executor = make_executor()
    tokens = [executor.run(first_step(new_row())).sampled]
    tokens += [executor.run(next_step(step_id)).sampled for step_id in (1, 2)]
    assert tokens == [[7], [8], [0]]


def test_a_chunk_does_not_sample():
    executor = make_executor()
    plan = first_step(new_row())
    plan.num_tokens, plan.samples = [3], [False]
    assert executor.run(plan).sampled == []
    plan = next_step(num_tokens=[2])
    assert executor.run(plan).sampled == [7]


def test_the_history_script_depends_on_tokens_only():
    script = hash_of_history(100)
    assert script("a", [1, 2, 3], 2) == script("b", [1, 2, 3], 3)
    assert script("a", [1, 2, 3], 3) != script("a", [3, 2, 1], 3)


def test_sharing_a_computed_block_is_right_even_within_the_step():
    executor = make_executor()
    sharer = new_row(1, "b", block_ids=(0, 2), computed=4)
    assert executor.run(first_step(new_row(), sharer)).sampled == [7, 9]


def test_a_block_with_another_history_is_noticed():
    """What a wrong prefix hit would be."""
    executor = make_executor()
    sharer = new_row(1, "b", token_ids=(1, 2, 3, 99, 5), block_ids=(0, 2), computed=4)
    with pytest.raises(PlanError, match=r"row 1 \(b\) attends to position 3 of group 0 in block 0"):
        executor.run(first_step(new_row(), sharer))


def test_the_same_tokens_at_other_positions_are_noticed():
    """An entry knows its place: a block is not reusable further to the right."""
    executor = make_executor()
    row = new_row(1, "b", token_ids=(1, 2, 3, 4, 1, 2, 3, 4, 5), block_ids=(2, 0, 3), computed=8)
    executor.run(first_step(new_row()))
    with pytest.raises(PlanError, match="position 0 of group 0 in block 2"):
        executor.run(first_step_again(row))


def first_step_again(*new: NewRow, step_id: int = 1) -> StepPlan:
    plan = first_step(*new)
    plan.step_id = step_id
    return plan


def test_a_block_that_two_requests_write_is_noticed():
    executor = make_executor()
    other = new_row(1, "b", token_ids=(6, 7), block_ids=(1,))
    with pytest.raises(PlanError, match=r"attends to position 4 of group 0 in block 1"):
        executor.run(first_step(new_row(), other))


def test_a_copied_block_has_the_content_of_its_source():
    executor = make_executor()
    executor.run(first_step(new_row()))
    copied = new_row(1, "b", block_ids=(3, 2), computed=4)
    plan = first_step_again(copied)
    plan.copy_from, plan.copy_to = [0], [3]
    assert executor.run(plan).sampled == [9]


def test_a_lost_copy_is_noticed():
    executor = make_executor()
    executor.run(first_step(new_row()))
    with pytest.raises(PlanError, match="position 0 of group 0 in block 3"):
        executor.run(first_step_again(new_row(1, "b", block_ids=(3, 2), computed=4)))


def unknown_row(plan: StepPlan) -> None:
    plan.rows = [5]


def row_twice(plan: StepPlan) -> None:
    plan.rows, plan.num_tokens, plan.samples = [0, 0], [1, 1], [True, True]


def no_tokens(plan: StepPlan) -> None:
    plan.num_tokens = [0]


def unknown_tokens(plan: StepPlan) -> None:
    plan.num_tokens = [2]


def should_sample(plan: StepPlan) -> None:
    plan.samples = [False]


def not_parallel(plan: StepPlan) -> None:
    plan.samples = []


def table_not_parallel(plan: StepPlan) -> None:
    plan.table_rows = [0]


def copies_not_parallel(plan: StepPlan) -> None:
    plan.copy_from = [0]


def old_step(plan: StepPlan) -> None:
    plan.step_id = 0


def empty(plan: StepPlan) -> None:
    plan.rows, plan.num_tokens, plan.samples = [], [], []


def frees_a_free_row(plan: StepPlan) -> None:
    plan.freed_rows = [3]


def fills_a_taken_row(plan: StepPlan) -> None:
    plan.new_rows = [new_row(0, "b")]


def enters_without_computing(plan: StepPlan) -> None:
    plan.new_rows = [new_row(1, "b")]


def has_nothing_to_compute(plan: StepPlan) -> None:
    plan.new_rows = [new_row(1, "b", computed=5)]
    plan.rows, plan.num_tokens, plan.samples = [0, 1], [1, 1], [True, True]


def too_few_blocks(plan: StepPlan) -> None:
    plan.new_rows = [new_row(1, "b", block_ids=(2,))]
    plan.rows, plan.num_tokens, plan.samples = [0, 1], [1, 5], [True, True]


def too_many_rows(plan: StepPlan) -> None:
    plan.new_rows = [new_row(8, "b")]
    plan.rows, plan.num_tokens, plan.samples = [0, 8], [1, 5], [True, True]


def too_many_tokens(plan: StepPlan) -> None:
    plan.new_rows = [new_row(1, "b", token_ids=tuple(range(10)), block_ids=(1, 2, 3))]
    plan.rows, plan.num_tokens, plan.samples = [0, 1], [1, 10], [True, True]


@pytest.mark.parametrize(
    "spoil",
    [
        unknown_row,
        row_twice,
        no_tokens,
        unknown_tokens,
        should_sample,
        not_parallel,
        table_not_parallel,
        copies_not_parallel,
        old_step,
        empty,
        frees_a_free_row,
        fills_a_taken_row,
        enters_without_computing,
        has_nothing_to_compute,
        too_few_blocks,
        too_many_rows,
        too_many_tokens,
    ],
)
def test_a_plan_that_breaks_the_contract_is_refused(spoil: Callable[[StepPlan], None]):
    executor = make_executor(max_num_seqs=4, max_num_batched_tokens=10)
    executor.run(first_step(new_row()))
    plan = next_step()
    spoil(plan)
    with pytest.raises(PlanError):
        executor.run(plan)


def test_a_row_longer_than_the_context_is_refused():
    executor = make_executor(max_model_len=4)
    with pytest.raises(PlanError, match="longer than the context"):
        executor.run(first_step(new_row()))


def test_an_injected_error_hits_its_row_once_and_spoils_who_shares_its_blocks():
    """A real runner would compute nonsense from nonsense; it cannot know."""
    executor = make_executor()
    executor.fail_row("a", "NaN")
    sharer = new_row(1, "b", block_ids=(0, 2), computed=4)
    result = executor.run(first_step(new_row(), sharer))
    assert result.errors == {0: "NaN"}
    assert result.sampled == [-1, -1]


def test_reading_the_garbage_of_an_earlier_step_is_noticed():
    """By then the scheduler knows of the error and must not share that block any more."""
    executor = make_executor()
    executor.fail_row("a", "NaN")
    executor.run(first_step(new_row()))
    with pytest.raises(PlanError, match=r"attends to position 0"):
        executor.run(first_step_again(new_row(1, "b", block_ids=(0, 2), computed=4)))


@pytest.mark.parametrize("before_changes", [True, False])
def test_after_a_lost_step_any_row_may_be_freed(before_changes: bool):
    executor = make_executor()
    executor.fail_run(RuntimeError("lost"), before_changes=before_changes)
    with pytest.raises(RuntimeError, match="lost"):
        executor.run(first_step(new_row()))
    plan = first_step_again(new_row(0, "b"))
    plan.freed_rows = [0]
    assert executor.run(plan).sampled == [9]


def test_logprobs_are_there_for_rows_that_asked():
    executor = make_executor()
    asked = new_row(0, "a", num_logprobs=2, num_prompt_logprobs=0)
    silent = new_row(1, "b", token_ids=(6, 7), block_ids=(2,))
    result = executor.run(first_step(asked, silent))
    assert {0} == set(result.logprobs) == set(result.prompt_logprobs)
    assert result.logprobs[0][0].token_ids == [7, 7, 8]
    assert [entry.token_ids for entry in result.prompt_logprobs[0]] == [[2], [3], [4], [5]]


def test_every_plan_passes_the_hook():
    seen: list[StepPlan] = []
    executor = make_executor(before_run=seen.append)
    plan = first_step(new_row())
    executor.run(plan)
    assert [plan] == seen


def test_an_entry_of_another_group_is_noticed():
    """The same tokens at the same place, but other layers."""
    executor = make_executor(windows=(0, 0))
    executor.run(first_step(with_tables(new_row(token_ids=(1, 2, 3)), [0], [1])))
    swapped = with_tables(new_row(1, "b", token_ids=(1, 2, 3, 4), computed=3), [1], [0])
    with pytest.raises(PlanError, match="position 0 of group 0 in block 1"):
        executor.run(first_step_again(swapped))


def test_a_row_reads_only_what_is_inside_the_window():
    """Token 8 sees tokens 6 to 8 in the second group: its first block may be anybody's."""
    executor = make_executor(windows=(0, 3))
    prompt = (1, 2, 3, 4, 5, 6, 7, 8)
    executor = ScriptedExecutor(answers({"a": [9, 9]}), make_kv_plan(8, windows=(0, 3)))
    executor.run(first_step(with_tables(new_row(token_ids=prompt), [0, 1], [2, 3])))
    decode = next_step(table_rows=[0, 0], table_groups=[0, 1], table_places=[2, 2])
    decode.table_block_ids = [4, 2]  # block 2 has left the window
    assert executor.run(decode).sampled == [9]


def test_a_block_that_is_still_inside_the_window_must_be_there():
    executor = make_executor(windows=(0, 3))
    row = with_tables(new_row(token_ids=(1, 2, 3, 4, 5), computed=4), [0, 1], [-1, 2])
    with pytest.raises(PlanError, match="position 0 of group 0 in block 0"):
        executor.run(first_step(row))
    executor = make_executor(windows=(3, 3))
    row = with_tables(new_row(token_ids=(1, 2, 3, 4, 5), computed=4), [-1, 1], [-1, 2])
    with pytest.raises(PlanError, match="no block at position 2, group 0"):
        executor.run(first_step(row))


def test_a_twin_samples_from_the_row_that_it_follows():
    executor = make_executor()
    plan = first_step(new_row(), new_row(1, "b", computed=5, twin_row=0))
    assert plan.num_tokens == [5, 0]
    assert executor.run(plan).sampled == [7, 9]


@pytest.mark.parametrize(
    "twin",
    [
        new_row(1, "b", computed=4, twin_row=0),
        new_row(1, "b", token_ids=(1, 2, 3, 4, 6), computed=5, twin_row=0),
        new_row(1, "b", computed=5, twin_row=3),
    ],
    ids=["computes", "has other tokens", "follows nobody"],
)
def test_a_wrong_twin_is_refused(twin: NewRow):
    with pytest.raises(PlanError):
        make_executor().run(first_step(new_row(), twin))


def test_swapped_blocks_come_back_as_they_were():
    executor = make_executor()
    executor.run(first_step(new_row()))
    out = first_step_again(new_row(1, "b", token_ids=(6, 7), block_ids=(0,)))
    out.freed_rows, out.swap_out_from, out.swap_out_to = [0], [0, 1], [1, 0]
    executor.run(out)
    back = new_row(2, "a", token_ids=(1, 2, 3, 4, 5, 7), block_ids=(2, 3), computed=5)
    plan = first_step_again(msgspec.structs.replace(back, num_prompt_tokens=5), step_id=2)
    plan.swap_in_from, plan.swap_in_to = [1, 0], [2, 3]
    assert executor.run(plan).sampled == [8]


def test_a_swap_from_the_wrong_slot_is_noticed():
    executor = make_executor()
    executor.run(first_step(new_row()))
    out = next_step(swap_out_from=[0], swap_out_to=[1])
    executor.run(out)
    back = first_step_again(new_row(2, "b", block_ids=(2, 3), computed=4), step_id=2)
    back.swap_in_from, back.swap_in_to = [0], [2]
    with pytest.raises(PlanError, match="position 0 of group 0 in block 2"):
        executor.run(back)


def test_a_replaced_token_is_the_one_that_is_computed():
    executor = ScriptedExecutor(hash_of_history(1000), make_kv_plan(4))
    executor.run(first_step(new_row()))
    plan = next_step(replaced_rows=[0], replaced_token_ids=[77])
    expected = hash_of_history(1000)("a", [1, 2, 3, 4, 5, 77], 5)
    assert executor.run(plan).sampled == [expected]


def test_only_a_sampled_token_can_be_replaced():
    executor = make_executor()
    plan = first_step(new_row())
    plan.num_tokens, plan.samples = [3], [False]
    executor.run(plan)
    with pytest.raises(PlanError, match="has sampled nothing"):
        executor.run(next_step(num_tokens=[2], replaced_rows=[0], replaced_token_ids=[77]))


def test_logprobs_come_from_the_candidates_if_there_are_any():
    executor = make_executor(candidates=lambda tokens, count: [(len(tokens), -0.5), (3, -1.0)])
    result = executor.run(first_step(new_row(num_logprobs=2)))
    assert result.sampled == [5]
    assert result.logprobs[0][0].token_ids == [5, 5, 3]
    assert result.logprobs[0][0].logprobs == [-0.5, -0.5, -1.0]


def test_swaps_take_the_time_that_they_are_said_to_take():
    executor = make_executor(step_swap_s=0.25)
    assert executor.run(first_step(new_row())).swap_s == 0.0
    assert executor.run(next_step(swap_out_from=[0], swap_out_to=[0])).swap_s == 0.25


def with_tables(row: NewRow, *block_ids: list[int]) -> NewRow:
    """The same row with a block table for each group."""
    return msgspec.structs.replace(row, block_ids=list(block_ids))


def drafting(*guesses: int, **fields: Any) -> StepPlan:
    """Row 0 decodes one token and tests guesses of the next ones."""
    lists = {
        "num_tokens": [1 + len(guesses)],
        "draft_rows": [0],
        "draft_token_ids": [list(guesses)],
        **fields,
    }
    return next_step(**lists)


def test_guesses_are_accepted_up_to_the_first_wrong_one():
    """The row goes on behind them, and writes over what was computed of the wrong ones."""
    executor = make_executor()
    executor.run(first_step(new_row()))
    result = executor.run(drafting(8, 3))
    assert (result.sampled, result.accepted) == ([8, 0], [1])
    plan = next_step(2, table_rows=[0], table_groups=[0], table_places=[2], table_block_ids=[2])
    assert executor.run(plan).sampled == [0]
    executor.run(next_step(3))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (drafting(8, draft_rows=[]), "drafts not parallel"),
        (drafting(8, samples=[False]), "drafts for a row that does not sample"),
        (drafting(), "an empty list of drafts"),
        (drafting(8, mask_rows=[0], masks=[b"\xff"]), "a row with a mask and drafts"),
        (drafting(8, num_tokens=[1]), "samples is True"),
        (drafting(1, 2, 3, 4), "too few blocks"),
    ],
)
def test_wrong_drafts_are_refused(plan: StepPlan, message: str):
    executor = make_executor()
    executor.run(first_step(new_row()))
    with pytest.raises(PlanError, match=message):
        executor.run(plan)


def test_drafts_of_a_row_with_penalties_are_refused():
    executor = make_executor()
    executor.run(first_step(new_row(presence_penalty=1)))
    with pytest.raises(PlanError, match="row 0 has penalties"):
        executor.run(drafting(8))
