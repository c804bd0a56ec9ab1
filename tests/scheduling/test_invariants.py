"""check() notices damage; without this the other tests prove little."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from octavo.contracts.request import BeamSpec
from octavo.scheduling.invariants import check
from octavo.scheduling.request import Status
from octavo.scheduling.scheduler import Scheduler
from tests.support.builders import make_request, make_rig


def make_busy() -> Scheduler:
    """One request waits, two run."""
    rig = make_rig(max_num_seqs=2)
    for start in (0, 50, 90):
        rig.add(make_request(str(start), range(start, start + 6)))
    rig.step()
    return rig.scheduler


def lose_a_row(scheduler: Scheduler) -> None:
    scheduler.running.first.row = 7


def share_a_row(scheduler: Scheduler) -> None:
    scheduler.running.first.row = scheduler.running.last.row


def free_a_row_in_use(scheduler: Scheduler) -> None:
    scheduler.rows.give_back(0)


def forget_a_request(scheduler: Scheduler) -> None:
    del scheduler.requests["0"]


def drop_from_its_queue(scheduler: Scheduler) -> None:
    scheduler.running.remove(scheduler.running.first)


def change_a_status(scheduler: Scheduler) -> None:
    scheduler.running.first.status = Status.PREEMPTED


def break_the_order(scheduler: Scheduler) -> None:
    scheduler.running.first.order = (99,)


def claim_more_computed_tokens(scheduler: Scheduler) -> None:
    scheduler.running.first.num_computed_tokens += 1


def hold_blocks_while_waiting(scheduler: Scheduler) -> None:
    scheduler.kv.admit(scheduler.waiting.first.table, 4)


@pytest.mark.parametrize(
    "damage",
    [
        lose_a_row,
        share_a_row,
        free_a_row_in_use,
        forget_a_request,
        drop_from_its_queue,
        change_a_status,
        break_the_order,
        claim_more_computed_tokens,
        hold_blocks_while_waiting,
    ],
)
def test_damage_is_noticed(damage: Callable[[Scheduler], None]):
    scheduler = make_busy()
    check(scheduler)
    damage(scheduler)
    with pytest.raises(AssertionError):
        check(scheduler)


def make_forked() -> Scheduler:
    """A search of two beams, and a family of which the leader is half computed."""
    rig = make_rig(max_num_batched_tokens=8, num_blocks=32)
    rig.add(make_request("s", range(6), beam=BeamSpec(beam_width=2, num_returned=2)))
    rig.steps(2)
    rig.add(make_request("a", range(50, 70)), make_request("a/1", range(50, 70), fork_of="a"))
    rig.step()
    return rig.scheduler


def lose_a_beam(scheduler: Scheduler) -> None:
    search = scheduler.requests["s"].search
    assert search is not None
    search.members.pop()
    search.entries.pop()


def change_a_beams_token(scheduler: Scheduler) -> None:
    search = scheduler.requests["s"].search
    assert search is not None
    search.members[0].token_ids[-1] += 1


def lose_the_leader(scheduler: Scheduler) -> None:
    (family,) = scheduler.roster.families
    family.leader = None


def forget_a_held_request(scheduler: Scheduler) -> None:
    (family,) = scheduler.roster.families
    family.held.clear()


def keep_a_snapshot_for_nobody(scheduler: Scheduler) -> None:
    (family,) = scheduler.roster.families
    scheduler.abort("a/1")
    family.snapshot = scheduler.kv.fork(family.members[0].table, family.members[0].token_ids)


@pytest.mark.parametrize(
    "damage",
    [
        lose_a_beam,
        change_a_beams_token,
        lose_the_leader,
        forget_a_held_request,
        keep_a_snapshot_for_nobody,
    ],
)
def test_damage_to_forks_is_noticed(damage: Callable[[Scheduler], None]):
    scheduler = make_forked()
    check(scheduler)
    damage(scheduler)
    with pytest.raises(AssertionError):
        check(scheduler)
