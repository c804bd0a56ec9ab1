"""N-grams: what followed the last tokens of a request where these stood before.

Owns: an index of the runs of tokens in one sequence, the choice among several earlier places.
Does not know: whether a guess is worth its price, what becomes of it.
Used by: scheduling.drafts.

The price is bounded: each token is entered once, at most `_MOST_ENTERED` at a time, and a lookup
compares the end with at most `_MOST_PLACES` earlier places, each over at most `longest` tokens.
Prompt lookup is from Saxena, "Prompt Lookup Decoding", 2023; chains of earlier places are those of
LZ77 compressors.
"""

from __future__ import annotations

from array import array

_MOST_PLACES = 8
_MOST_ENTERED = 2048  # some milliseconds; the index of a long prompt grows over several steps


class NgramIndex:
    """Where each run of `shortest` tokens stood. It holds about 140 bytes for each token.

    A run is known by a hash; a lookup compares the tokens themselves.
    """

    __slots__ = ("_before", "_last", "_longest", "_shortest")

    def __init__(self, longest: int, shortest: int) -> None:
        """The longest end that is looked for, and the shortest that counts as found."""
        self._longest = longest
        self._shortest = shortest
        self._last: dict[int, int] = {}  # hash of a run -> where it began last
        self._before = array("i")  # for each run, by its begin: where the same began before, or -1

    def following(self, token_ids: array[int], count: int) -> list[int]:
        """The `count` tokens after the best earlier place of the end of `token_ids`; or none.

        The place with the longest common end is best, of equal ones the latest. Tokens beyond the
        end repeat what is between the place and the end. `token_ids` has grown since the last call.
        """
        if not self._enter(token_ids):
            return []
        place = self._best_place(token_ids)
        if place < 0:
            return []
        found = token_ids[place : place + count].tolist()
        while len(found) < count:
            found += found[: count - len(found)]
        return found

    def _enter(self, token_ids: array[int]) -> bool:
        """Take in the runs that end with new tokens, or the first of them. Whether that is all."""
        last, before = self._last, self._before
        first = len(before)
        end = min(len(token_ids), first + self._shortest - 1 + _MOST_ENTERED)
        shifted = [token_ids[first + place : end] for place in range(self._shortest)]
        for begin, run in enumerate(zip(*shifted, strict=False), first):
            key = hash(run)
            before.append(last.get(key, -1))
            last[key] = begin
        return end == len(token_ids)

    def _best_place(self, token_ids: array[int]) -> int:
        """The index behind the best earlier place; -1 if there is none."""
        before, shortest, longest = self._before, self._shortest, self._longest
        if not before:
            return -1
        end = len(token_ids)
        best, best_place = shortest - 1, -1
        begin = before[-1]
        for _ in range(_MOST_PLACES):
            if begin < 0:
                break
            place = begin + shortest
            length, most = 0, min(longest, place)
            while length < most and token_ids[place - 1 - length] == token_ids[end - 1 - length]:
                length += 1
            if length > best:
                best, best_place = length, place
                if length == longest:
                    break
            begin = before[begin]
        return best_place
