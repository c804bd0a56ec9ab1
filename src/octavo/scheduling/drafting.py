"""Drafting: the guesses of one request, and the rule by which it makes fewer of them or pauses.

Owns: how likely its guesses are accepted, by those that were tested, and what it has to pause.
Does not know: budgets, blocks, steps.
Used by: scheduling.drafts plans by it, scheduling.outcome tells it what came out.

A guess is worth making while the chance that it is accepted is greater than its price.

    chance   of one draft after an accepted one: a running mean over those of the request that were
             tested, so the chance of the i-th draft of a step is chance ** i
    price    what a further token costs a step, in units of what the step costs for each of its
             rows, as measured: small while steps are bound by reading weights, near 1 where they
             are bound by arithmetic

A request whose chance is not above the price pauses, for 4 steps, then twice as long each time up
to 64, and tries one draft after each pause. So a request that guesses badly loses no more than the
price of some draft tokens, one in 64 steps in the long run.
"""

from __future__ import annotations

from array import array

from octavo.config.speculative import LookupConfig
from octavo.scheduling.ngrams import NgramIndex

UNKNOWN_PRICE = 0.2
"""Before steps were measured."""

_FIRST_CHANCE = 0.6  # before anything was tested
_WEIGHT = 0.2  # of the newest test in the mean
_SHORTEST_PAUSE, _LONGEST_PAUSE = 4, 64  # steps


class Drafting:
    """The guesses of one request."""

    __slots__ = ("_chance", "_index", "_most", "_next_pause", "_num_to_pause", "_price")

    def __init__(self, lookup: LookupConfig) -> None:
        self._index = NgramIndex(lookup.longest, lookup.shortest)
        self._most = lookup.num_drafts
        self._chance = _FIRST_CHANCE
        self._price = UNKNOWN_PRICE  # at the last look
        self._num_to_pause = 0  # steps left of a pause
        self._next_pause = _SHORTEST_PAUSE

    def num_wanted(self, price: float) -> int:
        """How many drafts are worth making in this step; counts one step of a pause."""
        if self._num_to_pause:
            self._num_to_pause -= 1
            return 0
        self._price = price
        count, chance = 1, self._chance * self._chance  # the first one may be a trial
        while count < self._most and chance > price:
            count += 1
            chance *= self._chance
        return count

    def guess(self, token_ids: array[int], count: int) -> list[int]:
        """Up to `count` tokens that may follow `token_ids`."""
        return self._index.following(token_ids, count)

    def note(self, num_drafts: int, num_accepted: int) -> None:
        """A step has tested drafts: all that were accepted, and the first one that was not."""
        for _ in range(num_accepted):
            self._chance += _WEIGHT * (1.0 - self._chance)
        if num_accepted < num_drafts:
            self._chance -= _WEIGHT * self._chance
        if self._chance > self._price:
            self._next_pause = _SHORTEST_PAUSE
            return
        self._num_to_pause = self._next_pause
        self._next_pause = min(2 * self._next_pause, _LONGEST_PAUSE)
