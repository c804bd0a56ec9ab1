"""Who of those that wait seems to start: the look at rows and blocks that bounds a queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.contracts.request import BeamSpec, EngineRequest
from octavo.scheduling.admission import MAX_LOOK_AHEAD, MAX_TIMES_PASSED
from tests.scheduling.conftest import MakeRig
from tests.support.builders import Rig, make_request, make_rig


def prompts(name: str, lengths: list[int]) -> list[EngineRequest]:
    """Requests that share nothing."""
    return [
        make_request(f"{name} {number}", range(1000 * number, 1000 * number + length), tenant=name)
        for number, length in enumerate(lengths)
    ]


def choices(name: str, count: int, length: int = 8) -> list[EngineRequest]:
    first = make_request(f"{name}/0", range(length))
    others = [
        make_request(f"{name}/{n}", range(length), fork_of=first.request_id)
        for n in range(1, count)
    ]
    return [first, *others]


def num_before_and_after(rig: Rig, arrivals: list[EngineRequest]) -> tuple[int, int]:
    standing = rig.scheduler.standing_with(arrivals)
    return standing.num_before, standing.num_after


def num_that_must_wait(rig: Rig, arrivals: list[EngineRequest]) -> int:
    return num_before_and_after(rig, arrivals)[1]


LENGTHS = st.lists(st.integers(1, 24), max_size=12)


@given(
    waiting=LENGTHS,
    arrivals=LENGTHS,
    has_running=st.booleans(),
    num_blocks=st.integers(6, 40),
    num_rows=st.integers(1, 12),
    policy=st.sampled_from(["fcfs", "priority", "fair"]),
    windows=st.sampled_from([(0,), (0, 0)]),
)
def test_as_many_wait_as_a_plan_leaves_that_has_tokens_for_all(
    waiting: list[int],
    arrivals: list[int],
    has_running: bool,
    num_blocks: int,
    num_rows: int,
    policy: str,
    windows: tuple[int, ...],
):
    rig = make_rig(
        num_blocks=num_blocks * len(windows),
        windows=windows,
        max_num_seqs=num_rows,
        max_num_batched_tokens=1000,
        scheduling_policy=policy,
    )
    if has_running:
        rig.add(make_request("running", range(50_000, 50_005), max_tokens=2))
        rig.step()
    rig.add(*prompts("w", waiting))
    late = prompts("w", [0] * 20 + arrivals)[20:]
    expected = num_that_must_wait(rig, late)
    rig.add(*late)
    plan = rig.plan()
    assert rig.scheduler.roster.num_waiting == expected
    rig.finish_step(plan)
    rig.finish()


def test_nobody_waits_whom_rows_and_blocks_suffice_for(new_rig: MakeRig):
    """The tokens of a step are not counted: the next steps have some too."""
    rig = new_rig(num_blocks=101, max_num_seqs=50, max_num_batched_tokens=50)
    assert num_before_and_after(rig, prompts("a", [8] * 50)) == (0, 0)
    assert num_before_and_after(rig, prompts("a", [8] * 53)) == (0, 3)


def test_a_short_pool_bounds_whom_free_rows_would_take(new_rig: MakeRig):
    """Sixteen blocks hold eight prompts of eight tokens."""
    rig = new_rig(num_blocks=16, max_num_seqs=100)
    rig.add(*prompts("a", [8] * 10))
    assert num_before_and_after(rig, prompts("b", [8])) == (2, 3)


def test_the_choices_of_a_prompt_need_rows_and_hardly_any_block(new_rig: MakeRig):
    rig = new_rig(num_blocks=100, max_num_seqs=4)
    assert num_that_must_wait(rig, choices("a", 20)) == 16
    rig = new_rig(num_blocks=12, max_num_seqs=30)
    assert num_that_must_wait(rig, choices("a", 20, length=32)) == 20 - 1 - 4


def test_choices_wait_with_the_first_of_them(new_rig: MakeRig):
    rig = new_rig(num_blocks=8)
    rig.add(make_request("long", range(900, 917)))
    rig.step()
    assert num_that_must_wait(rig, choices("a", 3, length=16)) == 3
    rig.add(*choices("a", 3, length=16))
    assert num_before_and_after(rig, []) == (3, 3)
    rig.finish()


def test_choices_that_wait_for_the_prompt_to_be_computed_have_their_rows(new_rig: MakeRig):
    rig = new_rig(num_blocks=100, max_num_seqs=6, max_num_batched_tokens=6)
    rig.add(*choices("a", 8))
    rig.step()
    assert num_before_and_after(rig, []) == (2, 2)
    rig.finish()


def test_a_search_needs_a_row_for_each_of_its_beams(new_rig: MakeRig):
    rig = new_rig(num_blocks=100, max_num_seqs=4)
    search = make_request("s", beam=BeamSpec(beam_width=3, num_returned=1))
    assert num_that_must_wait(rig, [search, *prompts("a", [8] * 2)]) == 1
    assert num_that_must_wait(rig, [*prompts("a", [8] * 2), search]) == 1


def test_what_is_in_the_cache_needs_no_block(new_rig: MakeRig):
    """Beside a request that holds sixteen tokens in four of six blocks, two more find them."""
    rig = new_rig(num_blocks=7)
    rig.add(make_request("a", range(17), max_tokens=3))
    rig.step()
    same = [make_request(name, [*range(16), 99, number]) for number, name in enumerate("bc")]
    assert num_that_must_wait(rig, same) == 0
    salted = [make_request(name, range(17), cache_salt="x") for name in "bc"]
    assert num_that_must_wait(rig, salted) == 2
    rig.finish()


@pytest.mark.parametrize(
    ("num_big", "num_passing"), [(MAX_LOOK_AHEAD, MAX_TIMES_PASSED), (MAX_LOOK_AHEAD + 1, 0)]
)
def test_only_so_many_pass_those_that_do_not_fit(new_rig: MakeRig, num_big: int, num_passing: int):
    rig = new_rig(num_blocks=40, max_num_seqs=64)
    rig.add(make_request("long", range(900, 941), max_tokens=2))
    rig.step()
    small = prompts("small", [1] * 20)
    big = prompts("big", [120] * num_big)
    assert num_that_must_wait(rig, [*big, *small]) == num_big + 20 - num_passing
    rig.finish()


def test_a_preempted_request_waits_too(new_rig: MakeRig):
    rig = new_rig(num_blocks=4)
    rig.add(make_request("old", range(8)), make_request("young", range(50, 58)))
    rig.steps(2)
    assert num_before_and_after(rig, []) == (1, 1)
    rig.finish()
