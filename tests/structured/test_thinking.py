"""Thoughts before an answer: free of its grammar, and bounded if that is asked for."""

from __future__ import annotations

from octavo.contracts.grammar import ThinkingSpec
from octavo.structured.thinking import ThinkingConstraint

BEGIN, END, EOS, YES, OTHER = 3, 4, 0, 7, 39
VOCAB_SIZE = 40


class SaysYes:
    """A grammar of one token."""

    def mask(self) -> bytes:
        return (1 << YES).to_bytes(8, "little")

    def accept(self, token_id: int) -> bool:
        assert token_id == YES
        return True


def allowed(constraint: ThinkingConstraint) -> set[int]:
    """Token ids that may come next; all where there is no mask."""
    mask = constraint.mask()
    bits = int.from_bytes(mask, "little") if mask else (1 << VOCAB_SIZE) - 1
    return {token_id for token_id in range(VOCAB_SIZE) if bits >> token_id & 1}


def make(*, is_open: bool, max_tokens: int = -1, binds: bool = True) -> ThinkingConstraint:
    spec = ThinkingSpec(
        end_token_id=END, begin_token_id=BEGIN, is_open=is_open, max_tokens=max_tokens
    )
    return ThinkingConstraint(spec, SaysYes() if binds else None, VOCAB_SIZE, [EOS])


def test_an_answer_begins_with_thoughts_or_is_bound_at_once() -> None:
    assert allowed(make(is_open=False)) == {BEGIN, YES}


def test_an_answer_that_is_bound_does_not_begin_to_think() -> None:
    constraint = make(is_open=False)

    assert constraint.accept(YES)


def test_thoughts_are_free_but_do_not_end_the_answer() -> None:
    """Until their tag; then the grammar holds, and its end is the end."""
    constraint = make(is_open=False)
    assert not constraint.accept(BEGIN)
    assert allowed(constraint) == set(range(VOCAB_SIZE)) - {EOS}
    assert not constraint.accept(OTHER)
    assert not constraint.accept(END)
    assert allowed(constraint) == {YES}
    assert constraint.accept(YES)


def test_a_prompt_may_have_begun_the_thoughts() -> None:
    constraint = make(is_open=True)
    assert YES in allowed(constraint)
    constraint.accept(END)

    assert allowed(constraint) == {YES}


def test_thoughts_at_their_budget_are_ended() -> None:
    """Then everything may come where no grammar waits."""
    constraint = make(is_open=True, max_tokens=2, binds=False)
    for token_id in (OTHER, OTHER):
        assert len(allowed(constraint)) == VOCAB_SIZE - 1
        assert not constraint.accept(token_id)
    assert allowed(constraint) == {END}
    assert not constraint.accept(END)
    assert len(allowed(constraint)) == VOCAB_SIZE
    assert not constraint.accept(BEGIN)
    assert len(allowed(constraint)) == VOCAB_SIZE
