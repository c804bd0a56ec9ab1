"""The contiguous policies do what the systems did that they stand for."""

from __future__ import annotations

import pytest

from benchmarks.kv_meter import KVMeter
from benchmarks.serving_policies.policies import CONTIGUOUS, POLICIES, ContiguousCore, make_core
from octavo.contracts.request import EngineRequest
from octavo.contracts.step import SamplingSpec, StepPlan
from octavo.executor.scripted import ScriptedExecutor, hash_of_history
from octavo.foundation.clock import ManualClock
from tests.benchmarks.support import NO_CACHE, SCHEDULER, entry, kv_plan, serve

MAX_MODEL_LEN = 64


def request(name: str, prompt_len: int = 10, max_tokens: int = 6) -> EngineRequest:
    return EngineRequest(
        request_id=name,
        prompt_token_ids=[len(name), *range(prompt_len - 1)],
        sampling=SamplingSpec(),
        max_tokens=max_tokens,
    )


def scripted_core(
    policy: str, num_blocks: int = 16, plans: list[StepPlan] | None = None
) -> ContiguousCore:
    """A core on the executor that checks every plan."""
    plan = kv_plan(num_blocks)
    executor = ScriptedExecutor(
        hash_of_history(1000),
        plan,
        max_model_len=MAX_MODEL_LEN,
        before_run=None if plans is None else plans.append,
    )
    meter = KVMeter(plan, lambda request_id: None)
    core = make_core(policy, SCHEDULER, NO_CACHE, executor, ManualClock(), meter)
    assert isinstance(core, ContiguousCore)
    return core


@pytest.mark.parametrize("policy", CONTIGUOUS)
def test_answers_are_those_of_a_request_alone(policy: str) -> None:
    """Twenty requests, some of which wait, on an executor that believes no plan."""
    core = scripted_core(policy)
    sizes = [(3 + 7 * number % 40, 1 + 5 * number % 20) for number in range(20)]
    for number, (prompt_len, max_tokens) in enumerate(sizes):
        core.add_request(request(f"r{number}", prompt_len, max_tokens))
    answers: dict[str, list[int]] = {}
    while core.has_work():
        for delta in core.step():
            answers.setdefault(delta.request_id, []).extend(delta.token_ids)

    script = hash_of_history(1000)
    for number, (prompt_len, max_tokens) in enumerate(sizes):
        known = list(request(f"r{number}", prompt_len).prompt_token_ids)
        for _ in range(max_tokens):
            known.append(script("", known, 0))
        assert known[prompt_len:] == answers[f"r{number}"]


@pytest.mark.parametrize("policy", CONTIGUOUS)
def test_slots_are_contiguous_and_taken_once(policy: str) -> None:
    """All blocks come with the new row, in one run; no table ever grows."""
    plans: list[StepPlan] = []
    core = scripted_core(policy, plans=plans)
    core.add_request(request("one", 20, 12))
    while core.has_work():
        core.step()

    (new,) = plans[0].new_rows
    (table,) = new.block_ids
    assert list(range(table[0], table[0] + len(table))) == table
    assert all(not plan.table_rows for plan in plans)


@pytest.mark.parametrize(
    ("policy", "num_slots"),
    [("static", 64), ("orca-max", 64), ("orca-pow2", 20 + 16), ("orca-oracle", 20 + 11)],
)
def test_a_reservation_is_what_the_policy_says(policy: str, num_slots: int) -> None:
    """For 20 prompt tokens and an answer of 12, in whole blocks of 8."""
    plans: list[StepPlan] = []
    core = scripted_core(policy, plans=plans)
    core.add_request(request("one", 20, 12))
    core.step()

    assert -(-num_slots // 8) == len(plans[0].new_rows[0].block_ids[0])


def test_a_static_batch_is_answered_when_its_last_request_ends() -> None:
    """And nobody joins it."""
    trace = [entry(0.0, output_len=3), entry(0.0, output_len=9), entry(1.5, output_len=2)]

    outcome, _ = serve("static", trace, num_blocks=32)

    assert [9.0, 9.0, 9 + 2 - 1.5] == list(outcome.latency_s)


def test_orca_lets_requests_join_and_leave_at_every_step() -> None:
    """One second a step: a request that arrives in the second step begins in the third."""
    trace = [entry(0.0, output_len=3), entry(0.0, output_len=9), entry(1.5, output_len=2)]

    outcome, _ = serve("orca-max", trace, num_blocks=32)

    assert [3.0, 4 - 1.5, 9.0] == list(outcome.latency_s)


def test_a_request_waits_for_a_hole_of_its_size() -> None:
    """A pool of two longest sequences runs two requests at a time under Max, more when paged."""
    trace = [entry(0.0) for _ in range(6)]

    batches = {policy: serve(policy, trace)[0].end_s for policy in ("orca-max", "paged")}

    assert 3 * 6 == batches["orca-max"]
    assert 6 <= batches["paged"] < 3 * 6


def test_holes_that_are_too_small_are_counted_as_lost() -> None:
    """Three of four blocks are taken in the middle of the pool's life: no hole for two is left."""
    trace = [
        entry(0.0, prompt_len=8, output_len=2),
        entry(0.0, prompt_len=8, output_len=9),
        entry(0.0, prompt_len=8, output_len=3),
        entry(0.0, prompt_len=30, output_len=2),
    ]

    _, meter = serve("orca-oracle-first-fit", trace, num_blocks=7)

    assert 0 < meter.averages().lost


def test_a_request_larger_than_the_pool_is_refused() -> None:
    """With both numbers."""
    core = scripted_core("orca-max", num_blocks=4)

    with pytest.raises(ValueError, match="reserves 8 blocks, the pool has 4"):
        core.add_request(request("one"))


def test_an_unknown_policy_is_refused() -> None:
    """With the list of those that exist."""
    with pytest.raises(ValueError, match=f"choose from {POLICIES[0]}"):
        scripted_core("orca-min")
