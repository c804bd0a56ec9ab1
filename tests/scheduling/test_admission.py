"""Admission: what can never run, what fits now, what stays spare."""

from __future__ import annotations

import pytest

from octavo.config.engine import SchedulerConfig
from octavo.errors import PromptTooLongError
from octavo.executor.scripted import answers
from octavo.scheduling.admission import check_fits, largest_request
from tests.scheduling.conftest import MakeRig
from tests.support.builders import make_kv_plan, make_request

CONFIG = SchedulerConfig(max_num_batched_tokens=16)


def test_the_largest_request_is_one_token_longer_than_the_pool(new_rig: MakeRig):
    """The last token of an answer is never computed; and that is exact, not an estimate."""
    limit = largest_request(make_kv_plan(4))
    assert limit == 17
    for max_tokens, reason in ((limit - 10, "length"), (limit - 9, "error")):
        rig = new_rig(num_blocks=4)
        rig.add(make_request("a", range(10), max_tokens=max_tokens))
        rig.finish()
        assert reason == rig.end_of("a").finish_reason


def test_a_request_that_fits_passes():
    check_fits(make_kv_plan(4), CONFIG, num_prompt_tokens=16, max_tokens=1)


@pytest.mark.parametrize(
    ("num_prompt_tokens", "max_tokens", "param", "message"),
    [
        (17, 1, "prompt", r"has 17 tokens, but the KV cache holds 16 tokens \(4 blocks of 4\)"),
        (10, 8, "max_tokens", r"max_tokens can be at most 7, got 8.*--kv-cache-memory-bytes"),
    ],
)
def test_a_request_that_can_never_fit_is_refused_with_numbers(
    num_prompt_tokens: int, max_tokens: int, param: str, message: str
):
    with pytest.raises(PromptTooLongError, match=message) as caught:
        check_fits(make_kv_plan(4), CONFIG, num_prompt_tokens, max_tokens)
    assert param == caught.value.param


def test_without_chunked_prefill_the_step_limits_the_prompt():
    whole = SchedulerConfig(max_num_batched_tokens=16, enable_chunked_prefill=False)
    check_fits(make_kv_plan(16), whole, num_prompt_tokens=16, max_tokens=8)
    with pytest.raises(PromptTooLongError, match="a step computes at most 16"):
        check_fits(make_kv_plan(16), whole, num_prompt_tokens=17, max_tokens=8)


def test_a_prompt_larger_than_the_pool_ends_with_the_numbers_and_does_not_block_the_queue(
    new_rig: MakeRig,
):
    """Intake refuses it; should one come through, it fails alone."""
    rig = new_rig(num_blocks=4)
    rig.add(make_request("huge", range(17)), make_request("small", range(5), max_tokens=1))
    rig.finish()
    assert rig.end_of("huge").finish_reason == "error"
    assert "has 17 tokens and needs 5 KV blocks of 4 tokens, the whole cache has 4" in (
        rig.end_of("huge").error or ""
    )
    assert rig.end_of("small").finish_reason == "length"


def test_blocks_for_the_whole_prompt_are_reserved_with_its_first_chunk(new_rig: MakeRig):
    """So a prefill that has begun never waits for blocks."""
    rig = new_rig(max_num_batched_tokens=4)
    rig.add(make_request("a", range(13)))
    plan = rig.step()
    assert plan.num_tokens == [4]
    assert plan.new_rows[0].block_ids == [[0, 1, 2, 3]]


def test_half_done_prefills_do_not_lock_each_other(new_rig: MakeRig):
    """Two prompts that fit the pool one at a time: the second waits outside."""
    rig = new_rig(num_blocks=4, max_num_batched_tokens=6)
    prompts = {"a": range(14), "b": range(50, 64)}
    rig.add(*(make_request(name, prompt, max_tokens=2) for name, prompt in prompts.items()))
    rig.finish()
    assert rig.scheduler.counters.num_preemptions == 0
    assert [rig.end_of(name).finish_reason for name in prompts] == ["length", "length"]


def test_one_block_in_a_hundred_stays_spare_for_rows_that_decode(new_rig: MakeRig):
    """Else an admission could end in a preemption in the next step."""
    rig = new_rig(num_blocks=200, max_num_batched_tokens=1000)
    rig.add(make_request("a", range(39), max_tokens=9))
    rig.steps(2)
    # The next token takes its eleventh block: 189 are left, two of them spare.
    fits, too_long = range(1000, 1000 + 187 * 4), range(3000, 3000 + 188 * 4)
    rig.add(make_request("too long", too_long))
    rig.step()
    assert len(rig.scheduler.running) == 1
    rig.abort("too long")
    rig.add(make_request("fits", fits))
    rig.step()
    assert len(rig.scheduler.running) == 2


def test_a_lone_request_may_use_the_spare_blocks_as_well(new_rig: MakeRig):
    rig = new_rig(answers({"a": []}), num_blocks=200, max_num_batched_tokens=1000)
    rig.add(make_request("a", range(800), max_tokens=1))
    rig.finish()
    assert rig.end_of("a").finish_reason == "length"
