"""The scheduler without trouble: who runs, how many tokens, what is shared, what comes out."""

from __future__ import annotations

import pytest

from octavo.contracts.step import SamplingSpec
from octavo.executor.scripted import answers
from tests.scheduling.conftest import MakeRig
from tests.support.builders import make_request


def test_one_request_is_prefilled_decoded_and_gone(new_rig: MakeRig):
    rig = new_rig(answers({"a": [7, 8, 9]}))
    rig.add(make_request("a", range(10), max_tokens=3))
    plans = rig.steps(3)
    assert [plan.num_tokens for plan in plans] == [[10], [1], [1]]
    assert [plan.samples for plan in plans] == [[True]] * 3
    assert rig.tokens_of("a") == [7, 8, 9]
    assert rig.end_of("a").finish_reason == "length"
    assert not rig.scheduler.has_work()
    assert rig.scheduler.kv.num_used_blocks == 0


def test_a_known_row_is_listed_as_differences_only(new_rig: MakeRig):
    """Ten tokens fill two and a half blocks; the fourth block comes with token 13."""
    rig = new_rig()
    rig.add(make_request("a", range(10), max_tokens=9))
    first, *later = rig.steps(5)
    assert first.new_rows[0].block_ids == [[0, 1, 2]]
    assert [plan.new_rows for plan in later] == [[]] * 4
    assert [plan.table_block_ids for plan in later] == [[], [], [3], []]
    assert [plan.table_rows for plan in later] == [[], [], [0], []]


def test_a_long_prompt_is_computed_in_chunks_and_samples_once(new_rig: MakeRig):
    rig = new_rig(answers({"a": [7]}), max_num_batched_tokens=6)
    rig.add(make_request("a", range(15), max_tokens=1))
    plans = rig.steps(3)
    assert [plan.num_tokens for plan in plans] == [[6], [6], [3]]
    assert [plan.samples for plan in plans] == [[False], [False], [True]]
    assert rig.tokens_of("a") == [7]


def test_without_chunked_prefill_a_prompt_waits_for_a_step_with_room(new_rig: MakeRig):
    rig = new_rig(max_num_batched_tokens=12, enable_chunked_prefill=False)
    rig.add(make_request("a", range(10)), make_request("b", range(50, 60)))
    assert [plan.num_tokens for plan in rig.steps(2)] == [[10], [1, 10]]


def test_waiting_requests_share_what_is_left_of_the_budget(new_rig: MakeRig):
    rig = new_rig(max_num_batched_tokens=16)
    rig.add(make_request("a", range(10)), make_request("b", range(50, 60)))
    assert [plan.num_tokens for plan in rig.steps(2)] == [[10, 6], [1, 4]]


def test_a_chunk_uses_all_that_decoding_rows_leave(new_rig: MakeRig):
    """Tokens are kept for decoding rows behind a chunk; those before it have theirs already."""
    rig = new_rig(max_num_batched_tokens=10)
    rig.add(make_request("a", [1], max_tokens=9), make_request("b", [2], max_tokens=9))
    rig.step()
    rig.add(make_request("long", range(30), max_tokens=2))
    plans = rig.steps(3)
    assert [plan.num_tokens for plan in plans] == [[1, 1, 8]] * 3


def test_decoding_never_waits_for_budget_behind_a_chunk(new_rig: MakeRig):
    """The long prompt is older and first in order, yet each decoding row keeps its token."""
    rig = new_rig(max_num_batched_tokens=8, scheduling_policy="priority")
    rig.add(*(make_request(str(start), range(start, start + 2)) for start in (100, 200, 300)))
    rig.step()
    rig.add(make_request("urgent", range(20), priority=-1))
    assert [p.num_tokens for p in rig.steps(3)] == [[1, 1, 1, 5], [5, 1, 1, 1], [5, 1, 1, 1]]


def test_no_more_requests_run_than_rows_exist(new_rig: MakeRig):
    rig = new_rig(max_num_seqs=2)
    rig.add(*(make_request(str(start), range(start, start + 5)) for start in (0, 50, 100)))
    rig.step()
    assert [request.id for request in rig.scheduler.running] == ["0", "50"]
    rig.finish()
    assert len(rig.tokens_of("100")) == 4


def test_no_more_requests_run_than_a_step_has_tokens(new_rig: MakeRig):
    """Otherwise some decoding row would have to wait in every step."""
    rig = new_rig(max_num_batched_tokens=2, max_num_seqs=8)
    rig.add(*(make_request(str(start), [start]) for start in range(3)))
    rig.step()
    assert len(rig.scheduler.running) == 2
    rig.finish()


