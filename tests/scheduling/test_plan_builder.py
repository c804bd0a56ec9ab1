"""The plan builder writes parallel lists: new rows in full, known rows as differences."""

from __future__ import annotations

from octavo.contracts.step import SamplingSpec
from octavo.kvcache.manager import TableEdit
from octavo.kvcache.moves import BlockMoves
from octavo.scheduling.plan_builder import PlanBuilder
from octavo.scheduling.request import Request
from tests.support.builders import make_kv, make_request


def make_running(row: int, *, num_tokens: int, num_computed: int) -> Request:
    kv = make_kv()
    sampling = SamplingSpec(seed=row)
    request = Request(make_request(str(row), range(num_tokens), sampling=sampling), (0,), 99, kv)
    kv.admit(request.table, num_tokens)
    request.row, request.num_computed_tokens = row, num_computed
    return request


def test_a_row_samples_exactly_when_nothing_is_left_to_compute():
    builder = PlanBuilder(7)
    builder.grant(make_running(0, num_tokens=9, num_computed=8), 1)
    builder.grant(make_running(1, num_tokens=9, num_computed=4), 4)
    builder.grant(make_running(2, num_tokens=9, num_computed=4), 5)
    plan = builder.plan
    assert plan.step_id == 7
    assert plan.rows == [0, 1, 2]
    assert plan.num_tokens == [1, 4, 5]
    assert plan.samples == [True, False, True]
    assert [request.id for request in builder.requests] == ["0", "1", "2"]


def test_a_known_row_whose_tables_change_twice_is_listed_twice():
    builder = PlanBuilder(0)
    builder.edit_table(3, [TableEdit(0, 4, 10), TableEdit(1, 2, 11)])
    builder.edit_table(1, [TableEdit(0, 7, 12)])
    plan = builder.plan
    assert plan.table_rows == [3, 3, 1]
    assert plan.table_groups == [0, 1, 0]
    assert plan.table_places == [4, 2, 7]
    assert plan.table_block_ids == [10, 11, 12]


def test_a_closed_plan_carries_the_freed_rows_and_all_moves():
    moves = BlockMoves([1], [2], [3, 4], [5, 6], [7], [8])
    plan = PlanBuilder(0).close([9], moves)
    assert plan.freed_rows == [9]
    assert (plan.swap_out_from, plan.swap_out_to) == ([1], [2])
    assert (plan.swap_in_from, plan.swap_in_to) == ([3, 4], [5, 6])
    assert (plan.copy_from, plan.copy_to) == ([7], [8])


def test_a_new_row_is_a_copy_that_later_tokens_do_not_reach():
    builder, request = PlanBuilder(0), make_running(5, num_tokens=6, num_computed=4)
    builder.enter(request)
    request.token_ids.append(99)
    request.table.block_ids[0].append(99)
    (new,) = builder.plan.new_rows
    assert list(range(6)) == new.token_ids
    assert new.block_ids == [[0, 1]]
    assert (
        new.row,
        new.request_id,
        new.num_prompt_tokens,
        new.num_computed_tokens,
    ) == (5, "5", 6, 4)
    assert new.sampling.seed == 5
