"""Beam search in the scheduler: rows, forks, shortage; the answer is that of a quiet machine."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from octavo.contracts.request import BeamSpec, EngineRequest
from octavo.engine.beam_search import num_blocks_of_beams
from octavo.executor.scripted import Candidates
from octavo.scheduling.request import Status
from tests.properties.histories import candidates, script
from tests.scheduling.conftest import MakeRig
from tests.support.beam_twin import solo_beams
from tests.support.builders import Rig, make_kv_plan, make_request


def make_search(
    request_id: str = "s", prompt: Any = range(10), width: int = 3, **fields: Any
) -> EngineRequest:
    spec = BeamSpec(beam_width=width, num_returned=width, early_stopping="never")
    return make_request(request_id, prompt, beam=spec, **{"max_tokens": 8, **fields})


def judge(rig: Rig, request: EngineRequest, next_tokens: Candidates = candidates) -> None:
    end = rig.end_of(request.request_id)
    assert end.beams is not None, end
    expected = solo_beams(request, next_tokens)
    assert [tokens for tokens, _ in expected] == [one.token_ids for one in end.beams]
    assert [score for _, score in expected] == pytest.approx([one.score for one in end.beams])


def test_one_delta_brings_the_beams(new_rig: MakeRig):
    rig = new_rig(script, candidates=candidates)
    request = make_search(eos_token_ids=[5])
    rig.add(request)
    rig.finish()
    (end,) = rig.deltas
    assert end.token_ids == []
    assert end.finish_reason in {"stop", "length"}
    judge(rig, request)


def test_the_prompt_is_computed_once_and_beams_share_its_blocks(new_rig: MakeRig):
    """Two full blocks for all three; two of them copy the partial one before they write."""
    rig = new_rig(script, candidates=candidates, enable_prefix_caching=False)
    rig.add(make_search())
    assert rig.step().num_tokens == [10]
    plan = rig.step()
    assert plan.num_tokens == [1, 1, 1]
    assert [new.num_computed_tokens for new in plan.new_rows] == [10, 10]
    assert len(plan.copy_to) == 2
    assert len({block_id for new in plan.new_rows for block_id in new.block_ids[0][:2]}) == 2
    rig.finish()


def test_a_beam_whose_best_token_ends_it_goes_on_with_another_one(new_rig: MakeRig):
    """It keeps its row; the token that the runner sampled is replaced."""
    rig = new_rig(script, candidates=candidates)
    request = make_search(eos_token_ids=[1, 3, 5, 7, 9, 11], max_tokens=12)
    rig.add(request)
    plans = rig.steps(12)
    assert any(plan.replaced_rows for plan in plans)
    for plan in plans:
        assert set(plan.replaced_rows) <= set(plan.rows)
        assert set(plan.replaced_rows).isdisjoint(new.row for new in plan.new_rows)
    rig.finish()
    judge(rig, request)


def test_a_search_may_be_one_token_long(new_rig: MakeRig):
    rig = new_rig(script, candidates=candidates)
    request = make_search(max_tokens=1)
    rig.add(request)
    rig.finish()
    assert len(rig.deltas) == 1
    judge(rig, request)


@pytest.mark.parametrize("preemption_mode", ["recompute", "swap"])
@pytest.mark.parametrize("enable_prefix_caching", [True, False])
@pytest.mark.parametrize("budget", [64, 7])
def test_a_preempted_search_comes_back_as_a_whole(
    new_rig: MakeRig, preemption_mode: str, enable_prefix_caching: bool, budget: int
):
    """An older request grows until the search must yield."""
    rig = new_rig(
        script,
        candidates=candidates,
        num_blocks=12,
        num_host_slots=12,
        preemption_mode=preemption_mode,
        enable_prefix_caching=enable_prefix_caching,
        max_num_batched_tokens=budget,
    )
    request = make_search(max_tokens=12)
    rig.add(make_request("old", range(50, 62), max_tokens=20), request)
    rig.finish()
    end = rig.end_of("s")
    assert end.num_preemptions >= 1
    assert (end.num_swaps > 0) == (preemption_mode == "swap")
    judge(rig, request)


def test_beams_are_not_swapped_when_a_state_has_taken_in_the_last_token_of_one(new_rig: MakeRig):
    """That beam has its next tokens and waits for the others, who find no blocks: it could not
    compute its last token again, as it does where there are only keys and values."""
    rig = new_rig(
        script,
        candidates=candidates,
        windows=(0, -3),
        block_size=1,
        num_blocks=24,
        num_host_slots=20,
        max_num_seqs=4,
        max_num_batched_tokens=4,
        enable_chunked_prefill=False,
        preemption_mode="swap",
        max_decode_slowdown=0.0,
    )
    rig.add(make_request("first", [0], max_tokens=1), make_request("old", [0, 0], max_tokens=8))
    request = make_request("s", [0, 0], max_tokens=4, beam=BeamSpec(beam_width=3, num_returned=1))
    rig.add(request)
    rig.finish()
    judge(rig, request)


def test_rows_are_kept_for_the_beams_that_a_search_will_have(new_rig: MakeRig):
    """Whoever took one would have to leave it in the next step."""
    rig = new_rig(script, candidates=candidates, max_num_seqs=3)
    request = make_search()
    rig.add(request, make_request("b", [90], max_tokens=9), make_request("c", [91], max_tokens=9))
    assert rig.step().num_tokens == [10]
    rig.steps(1)
    assert [one.id for one in rig.scheduler.running] == ["s"]
    rig.finish()
    assert rig.scheduler.counters.num_preemptions == 0
    judge(rig, request)


def test_two_searches_run_side_by_side_if_there_are_rows_for_both(new_rig: MakeRig):
    """With one row less the second one waits for the end of the first."""
    for num_rows, num_running in ((6, 2), (5, 1)):
        rig = new_rig(script, candidates=candidates, max_num_seqs=num_rows)
        searches = make_search("s"), make_search("t", range(20, 30))
        rig.add(*searches)
        rig.steps(3)
        assert len(rig.scheduler.running) == num_running
        rig.finish()
        for request in searches:
            judge(rig, request)


def test_beams_wait_for_those_who_stand_before_the_search(new_rig: MakeRig):
    """It holds what it has; nothing of it is computed twice."""
    rig = new_rig(script, candidates=candidates, max_num_seqs=3)
    request = make_search()
    rig.add(make_request("a", [90], max_tokens=6), request)
    rig.finish()
    assert rig.end_of("s").num_preemptions == 0
    judge(rig, request)


def test_more_beams_than_rows_are_refused_with_the_numbers(new_rig: MakeRig):
    rig = new_rig(script, candidates=candidates, max_num_seqs=2)
    rig.add(make_search(width=3))
    rig.finish()
    assert "beam_width is 3, but a step computes at most 2 sequences" in (
        rig.end_of("s").error or ""
    )


def test_a_search_that_outgrows_the_pool_alone_fails_with_the_numbers(new_rig: MakeRig):
    rig = new_rig(script, candidates=candidates, num_blocks=5, max_num_seqs=4)
    rig.add(make_search(width=4, prompt=range(15), max_tokens=12))
    rig.finish()
    assert "need more than the whole cache of 5 KV blocks" in (rig.end_of("s").error or "")


def parting(token_ids: Sequence[int], count: int) -> list[tuple[int, float]]:
    """Beams part behind the prompt, which ends with 0, and each goes on for itself."""
    if token_ids[-1] == 0:
        return [(1 + place, -1.0 - place / 1000) for place in range(count)]
    return [(token_ids[-1], -0.001), *((50 + place, -50.0 - place) for place in range(count - 1))]


@pytest.mark.parametrize("seed", range(150))
def test_a_search_ends_in_as_many_blocks_as_it_may_need_and_not_in_one_less(
    new_rig: MakeRig, seed: int
):
    """Whatever its groups of layers, limits and beams are. One block less is too few for beams that
    have as little in common as can be."""
    random = Random(seed)
    windows = random.choices([0, 1, 2, 3, 5, 6, 8, 9, 13], k=random.choice([1, 2, 3]))
    options: dict[str, Any] = {
        "windows": (*windows, *random.choice([(), (-2,)])),
        "block_size": random.choice([1, 2, 4]),
        "max_num_seqs": random.choice([4, 6]),
        "max_num_batched_tokens": random.choice([4, 7, 64]),
        "enable_prefix_caching": random.random() < 0.5,
        "preemption_mode": random.choice(["recompute", "swap"]),
        "num_host_slots": random.choice([0, 20]),
    }
    prompt = [*range(random.randrange(25), 0, -1), 0]
    width, max_tokens = random.randint(1, 4), random.randint(1, 18)
    plan = make_kv_plan(block_size=options["block_size"], windows=options["windows"])
    num_blocks = num_blocks_of_beams(plan, width, len(prompt), max_tokens)
    for next_tokens in (candidates, parting):
        rig = new_rig(script, candidates=next_tokens, num_blocks=num_blocks, **options)
        request = make_search(prompt=prompt, width=width, max_tokens=max_tokens)
        rig.add(request)
        rig.finish()
        judge(rig, request, next_tokens)

    small = new_rig(script, candidates=parting, num_blocks=num_blocks - 1, **options)
    small.add(request)
    small.finish()
    assert small.end_of("s").finish_reason == "error"


def test_an_error_of_one_beam_ends_the_search(new_rig: MakeRig):
    rig = new_rig(script, candidates=candidates)
    rig.add(make_search(), make_request("b", range(50, 55)))
    rig.steps(3)
    rig.executor.fail_row("s", "NaN")
    rig.finish()
    assert (rig.end_of("s").finish_reason, rig.end_of("s").error) == ("error", "NaN")
    assert rig.end_of("b").finish_reason == "length"
    assert rig.scheduler.rows.num_free == rig.scheduler.rows.num_rows


@pytest.mark.parametrize("num_steps", [0, 1, 2, 3])
def test_a_search_can_be_aborted_between_steps(new_rig: MakeRig, num_steps: int):
    rig = new_rig(script, candidates=candidates)
    rig.add(make_search())
    rig.steps(num_steps)
    rig.abort("s")
    assert rig.scheduler.kv.num_used_blocks == 0
    assert rig.scheduler.rows.num_free == rig.scheduler.rows.num_rows
    rig.finish()
    assert rig.end_of("s").finish_reason == "abort"


def test_a_search_can_be_aborted_while_its_step_runs(new_rig: MakeRig):
    rig = new_rig(script, candidates=candidates)
    rig.add(make_search())
    rig.steps(2)
    plan = rig.plan()
    rig.abort("s")
    rig.commit(plan, rig.run(plan))
    assert rig.scheduler.kv.num_used_blocks == 0
    rig.finish()
    assert rig.end_of("s").finish_reason == "abort"


def test_a_better_arrival_displaces_a_whole_search(new_rig: MakeRig):
    rig = new_rig(script, candidates=candidates, max_num_seqs=3, scheduling_policy="priority")
    request = make_search(priority=5)
    rig.add(request)
    rig.steps(3)
    rig.add(make_request("high", [90], priority=0))
    rig.step()
    assert rig.scheduler.requests["s"].status is Status.PREEMPTED
    rig.finish()
    judge(rig, request)


def test_windows_and_beams_go_together(new_rig: MakeRig):
    rig = new_rig(script, candidates=candidates, num_blocks=40, windows=(0, 6))
    request = make_search(prompt=range(13), max_tokens=14)
    rig.add(request)
    rig.finish()
    judge(rig, request)


def test_generated_tokens_are_those_that_are_returned(new_rig: MakeRig):
    rig = new_rig(script, candidates=candidates)
    rig.add(make_search())
    rig.finish()
    num_returned = sum(len(one.token_ids) for one in rig.end_of("s").beams or [])
    assert rig.scheduler.counters.num_generation_tokens == num_returned