def test_requests_that_fit_are_admitted_in_order(new_rig: MakeRig):
    """Who may pass one that does not fit: see test_look_ahead.py."""
    rig = new_rig(max_num_seqs=1)
    names = ["a", "b", "c"]
    rig.add(*(make_request(name, [number]) for number, name in enumerate(names)))
    rig.finish()
    assert names == [delta.request_id for delta in rig.deltas if delta.finish_reason]


def test_a_freed_row_is_given_to_a_new_request_in_the_same_plan(new_rig: MakeRig):
    rig = new_rig(max_num_seqs=1)
    rig.add(make_request("a", range(5), max_tokens=1), make_request("b", range(50, 55)))
    first, second = rig.steps(2)
    assert first.freed_rows == []
    assert second.freed_rows == [0]
    assert [(new.row, new.request_id) for new in second.new_rows] == [(0, "b")]


def test_freed_rows_are_kept_for_the_next_plan_that_computes(new_rig: MakeRig):
    """An empty plan is never sent, so it must not swallow what the runner has to know."""
    rig = new_rig()
    rig.add(make_request("a", range(5), max_tokens=1))
    assert rig.steps(2)[1].rows == []
    rig.add(make_request("b", range(50, 55)))
    assert rig.step().freed_rows == [0]


def test_equal_prompts_of_one_step_share_their_full_blocks(new_rig: MakeRig):
    """The second computes only what is in no full block, in the same step as the first."""
    rig = new_rig()
    rig.add(make_request("a", range(10)), make_request("b", range(10)))
    plan = rig.step()
    assert plan.num_tokens == [10, 2]
    first, second = plan.new_rows
    assert first.block_ids[0][:2] == second.block_ids[0][:2]
    assert second.num_computed_tokens == 8
    rig.finish()
    assert rig.tokens_of("a") == rig.tokens_of("b")


def test_a_prompt_of_whole_blocks_recomputes_its_last_token(new_rig: MakeRig):
    """The rest of its last block is copied; in the step that computes that block, it cannot be."""
    rig = new_rig()
    rig.add(make_request("a", range(12)), make_request("b", range(12)))
    assert rig.step().num_tokens == [12, 4]
    rig.add(make_request("c", range(12)))
    plan = rig.step()
    assert plan.num_tokens == [1, 1, 1]
    assert len(plan.copy_to) == 1
    rig.finish()
    assert rig.tokens_of("a") == rig.tokens_of("c")


def test_a_prompt_that_differs_inside_a_block_reuses_the_common_part(new_rig: MakeRig):
    rig = new_rig()
    rig.add(make_request("a", range(12)))
    rig.finish()
    rig.add(make_request("b", [*range(7), 70, 71, 72]))
    assert rig.step().num_tokens == [3]
    rig.finish()
    assert rig.end_of("b").num_cached_tokens == 7


def test_a_conversation_finds_its_own_answer(new_rig: MakeRig):
    """Blocks that generation filled are findable for the next turn."""
    rig = new_rig(answers({"turn 1": [60, 61, 62, 63], "turn 2": [70]}))
    rig.add(make_request("turn 1", range(9), max_tokens=4))
    rig.finish()
    rig.add(make_request("turn 2", [*range(9), 60, 61, 62, 63, 64], max_tokens=1))
    rig.finish()
    assert rig.end_of("turn 2").num_cached_tokens == 12


def test_the_last_sampled_token_is_in_no_findable_block(new_rig: MakeRig):
    """It was never computed: 11 of 12 tokens were."""
    rig = new_rig(answers({"a": [60, 61], "b": [70]}))
    rig.add(make_request("a", range(10), max_tokens=2))
    rig.finish()
    rig.add(make_request("b", [*range(10), 60, 61, 62, 63], max_tokens=1))
    rig.finish()
    assert rig.end_of("b").num_cached_tokens == 11


def test_every_delta_says_how_many_prompt_tokens_were_cached(new_rig: MakeRig):
    rig = new_rig()
    rig.add(make_request("a", range(10)))
    rig.finish()
    rig.add(make_request("b", range(10)))
    rig.finish()
    cached = {one.request_id: one.num_cached_tokens for one in rig.deltas}
    assert cached == {"a": 0, "b": 9}


def test_prefix_counters_count_tokens_of_requests_that_may_read(new_rig: MakeRig):
    rig = new_rig()
    rig.add(make_request("a", range(10)))
    rig.finish()
    rig.add(make_request("b", range(10)), make_request("c", range(10), skip_prefix_cache=True))
    rig.finish()
    counters = rig.scheduler.counters
    assert (counters.prefix_query_tokens, counters.prefix_hit_tokens) == (20, 9)
    assert counters.num_prompt_tokens == 30


def test_a_request_that_skips_the_cache_computes_its_whole_prompt_and_others_find_it(
    new_rig: MakeRig,
):
    rig = new_rig()
    rig.add(make_request("a", range(10)), make_request("b", range(10), skip_prefix_cache=True))
    assert rig.step().num_tokens == [10, 10]
    rig.abort("a")
    rig.abort("b")
    rig.scheduler.reset_prefix_cache()
    rig.add(make_request("c", range(10), skip_prefix_cache=True), make_request("d", range(10)))
    assert rig.step().num_tokens == [10, 2]


