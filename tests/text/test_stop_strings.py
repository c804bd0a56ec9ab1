"""Stop strings are found in any cut of the text, and nothing of one is ever given out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import InvalidRequestError
from octavo.text.stop_strings import StopStringMatcher

unhurried = settings(deadline=None, max_examples=200)
# Few letters, so that beginnings of stop strings are everywhere.
LETTERS = st.lists(st.sampled_from("aaab🙂"), max_size=60).map("".join)
STOPS = st.lists(
    st.lists(st.sampled_from("aaab🙂"), min_size=1, max_size=6).map("".join), min_size=1, max_size=5
)


def slow_twin(text: str, stop: list[str], include: bool, gate: int = 0) -> tuple[str, str | None]:
    """Look at every end of the text in turn. Ends up to `gate` characters do not count."""
    for end in range(gate + 1, len(text) + 1):
        for candidate in stop:
            if text[:end].endswith(candidate):
                return text[: end if include else end - len(candidate)], candidate
    return text, None


def pieces(text: str, cuts: list[int]) -> list[str]:
    """The text cut at these places, taken modulo its length; pieces may be empty."""
    places = sorted(cut % (len(text) + 1) for cut in cuts)
    return [text[start:end] for start, end in pairwise([0, *places, len(text)])]


@unhurried
@given(LETTERS, STOPS, st.booleans(), st.lists(st.integers(0, 100), max_size=10))
def test_cuts_of_the_text_never_change_the_result(
    text: str, stop: list[str], include: bool, cuts: list[int]
) -> None:
    """The joined output and the match are those of a slow, obvious twin."""
    matcher = StopStringMatcher(stop, include)
    given_out = "".join(map(matcher.push, pieces(text, cuts))) + matcher.flush()
    assert slow_twin(text, stop, include) == (given_out, matcher.matched)


@unhurried
@given(LETTERS, STOPS, st.booleans(), st.integers(0, 40), st.lists(st.integers(0, 100), max_size=6))
def test_a_match_needs_text_after_the_gate_but_may_begin_before_it(
    text: str, stop: list[str], include: bool, gate: int, cuts: list[int]
) -> None:
    """vLLM's rule for min_tokens: what completes the stop string counts."""
    gate = min(gate, len(text))
    matcher = StopStringMatcher(stop, include)
    given_out = ""
    for piece in pieces(text[:gate], cuts):
        given_out += matcher.push(piece, may_stop=False)
    for piece in pieces(text[gate:], cuts):
        given_out += matcher.push(piece)
    given_out += matcher.flush()
    assert slow_twin(text, stop, include, gate) == (given_out, matcher.matched)


@unhurried
@given(LETTERS, STOPS, st.booleans())
def test_only_the_beginning_of_a_stop_string_is_held_back(
    text: str, stop: list[str], may_stop: bool
) -> None:
    """Not one character more than the longest end of the text that may still become a match."""
    matcher = StopStringMatcher(stop)
    given_out = ""
    for place, character in enumerate(text, start=1):
        given_out += matcher.push(character, may_stop=may_stop)
        if matcher.matched is not None:
            return
        begun = (text[:place][-size:] for size in range(place, 0, -1))
        longest = next((end for end in begun if _begins_any(end, stop)), "")
        assert text[: place - len(longest)] == given_out


def _begins_any(end: str, stop: list[str]) -> bool:
    return any(candidate.startswith(end) and candidate != end for candidate in stop)


@unhurried
@given(LETTERS, STOPS)
def test_with_include_nothing_is_held_back(text: str, stop: list[str]) -> None:
    """The stop string is given out anyway, so its beginning can be, too."""
    matcher = StopStringMatcher(stop, include=True)
    for character in text:
        given_out = matcher.push(character)
        assert given_out == character
        if matcher.matched is not None:
            return


def test_the_match_that_is_complete_first_wins() -> None:
    """`bc` ends before `abcd`, which began earlier."""
    matcher = StopStringMatcher(["abcd", "bc"])
    assert matcher.push("xabcd") == "xa"
    assert matcher.matched == "bc"


@pytest.mark.parametrize(("stop", "text"), [(["b", "ab"], "a"), (["ab", "b"], "")])
def test_of_two_complete_at_once_the_first_in_the_list_wins(stop: list[str], text: str) -> None:
    """Both end at the same character."""
    matcher = StopStringMatcher(stop)
    assert text == matcher.push("ab")
    assert stop[0] == matcher.matched


def test_a_failed_beginning_may_contain_the_true_one() -> None:
    """After `aaa` for `aab` the last two letters still count."""
    matcher = StopStringMatcher(["aab"])
    assert matcher.push("xaaab") == "xa"
    assert matcher.matched == "aab"


def test_text_after_the_match_is_dropped() -> None:
    """The rest of the piece, later pieces, and whatever is flushed."""
    matcher = StopStringMatcher(["\n"])
    assert matcher.push("Mars?\nVenus") == "Mars?"
    assert [matcher.push("more"), matcher.flush()] == ["", ""]


def test_text_that_was_held_back_is_given_out_once() -> None:
    """The public case: `Bruno! Brun Bruno; ok` with the stop string `Bruno:`."""
    matcher = StopStringMatcher(["\n", "Bruno:"])
    parts = [" Bru", "no! ", "Brun", " Bruno", "; ok"]
    given_out = [matcher.push(part) for part in parts]
    assert given_out == [" ", "Bruno! ", "", "Brun ", "Bruno; ok"]
    assert matcher.flush() == ""


def test_what_is_held_back_at_the_end_is_flushed() -> None:
    """No more text: it cannot become a match."""
    matcher = StopStringMatcher(["###"])
    assert matcher.push("alpha ##") == "alpha "
    assert matcher.flush() == "##"
    assert matcher.matched is None


def test_a_text_that_nearly_matches_everywhere_takes_linear_work() -> None:
    """A naive search would look back a thousand characters at each of a hundred thousand."""
    matcher = StopStringMatcher(
        ["a" * 1000 + "b", "a" * 999 + "c", *(f"{'a' * n}d" for n in range(50))]
    )
    given_out = "".join(matcher.push("a" * 100) for _ in range(1000)) + matcher.flush()
    assert len(given_out) == 100_000


def test_an_empty_stop_string_is_refused_by_name() -> None:
    """It would match everywhere."""
    with pytest.raises(InvalidRequestError) as caught:
        StopStringMatcher(["a", ""])
    assert caught.value.param == "stop"
