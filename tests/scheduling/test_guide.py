"""Answers under a constraint: each token is told once, and the end of the form is the end."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest

from octavo.contracts.grammar import ConstraintError
from octavo.executor.scripted import PlanError, answers
from tests.scheduling.conftest import MakeRig
from tests.support.builders import Rig, make_request

FREE = b""


def mask_of(token_ids: Collection[int]) -> bytes:
    return sum(1 << token_id for token_id in token_ids).to_bytes(32, "little")


class Follows:
    """A constraint that wants exactly these tokens. -1: it breaks there."""

    def __init__(self, *wanted: int) -> None:
        self.wanted = wanted
        self.told: list[int] = []

    def mask(self) -> bytes:
        return mask_of([self._next()])

    def accept(self, token_id: int) -> bool:
        assert token_id == self._next()
        self.told.append(token_id)
        if len(self.told) < len(self.wanted) and self._next() < 0:
            raise ConstraintError("too complex")
        return len(self.told) == len(self.wanted)

    def _next(self) -> int:
        return self.wanted[len(self.told)]


class Thinks(Follows):
    """Every token may come until the first of the wanted ones has."""

    def mask(self) -> bytes:
        return super().mask() if self.told else FREE


SCRIPT = answers({"a": [7, 8, 9], "b": [50, 51]}, after_end=1)


def finishes(rig: Rig, request_id: str) -> list[tuple[list[int], str | None]]:
    """(tokens, finish reason) of each delta of a request."""
    deltas = [delta for delta in rig.deltas if delta.request_id == request_id]
    return [(delta.token_ids, delta.finish_reason) for delta in deltas]


def test_the_end_of_the_form_ends_the_answer(new_rig: MakeRig) -> None:
    """Long before max_tokens; the last token is marked as text."""
    rig = new_rig(SCRIPT)
    constraint = Follows(7, 8)
    rig.add(make_request("a", max_tokens=50), constraint=constraint)
    rig.finish()

    assert finishes(rig, "a") == [([7], None), ([8], "stop")]
    assert [delta.is_complete for delta in rig.deltas] == [False, True]
    assert constraint.told == [7, 8]


def test_a_form_that_is_complete_at_the_last_token_has_not_been_cut(new_rig: MakeRig) -> None:
    rig = new_rig(SCRIPT)
    rig.add(make_request("a", max_tokens=2), constraint=Follows(7, 8))
    rig.add(make_request("b", range(50, 60), max_tokens=1), constraint=Follows(50, 51))
    rig.finish()

    assert finishes(rig, "a")[-1] == ([8], "stop")
    assert finishes(rig, "b")[-1] == ([50], "length")


def test_an_end_token_ends_an_answer_whose_form_could_go_on(new_rig: MakeRig) -> None:
    """It has no text, so it is not marked."""
    rig = new_rig(SCRIPT)
    rig.add(make_request("a", eos_token_ids=[8]), constraint=Follows(7, 8, 9))
    rig.finish()

    assert finishes(rig, "a")[-1] == ([8], "stop")
    assert not rig.deltas[-1].is_complete


def test_only_rows_that_sample_under_a_form_have_a_mask(new_rig: MakeRig) -> None:
    """Not while the prompt is computed in chunks, and not beside it."""
    rig = new_rig(SCRIPT, max_num_batched_tokens=8)
    rig.add(make_request("a", range(10)), constraint=Follows(7, 8))
    rig.add(make_request("b", range(50, 52)))
    first, second = rig.steps(2)

    assert first.mask_rows == []
    assert [second.mask_rows, second.masks] == [[0], [mask_of([7])]]


def test_where_every_token_may_come_there_is_no_mask(new_rig: MakeRig) -> None:
    rig = new_rig(SCRIPT)
    rig.add(make_request("a"), constraint=Thinks(7, 8))
    first, second = rig.steps(2)

    assert (first.masks, second.masks) == ([], [mask_of([8])])


def test_a_form_that_cannot_be_followed_ends_its_request_alone(new_rig: MakeRig) -> None:
    rig = new_rig(SCRIPT)
    rig.add(make_request("a"), constraint=Follows(7, -1))
    rig.add(make_request("b", range(50, 60), max_tokens=2))
    rig.finish()

    assert finishes(rig, "a") == [([7], "error")]
    [error] = [delta.error for delta in rig.deltas if delta.error]
    assert "too complex" in error
    assert finishes(rig, "b")[-1] == ([51], "length")


def test_each_choice_has_a_form_of_its_own(new_rig: MakeRig) -> None:
    """The second choice samples from the first one's logits, under its own mask."""
    rig = new_rig(answers({"x/0": [7, 8], "x/1": [30]}))
    first, second = Follows(7, 8), Follows(30)
    rig.add(make_request("x/0"), constraint=first)
    rig.add(make_request("x/1", fork_of="x/0"), constraint=second)
    plan = rig.step()

    assert plan.masks == [mask_of([7]), mask_of([30])]
    assert (first.told, second.told) == ([7], [30])


def test_a_request_that_comes_back_goes_on_in_its_form(new_rig: MakeRig) -> None:
    """Preempted in the middle, told every token once."""
    wanted: Sequence[int] = range(100, 112)
    script = answers({"old": [1] * 12, "young": wanted})
    rig = new_rig(script, num_blocks=5)
    constraint = Follows(*wanted)
    rig.add(make_request("old", range(8), max_tokens=12))
    rig.add(make_request("young", range(50, 58), max_tokens=12), constraint=constraint)
    rig.finish()

    assert rig.scheduler.counters.num_preemptions > 0
    assert constraint.told == list(wanted)
    assert finishes(rig, "young")[-1] == ([111], "stop")


def test_the_scripted_executor_refuses_a_token_outside_the_mask(new_rig: MakeRig) -> None:
    """Unless it is told to obey."""
    rig = new_rig(SCRIPT)
    rig.add(make_request("a"), constraint=Follows(9))
    plan = rig.plan()
    with pytest.raises(PlanError, match="outside the mask"):
        rig.run(plan)
    rig.executor.obey_masks()
    other = new_rig(SCRIPT)
    other.executor.obey_masks()
    other.add(make_request("a"), constraint=Follows(9))
    other.finish()

    assert finishes(other, "a") == [([9], "stop")]
    rig.abort("a")
