"""Who gives way in a full queue: by the policy, never one that ran, parties as a whole."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.contracts.request import EngineRequest, RequestParty
from octavo.scheduling.places import GAVE_WAY, who_gives_way
from octavo.scheduling.policy import find_policy
from octavo.scheduling.request import Status
from tests.support.builders import Rig, make_request, make_rig

RUNNING = make_request("running", range(90_000, 90_010), max_tokens=50)


def party(name: str, size: int = 1, **fields: Any) -> list[EngineRequest]:
    """Choices of one prompt."""
    told = RequestParty(name, size)
    first = make_request(f"{name}/0", range(10), party=told, **fields)
    others = [
        make_request(f"{name}/{number}", range(10), party=told, fork_of=first.request_id, **fields)
        for number in range(1, size)
    ]
    return [first, *others]


def full(policy: str, *parties: list[EngineRequest]) -> Rig:
    """One row, which is taken; all others wait."""
    rig = make_rig(
        scheduling_policy=policy, max_num_seqs=1, priority_preemption=policy != "priority"
    )
    rig.add(RUNNING)
    rig.step()
    for requests in parties:
        for request in requests:
            rig.add(request)
    return rig


def leaving(rig: Rig, policy: str, arrivals: list[EngineRequest], num_places: int) -> list[str]:
    scheduler = rig.scheduler
    starting = scheduler.standing_with(arrivals).starting
    found = who_gives_way(scheduler.roster, find_policy(policy), arrivals, starting, num_places)
    return [request.id for request in found]


@pytest.mark.parametrize(
    ("priority", "num_places", "expected"),
    [
        (0, 1, ["d/0"]),  # the newest of the worst
        (0, 2, ["d/0", "c/0"]),
        (0, 3, ["d/0", "c/0", "b/0", "b/1"]),  # choices of one prompt together
        (0, 6, []),
        (5, 1, []),
        (4, 2, ["d/0", "c/0"]),
        (4, 3, []),
    ],
)
def test_by_priority_the_worst_give_way_to_a_better_one(
    priority: int, num_places: int, expected: list[str]
):
    rig = full(
        "priority",
        party("c", priority=5, arrival_s=1.0),
        party("a", priority=0, arrival_s=2.0),
        party("b", 2, priority=3, arrival_s=3.0),
        party("d", priority=5, arrival_s=4.0),
    )

    assert leaving(rig, "priority", party("new", priority=priority), num_places) == expected


def test_first_come_first_served_moves_nobody():
    rig = full("fcfs", party("a"), party("b"))
    assert leaving(rig, "fcfs", party("new"), 1) == []


def test_who_ran_who_starts_and_who_came_without_a_bound_stays():
    rig = make_rig(scheduling_policy="priority", max_num_seqs=2)
    ran, starts = party("ran", priority=8), party("starts", priority=9)
    rig.add(ran[0])
    rig.step()
    rig.add(make_request("better", range(500, 510), max_tokens=50))
    rig.add(make_request("best", range(600, 610), max_tokens=50, priority=-1))
    rig.steps(2)
    assert rig.scheduler.requests["ran/0"].status is Status.PREEMPTED
    rig.add(make_request("unbound", range(700, 710), priority=9))

    assert leaving(rig, "priority", party("new", priority=-2), 1) == []

    rig.scheduler.abort("better")
    rig.scheduler.abort("best")
    rig.scheduler.abort("unbound")
    rig.add(starts[0])
    assert leaving(rig, "priority", party("new", priority=-2), 1) == []


def test_by_fairness_the_newest_of_the_fullest_tenant_gives_way():
    """Down to equal shares, and never to a request of the same tenant."""
    ann = [party(f"a{number}", tenant="ann") for number in range(4)]
    ben = [party(f"b{number}", tenant="ben") for number in range(2)]
    rig = full("fair", *ann, *ben)

    assert leaving(rig, "fair", party("new", tenant="cat"), 1) == ["a3/0"]
    assert leaving(rig, "fair", party("new", tenant="cat"), 2) == ["a3/0", "a2/0"]
    assert leaving(rig, "fair", party("new", 2, tenant="cat"), 2) == ["a3/0", "a2/0"]
    assert leaving(rig, "fair", party("new", 3, tenant="cat"), 3) == []
    assert leaving(rig, "fair", party("new", tenant="ben"), 1) == ["a3/0"]
    assert leaving(rig, "fair", party("new", 2, tenant="ben"), 2) == []
    assert leaving(rig, "fair", party("new", tenant="ann"), 1) == []


def test_those_that_leave_end_and_are_told_when_to_come_again():
    rig = full("priority", party("a", priority=1), party("b", 3, priority=2))
    arrivals = party("new", priority=0)
    standing = rig.scheduler.standing_with(arrivals)

    assert (standing.num_before, standing.num_after) == (4, 5)
    assert rig.scheduler.take_places(arrivals, standing, 1, 2.5)
    told = {delta.request_id: delta for delta in rig.scheduler.take_notices()}

    assert set(told) == {"b/0", "b/1", "b/2"}
    for delta in told.values():
        assert (delta.finish_reason, delta.error, delta.retry_after_s) == ("abort", GAVE_WAY, 2.5)
    assert rig.scheduler.standing_with(arrivals).num_after == 2
    rig.scheduler.abort("running", silent=True)
    rig.finish()
    assert len(rig.tokens_of("a/0")) == 4


TENANTS = st.sampled_from(["ann", "ben", "cat"])


@given(st.lists(st.tuples(TENANTS, st.integers(1, 3)), max_size=12), TENANTS, st.integers(1, 3))
def test_by_fairness_nobody_has_less_in_the_end_than_whom_it_made_room_for(
    waiting: list[tuple[str, int]], tenant: str, size: int
):
    """So two tenants cannot push each other out in turn."""
    parties = [
        party(f"p{number}", count, tenant=name) for number, (name, count) in enumerate(waiting)
    ]
    rig = full("fair", *parties)
    places = Counter(name for name, count in waiting for _ in range(count))

    gone = leaving(rig, "fair", party("new", size, tenant=tenant), size)
    lost = Counter(rig.scheduler.requests[one].tenant for one in gone)

    assert not gone or len(gone) >= size
    assert tenant not in lost
    for name, count in lost.items():
        assert places[name] - count >= places[tenant] + size
