"""check() notices damage; without this the other tests prove little."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
    scheduler.kv.reserve(scheduler.waiting.first.table, 4)


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
