"""A long text into ids stretch by stretch: the same ids as at once, and other threads run between.

A library makes the list of a text's ids in one call, during which no other thread runs: a quarter
of a second for twenty megabytes, and twice that until all of it is freed.

Owns where a text may be cut. Does not know what encodes, nor which tokens are put around a text.

A cut is taken where the tokens before and after it come out the same on both sides: the end of a
stretch, encoded once with all that is before it and once alone, has the same ids. Encodings by
merges are right where each token is right beside the next one, so that what agrees across a cut is
what the whole text would give; rules that cut a text into words go from left to right, and agree
from the first word on that they agree in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

STRETCH = 2**17  # characters; of the worst kind half a million tokens, ten milliseconds
_SHARED = 2**11  # characters that are encoded on both sides of a cut
_TRIED = 64  # places of a cut, until a longer stretch is tried

Encode = Callable[[str], list[int]]


def stretches(
    text: str, encode: Encode, at_least: int = STRETCH
) -> Iterator[tuple[list[int], int]]:
    """(ids, the place in the text where the next ones begin) of each stretch, in order.

    All but the last have `at_least` so many characters, but for some dozens.

    A text that can be cut nowhere comes as one.
    """
    begin, length = 0, at_least
    while begin + length + _SHARED + _TRIED < len(text):
        end = begin + length + _SHARED
        ids = encode(text[begin:end])
        found = _cut(text, end, ids, encode)
        if found is None:
            length *= 2
            continue
        place, num_shared = found
        yield ids[:-num_shared], place
        begin, length = place, at_least
    yield encode(text[begin:]), len(text)


def _cut(text: str, end: int, ids: list[int], encode: Encode) -> tuple[int, int] | None:
    """(a place, the number of last ids that stand for what follows it); None: nowhere."""
    for place in _places(text, end - _SHARED):
        shared = encode(text[place:end])
        if 0 < len(shared) < len(ids) and ids[-len(shared) :] == shared:
            return place, len(shared)
    return None


def _places(text: str, last: int) -> Iterator[int]:
    """Where a cut may be, those beside a space first."""
    places = range(last, last - _TRIED, -1)
    spaces = [place for place in places if text[place].isspace()]
    yield from spaces
    yield from (place + 1 for place in spaces)  # where a space is put before a text
    yield from (place for place in places if place not in spaces)
