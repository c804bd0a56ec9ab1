"""Outputs: log-probabilities are made when somebody looks."""

from __future__ import annotations

import pickle

from octavo.contracts.step import TokenLogprobs
from octavo.outputs import CompletionOutput, Logprob, LogprobList, by_token

ENTRIES = [
    TokenLogprobs([5, 7, 5], [-0.5, -0.25, -0.5], 2),
    TokenLogprobs([9], [-3.0], 40),
]


def name_of(token_id: int) -> str:
    return f"<{token_id}>"


def test_the_actual_token_comes_first_with_its_own_rank() -> None:
    """It is listed once, though it is among the best as well."""
    assert list(by_token(ENTRIES[0], name_of).items()) == [
        (5, Logprob(-0.5, 2, "<5>")),
        (7, Logprob(-0.25, 1, "<7>")),
    ]
    assert by_token(ENTRIES[1], None) == {9: Logprob(-3.0, 40, None)}


def test_tokens_that_are_not_the_best_have_no_rank() -> None:
    """Those of `logprob_token_ids`; the actual one has its own."""
    listed = LogprobList([TokenLogprobs([9, 5], [-3.0, -7.0], 40)], None, is_ranked=False)

    assert listed[0] == {9: Logprob(-3.0, 40), 5: Logprob(-7.0, None)}
    assert listed[:1][0] == listed[0]


def test_tokens_are_named_only_when_looked_at() -> None:
    """Nobody pays for logprobs that are passed on in raw form."""
    named = []

    def name(token_id: int) -> str:
        named.append(token_id)
        return name_of(token_id)

    listed = LogprobList(ENTRIES, name)
    assert len(listed) == 2
    assert listed.raw is ENTRIES
    assert named == []

    assert listed[-1] == {9: Logprob(-3.0, 40, "<9>")}
    assert named == [9]


def test_logprobs_behave_as_a_list() -> None:
    """Iteration, slices, equality, repr."""
    listed = LogprobList(ENTRIES, name_of)
    plain = [by_token(entry, name_of) for entry in ENTRIES]

    assert list(listed) == plain
    assert listed == plain
    assert listed == LogprobList(list(ENTRIES), name_of)
    assert listed != plain[:1]
    assert listed[1:] == plain[1:]
    assert repr(listed) == repr(plain)


def test_outputs_can_be_pickled() -> None:
    """Without the tokenizer: the copy holds plain dicts."""
    output = CompletionOutput(0, "text", [5, 9], -3.5, LogprobList(ENTRIES, name_of), "length")

    copy = pickle.loads(pickle.dumps(output))

    assert type(copy.logprobs) is list
    assert copy.logprobs == list(LogprobList(ENTRIES, name_of))
    assert copy.finished()