def test_different_salts_share_nothing(new_rig: MakeRig):
    rig = new_rig()
    for name, salt in (("a", None), ("b", "red"), ("c", "blue"), ("d", "red")):
        rig.add(make_request(name, range(10), cache_salt=salt))
    assert rig.step().num_tokens == [10, 10, 10, 2]


def test_without_prefix_caching_nothing_is_shared_and_answers_are_the_same(new_rig: MakeRig):
    tokens = []
    for is_on in (True, False):
        rig = new_rig(enable_prefix_caching=is_on)
        rig.add(make_request("a", range(10)), make_request("b", range(10)))
        rig.finish()
        tokens.append((rig.tokens_of("a"), rig.tokens_of("b")))
        assert is_on == (rig.scheduler.counters.prefix_hit_tokens > 0)
    assert tokens[0] == tokens[1]


def test_a_request_stops_at_its_end_of_sequence(new_rig: MakeRig):
    """The token that ended it is part of the delta."""
    rig = new_rig(answers({"a": [7, 2, 9]}))
    rig.add(make_request("a", max_tokens=9, eos_token_ids=[2]))
    rig.finish()
    assert rig.tokens_of("a") == [7, 2]
    assert (rig.end_of("a").finish_reason, rig.end_of("a").stop_reason) == ("stop", None)


def test_a_stop_token_is_named(new_rig: MakeRig):
    rig = new_rig(answers({"a": [7, 3, 9]}))
    rig.add(make_request("a", max_tokens=9, eos_token_ids=[2], stop_token_ids=[3]))
    rig.finish()
    assert rig.tokens_of("a") == [7, 3]
    assert (rig.end_of("a").finish_reason, rig.end_of("a").stop_reason) == ("stop", 3)


def test_logprobs_come_with_the_token(new_rig: MakeRig):
    rig = new_rig(answers({"a": [7, 8], "b": [9, 9]}))
    rig.add(make_request("a", max_tokens=2, sampling=SamplingSpec(num_logprobs=2)))
    rig.add(make_request("b", range(50, 55), max_tokens=2))
    rig.finish()
    entries = [one.logprobs for one in rig.deltas if one.request_id == "a"]
    assert [entry[0].token_ids for entry in entries if entry] == [[7, 7, 8], [8, 8, 9]]
    assert all(one.logprobs is None for one in rig.deltas if one.request_id == "b")


@pytest.mark.parametrize("budget", [1, 3, 4, 64])
def test_prompt_logprobs_come_once_for_each_prompt_token_after_the_first(
    new_rig: MakeRig, budget: int
):
    """However the prompt is cut into chunks; a chunk without a token is a delta of its own."""
    rig = new_rig(max_num_batched_tokens=budget)
    sampling = SamplingSpec(num_prompt_logprobs=0)
    rig.add(make_request("a", range(30, 40), sampling=sampling, skip_prefix_cache=True))
    rig.finish()
    entries = rig.prompt_logprobs_of("a")
    assert list(range(31, 40)) == [entry.token_ids[0] for entry in entries]


def test_two_schedulers_in_one_process_do_not_meet(new_rig: MakeRig):
    """No module-level state: what one computed the other does not find."""
    for _ in range(2):
        rig = new_rig()
        rig.add(make_request("a", range(10)))
        assert rig.step().num_tokens == [10]


def test_the_same_stream_gives_the_same_plans(new_rig: MakeRig):
    """Nothing depends on time, addresses or set order."""
    histories = []
    for _ in range(2):
        rig = new_rig(num_blocks=9, max_num_batched_tokens=7, scheduling_policy="priority")
        for start in range(6):
            rig.add(make_request(str(start), range(start % 2, 9), priority=start % 3))
        histories.append(rig.steps(30))
        rig.finish()
    assert histories[0] == histories[1]


def test_a_plan_that_was_not_committed_blocks_the_next_one(new_rig: MakeRig):
    rig = new_rig()
    rig.add(make_request("a"))
    plan = rig.plan()
    with pytest.raises(AssertionError, match="not committed"):
        rig.scheduler.plan()
    rig.finish_step(plan)


def test_a_live_id_cannot_be_added_again_but_an_ended_one_can(new_rig: MakeRig):
    rig = new_rig()
    rig.add(make_request("a", max_tokens=1))
    with pytest.raises(AssertionError, match="a is live"):
        rig.scheduler.add(make_request("a"))
    rig.finish()
    rig.add(make_request("a", max_tokens=1))
    rig.finish()
    assert len(rig.tokens_of("a")) == 2
