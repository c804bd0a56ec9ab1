"""Prompt lookup: what followed the last tokens where these stood before."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.scheduling.ngrams import NgramIndex


def guess(
    token_ids: list[int], count: int = 4, *, longest: int = 3, shortest: int = 2
) -> list[int]:
    return NgramIndex(longest, shortest).following(array("i", token_ids), count)


def slow_guess(token_ids: list[int], count: int, longest: int, shortest: int) -> list[int]:
    """The definition, over all earlier places."""
    for length in range(longest, shortest - 1, -1):
        for place in range(len(token_ids) - 1, length - 1, -1):
            if token_ids[place - length : place] == token_ids[len(token_ids) - length :]:
                found = list(token_ids)
                for idx in range(count):
                    found.append(found[place + idx])
                return found[len(token_ids) :]
    return []


def test_what_followed_the_end_before_is_guessed() -> None:
    assert guess([1, 2, 3, 4, 5, 9, 1, 2], 3) == [3, 4, 5]


def test_of_several_places_the_one_with_the_longest_common_end_counts_and_then_the_latest() -> None:
    assert guess([7, 1, 2, 30, 8, 1, 2, 31, 7, 1, 2], 1) == [30]
    assert guess([7, 1, 2, 30, 8, 1, 2, 31, 9, 1, 2], 1) == [31]


def test_an_end_that_is_shorter_than_the_shortest_is_not_looked_for() -> None:
    assert guess([1, 2, 9, 2], 1) == []
    assert guess([1, 2, 9, 2], 1, longest=1, shortest=1) == [9]


@pytest.mark.parametrize("token_ids", [[1], [1, 2], [1, 2, 3, 4]])
def test_tokens_that_never_stood_before_have_no_guess(token_ids: list[int]) -> None:
    assert guess(token_ids) == []


def test_a_repetition_goes_on_beyond_the_known_tokens() -> None:
    """A run of one token, and a pattern of three."""
    assert guess([5, 5, 5], 6) == [5] * 6
    assert guess([1, 2, 3, 1, 2, 3], 5) == [1, 2, 3, 1, 2]


def test_tokens_that_come_later_are_found_too() -> None:
    """The index grows with the answer, by as many tokens as were accepted."""
    index, token_ids = NgramIndex(2, 2), array("i", [1, 2, 3])
    assert index.following(token_ids, 2) == []
    token_ids.extend([4, 5, 6, 1, 2])
    assert index.following(token_ids, 2) == [3, 4]
    token_ids.extend([8, 1, 2])
    assert index.following(token_ids, 2) == [8, 1]


def test_a_long_prompt_is_taken_in_over_several_steps() -> None:
    """So that no step waits for all of it; until then there are no guesses."""
    index, token_ids = NgramIndex(2, 2), array("i", range(5000))
    token_ids.extend([7, 8])
    found = [index.following(token_ids, 1) for _ in range(3)]
    assert found == [[], [], [9]]
    token_ids.extend([4997, 4998])
    assert index.following(token_ids, 1) == [4999]


@given(
    steps=st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=4), min_size=1, max_size=5),
    count=st.integers(1, 5),
    longest=st.integers(1, 4),
    shortest=st.integers(1, 4),
)
def test_guesses_are_those_of_the_definition(
    steps: list[list[int]], count: int, longest: int, shortest: int
) -> None:
    """As long as there are no more earlier places than are looked at."""
    shortest = min(shortest, longest)
    index, token_ids = NgramIndex(longest, shortest), array("i")
    for new in steps:
        token_ids.extend(new)
        found = index.following(token_ids, count)
        known = token_ids.tolist()
        run = known[len(known) - shortest :]
        begins = range(len(known) - shortest)
        num_places = sum(known[begin : begin + shortest] == run for begin in begins)
        if num_places <= 8:
            assert found == slow_guess(known, count, longest, shortest)
        else:
            assert len(found) == count
