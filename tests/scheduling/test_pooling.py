"""Requests for vectors: they end with their prompt, and never decode."""

from __future__ import annotations

from array import array

from octavo.contracts.step import PoolingMethod
from tests.scheduling.conftest import MakeRig
from tests.support.builders import Rig, make_request


def vector_of(rig: Rig, request_id: str) -> list[float]:
    raw = rig.end_of(request_id).pooled
    assert raw is not None
    return array("f", raw).tolist()


def test_a_pooled_request_ends_in_the_step_that_completes_its_prompt(new_rig: MakeRig) -> None:
    """It samples nothing, its last delta brings the vector, and its blocks are free."""
    rig = new_rig()
    rig.add(make_request("a", range(10), max_tokens=1, pooling="last"))

    [plan] = rig.steps(1)

    assert ([10], [False]) == (plan.num_tokens, plan.samples)
    assert "last" == plan.new_rows[0].pooling
    assert rig.end_of("a").finish_reason == "stop"
    assert rig.end_of("a").token_ids == []
    assert vector_of(rig, "a") == [45.0]
    assert not rig.scheduler.has_work()
    assert rig.scheduler.kv.num_used_blocks == 0


def test_pooled_requests_of_one_step_are_batched_and_the_next_take_their_rows(
    new_rig: MakeRig,
) -> None:
    """Continuous batching: whatever fits the budget enters, the rest as soon as it fits."""
    rig = new_rig(max_num_batched_tokens=24, max_num_seqs=2, enable_chunked_prefill=False)
    for name in "abcd":
        prompt = range(8 * ord(name), 8 * ord(name) + 8)
        rig.add(make_request(name, prompt, max_tokens=1, pooling="mean", skip_prefix_cache=True))

    plans = rig.steps(2)

    assert [[8, 8], [8, 8]] == [plan.num_tokens for plan in plans]
    assert plans[1].freed_rows == [0, 1]
    assert not rig.scheduler.has_work()


def test_a_prompt_that_must_be_whole_waits_for_a_step_with_room(new_rig: MakeRig) -> None:
    """Without chunked prefill it is never cut."""
    rig = new_rig(max_num_batched_tokens=12, enable_chunked_prefill=False)
    methods: tuple[PoolingMethod, ...] = ("first", "all")
    for place, method in enumerate(methods):
        prompt = range(50 * place, 50 * place + 10)
        rig.add(make_request(method, prompt, max_tokens=1, pooling=method))

    assert [[10], [10]] == [plan.num_tokens for plan in rig.steps(2)]
    assert len(vector_of(rig, "first")) == 1
    assert len(vector_of(rig, "all")) == 10


def test_a_last_token_may_be_pooled_after_chunks(new_rig: MakeRig) -> None:
    """Only the step with the last token ends the request."""
    rig = new_rig(max_num_batched_tokens=6)
    rig.add(make_request("a", range(15), max_tokens=1, pooling="last"))

    assert [[6], [6], [3]] == [plan.num_tokens for plan in rig.steps(3)]
    assert vector_of(rig, "a") == [105.0]


def test_an_equal_beginning_is_not_computed_again(new_rig: MakeRig) -> None:
    """For the last token the prefix cache serves as for text."""
    rig = new_rig()
    rig.add(make_request("a", range(12), max_tokens=1, pooling="last"))
    rig.steps(1)
    rig.add(make_request("b", range(14), max_tokens=1, pooling="last"))

    [plan] = rig.steps(1)

    assert [2] == plan.num_tokens
    assert rig.end_of("b").num_cached_tokens == 12
    assert vector_of(rig, "b") == [91.0]


def test_a_fault_of_one_row_fails_that_request_alone(new_rig: MakeRig) -> None:
    """The other one has its vector."""
    rig = new_rig()
    rig.executor.fail_row("a", "no vector")
    rig.add(make_request("a", range(8), max_tokens=1, pooling="last"))
    rig.add(make_request("b", range(50, 58), max_tokens=1, pooling="last"))
    rig.steps(1)

    assert (rig.end_of("a").finish_reason, rig.end_of("a").error) == ("error", "no vector")
    assert rig.end_of("b").finish_reason == "stop"


def test_text_and_vectors_share_a_step(new_rig: MakeRig) -> None:
    """A row that samples and a row that is pooled do not mind each other."""
    rig = new_rig()
    rig.add(make_request("a", range(8), max_tokens=2))
    rig.add(make_request("b", range(50, 58), max_tokens=1, pooling="last"))

    plans = rig.steps(2)

    assert [[True, False], [True]] == [plan.samples for plan in plans]
    assert len(rig.tokens_of("a")) == 2
    assert vector_of(rig, "b") == [float(sum(range(50, 58)))]
