"""Speculation in the scheduler: fewer steps, the same answers, and no room taken from anybody."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.contracts.request import BeamSpec, EngineRequest
from octavo.contracts.step import SamplingSpec, StepPlan
from octavo.executor.scripted import answers
from tests.properties.histories import Form, candidates
from tests.support.builders import BLOCK_SIZE, Rig, make_request, make_rig

PATTERN = [3, 1, 4, 1, 5, 9, 2, 6]


def ngram(**fields: Any) -> str:
    return json.dumps({"method": "ngram", "num_speculative_tokens": 4} | fields)


LOOKUP = ngram(prompt_lookup_max=3, prompt_lookup_min=2)


def repeating(
    request_id: str = "a", *, max_tokens: int = 24, **fields: Any
) -> tuple[EngineRequest, list[int]]:
    """A request whose answer goes on with the pattern of its prompt, and that answer."""
    request = make_request(request_id, PATTERN * 2, max_tokens=max_tokens, **fields)
    return request, (PATTERN * max_tokens)[:max_tokens]


def spec_rig(*ids: str, **options: Any) -> Rig:
    """All requests with these ids repeat the pattern."""
    script = answers(dict.fromkeys(ids or ("a",), PATTERN * 40))
    return make_rig(script, **({"num_blocks": 64, "speculative_config": LOOKUP} | options))


def run(rig: Rig, limit: int = 100) -> list[StepPlan]:
    plans = []
    while rig.scheduler.has_work():
        plans.append(rig.step())
        assert len(plans) < limit
    return plans


def num_drafted(plan: StepPlan) -> int:
    return sum(map(len, plan.draft_token_ids))


def test_a_text_that_repeats_itself_takes_fewer_steps_and_is_the_same() -> None:
    rig, (request, answer) = spec_rig(), repeating()
    rig.add(request)
    plans = run(rig)

    assert rig.tokens_of("a") == answer
    assert len(plans) < 10
    assert max(len(delta.token_ids) for delta in rig.deltas) == 5
    assert num_drafted(plans[0]) == 0


def test_a_text_that_does_not_repeat_itself_is_the_same() -> None:
    """The end of the prompt stood before, so there are guesses, all of them wrong."""
    rig = make_rig(answers({"a": list(range(50, 80))}), num_blocks=64, speculative_config=LOOKUP)
    rig.add(make_request("a", [*PATTERN, 50, *PATTERN, 50, *PATTERN], max_tokens=30))
    plans = run(rig)

    assert rig.tokens_of("a") == list(range(50, 80))
    assert len(plans) == 30
    assert rig.scheduler.counters.num_accepted_tokens == 0


@pytest.mark.parametrize("place", range(2, 12))
def test_an_end_inside_the_accepted_tokens_ends_the_answer_there(place: int) -> None:
    """A stop id, an end-of-sequence id and the length, wherever they stand in a run of guesses."""
    part = list(range(40, 52))
    for fields, reason in (
        ({"stop_token_ids": [part[place]]}, "stop"),
        ({"eos_token_ids": [part[place]]}, "stop"),
        ({"max_tokens": place + 1}, "length"),
    ):
        rig = make_rig(answers({"a": part * 3}), num_blocks=64, speculative_config=LOOKUP)
        rig.add(make_request("a", part * 2, **{"max_tokens": 30, **fields}))
        run(rig)
        assert rig.tokens_of("a") == part[: place + 1]
        assert rig.end_of("a").finish_reason == reason
        assert rig.scheduler.counters.num_accepted_tokens > 0
        assert rig.scheduler.kv.num_used_blocks == 0


def test_no_guess_goes_beyond_the_end_of_the_answer() -> None:
    """All are right here, so each token but the last is computed once."""
    for max_tokens in range(2, 20):
        rig, (request, _answer) = spec_rig(), repeating(max_tokens=max_tokens)
        rig.add(request)
        plans = run(rig)
        assert sum(plan.total_tokens for plan in plans) == 16 + max_tokens - 1


def test_each_token_keeps_its_own_logprobs() -> None:
    rig, (request, answer) = spec_rig(), repeating(sampling=SamplingSpec(num_logprobs=0))
    rig.add(request)
    run(rig)

    entries = [entry for delta in rig.deltas for entry in delta.logprobs or ()]
    assert [entry.token_ids[0] for entry in entries] == answer
    assert rig.scheduler.counters.num_accepted_tokens > 10


def test_guesses_never_take_the_tokens_of_a_step_from_others() -> None:
    """Ten tokens a step, and a long prompt that could use all of them."""
    rig = spec_rig("a", "b", max_num_batched_tokens=10)
    rig.add(repeating()[0])
    rig.steps(4)
    rig.add(make_request("b", range(100, 145), max_tokens=3))
    beside = rig.steps(4)
    alone = rig.step()

    assert [plan.num_tokens for plan in beside] == [[1, 9]] * 4
    assert not any(plan.draft_rows for plan in beside)
    assert alone.total_tokens <= 10


def test_guesses_never_take_the_last_blocks_from_others() -> None:
    """A block that only guesses need is taken if one for each running request stays free."""
    num_taken = 0
    for num_blocks in range(12, 32):
        rig = spec_rig("a", "b", "c", num_blocks=num_blocks)
        for name in ("a", "b", "c"):
            rig.add(repeating(name)[0])
        while rig.scheduler.has_work():
            plan = rig.plan()
            length_of = {one.row: len(one.token_ids) for one in rig.scheduler.in_flight}
            edits = zip(plan.table_rows, plan.table_places, strict=True)
            ahead = [row for row, place in edits if place * BLOCK_SIZE >= length_of[row]]
            if ahead:
                assert rig.scheduler.kv.num_free_blocks >= len(rig.scheduler.running)
            num_taken += len(ahead)
            rig.finish_step(plan)
        assert [rig.tokens_of(name) for name in ("a", "b", "c")] == [repeating()[1]] * 3
    assert num_taken > 10


def test_blocks_that_right_guesses_fill_are_found_by_the_next_prompt() -> None:
    """Up to the last computed token, wherever the answer ended."""
    for max_tokens in range(5, 25):
        rig, (request, answer) = spec_rig("a", "b"), repeating(max_tokens=max_tokens)
        rig.add(request)
        run(rig)
        rig.add(make_request("b", [*PATTERN * 2, *answer, 77], max_tokens=1))
        run(rig)
        assert rig.end_of("b").num_cached_tokens == 16 + max_tokens - 1


def test_a_prompt_whose_last_token_comes_alone_brings_no_guesses() -> None:
    """Other choices take its blocks with that step."""
    rig = spec_rig("a", "a/1", max_num_seqs=1, max_num_batched_tokens=15)
    for name in ("a", "a/1"):
        rig.add(repeating(name, fork_of=None if name == "a" else "a")[0])
    plans = run(rig)
    assert [plan.num_tokens for plan in plans[:2]] == [[15], [1]]
    assert plans[2].draft_rows
    assert rig.tokens_of("a/1") == rig.tokens_of("a") == repeating()[1]


@pytest.mark.parametrize(
    "sampling",
    [
        SamplingSpec(repetition_penalty=1.1),
        SamplingSpec(presence_penalty=0.5),
        SamplingSpec(frequency_penalty=-0.5),
        SamplingSpec(processor_params={}),
    ],
    ids=["repetition", "presence", "frequency", "processor"],
)
def test_a_request_with_penalties_or_processors_makes_no_guesses(sampling: SamplingSpec) -> None:
    """What they do depends on the tokens before, of which drafts are only guesses."""
    rig, (request, answer) = spec_rig(), repeating(sampling=sampling)
    rig.add(request)
    run(rig)
    assert rig.tokens_of("a") == answer
    assert rig.scheduler.counters.num_draft_tokens == 0


def test_answers_with_a_form_and_beams_make_no_guesses() -> None:
    rig = make_rig(
        lambda *_: 1, candidates, num_blocks=64, max_num_seqs=4, speculative_config=LOOKUP
    )
    request = make_request("a", PATTERN * 2, max_tokens=8)
    rig.executor.obey_masks()
    rig.add(request, constraint=Form(request, 8))
    beam = BeamSpec(beam_width=2, num_returned=1)
    rig.add(make_request("b", PATTERN * 2, max_tokens=8, beam=beam))
    run(rig)
    assert rig.scheduler.counters.num_draft_tokens == 0


def test_choices_of_one_prompt_guess_each_for_itself() -> None:
    """The second one enters as a twin; the third waits for a row and forks from a snapshot."""
    rig = spec_rig("a", "a/1", "a/2", max_num_seqs=2)
    names = ["a", "a/1", "a/2"]
    for name in names:
        rig.add(repeating(name, fork_of=None if name == "a" else "a")[0])
    run(rig)
    assert [rig.tokens_of(name) for name in names] == [repeating()[1]] * 3
    assert rig.scheduler.counters.num_accepted_tokens > 30


def test_an_abort_while_guesses_are_tested_leaves_nothing_behind() -> None:
    rig = spec_rig("a", "b")
    for name in ("a", "b"):
        rig.add(repeating(name)[0])
    rig.steps(3)
    plan = rig.plan()
    assert len(plan.draft_rows) == 2
    result = rig.run(plan)
    rig.abort("a")
    rig.commit(plan, result)
    run(rig)
    assert rig.tokens_of("b") == repeating()[1]
    assert rig.scheduler.kv.num_used_blocks == 0


def test_a_row_that_fails_while_its_guesses_are_tested_fails_alone() -> None:
    rig = spec_rig("a", "b")
    for name in ("a", "b"):
        rig.add(repeating(name)[0])
    rig.steps(3)
    rig.executor.fail_row("a", "broken")
    run(rig)
    assert rig.end_of("a").error == "broken"
    assert rig.tokens_of("b") == repeating()[1]


def test_what_was_drafted_and_accepted_is_counted_by_place() -> None:
    rig = spec_rig()
    rig.add(repeating()[0])
    plans = run(rig)
    counters = rig.scheduler.counters

    assert counters.num_drafts == sum(len(plan.draft_rows) for plan in plans)
    assert counters.num_draft_tokens == sum(map(num_drafted, plans))
    assert counters.num_accepted_tokens == sum(counters.num_accepted_by_place)
    assert len(counters.num_accepted_by_place) == 4
    assert counters.num_accepted_by_place[0] == counters.num_drafts
    assert counters.num_generation_tokens == 24


def test_tenants_pay_for_their_guesses() -> None:
    """They are computed like other tokens."""
    rig = spec_rig("a", scheduling_policy="fair")
    rig.add(repeating(tenant="one")[0])
    plans = run(rig)
    assert rig.scheduler.shares is not None
    served = rig.scheduler.shares.ledger.served("one")
    assert served == sum(plan.total_tokens for plan in plans)


def test_a_step_that_measures_decoding_alone_has_no_guesses() -> None:
    """Pacing asks for it while prompts wait, to know what a chunk beside decoding rows costs."""
    rig = spec_rig("a", "b", max_num_batched_tokens=16, max_decode_slowdown=1.4)
    rig.add(repeating(max_tokens=200)[0])
    for _ in range(4):
        plan = rig.step()
        rig.scheduler.note_step(plan, 0.01, 0.0)
    assert plan.draft_rows
    rig.add(make_request("b", range(100, 180), max_tokens=2))
    plans = []
    for _ in range(40):
        plan = rig.step()
        rig.scheduler.note_step(plan, 0.01 + 0.001 * plan.total_tokens, 0.0)
        plans.append(plan)
    probes = [plan for plan in plans if plan.num_tokens == [1]]
    assert probes
