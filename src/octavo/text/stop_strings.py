"""StopStringMatcher: finds stop strings in streamed text and holds back what may become one.

Owns the text that is not given out yet. Does not know: tokens, requests, limits.
Used by: engine, behind the detokenizer.

The match that is complete first wins, whatever the cuts of the text; of two that are complete at
the same character the one that stands first in the list. The matcher is an Aho-Corasick automaton:
the time is linear in the text for any number of stop strings.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from octavo.errors import InvalidRequestError

NO_MATCH = -1


class StopStringMatcher:
    """The stop strings of one answer. `push` text, `flush` at the end unless `matched`.

    Only the longest end of the text that a stop string may still begin with is held back, and
    nothing with `include`, where the text of the stop string is given out as well. After a match
    every further text is dropped, also the rest of the piece in which it was found.

    `min_tokens` is the caller's affair, by vLLM's rule: text of the first `min_tokens` tokens is
    pushed with `may_stop=False`. A stop string complete in that text has no effect, but one that
    begins there and is completed by a later token ends the answer.
    """

    __slots__ = ("_automaton", "_held", "_include", "_state", "matched")

    def __init__(self, stop: Sequence[str], include: bool = False) -> None:
        """Raises InvalidRequestError for an empty stop string."""
        self._automaton = _Automaton(stop)
        self._include = include
        self._state = 0
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str, *, may_stop: bool = True) -> str:
        """The text that is now safe to give out."""
        if self.matched is not None:
            return ""
        automaton, state = self._automaton, self._state
        if state == 0 and automaton.first_characters.isdisjoint(text):
            return text
        transitions, fallback = automaton.transitions, automaton.fallback
        for position, character in enumerate(text):
            while character not in transitions[state] and state:
                state = fallback[state]
            state = transitions[state].get(character, 0)
            if may_stop and automaton.match[state] != NO_MATCH:
                return self._end(text[: position + 1], automaton.match[state])
        self._state = state
        if self._include:
            return text
        text = self._held + text
        safe = len(text) - automaton.num_held[state]
        self._held = text[safe:]
        return text[:safe]

    def flush(self) -> str:
        """The text that was held back, once no more comes; none after a match."""
        held, self._held = self._held, ""
        self._state = 0
        return held

    def _end(self, text: str, index: int) -> str:
        """Text up to the match."""
        self.matched = self._automaton.stop[index]
        held, self._held = self._held, ""
        if self._include:
            return text
        return (held + text)[: -len(self.matched)]


class _Automaton:
    """States are beginnings of stop strings; state 0 is the empty one."""

    def __init__(self, stop: Sequence[str]) -> None:
        self.stop = tuple(stop)
        self.transitions: list[dict[str, int]] = [{}]
        self.match = [NO_MATCH]  # index of the stop string that is complete here
        self._depth = [0]
        for index, text in enumerate(self.stop):
            if not text:
                raise InvalidRequestError("stop must not hold an empty string", param="stop")
            self._insert(text, index)
        self.first_characters = frozenset(self.transitions[0])
        self.fallback = [0] * len(self.transitions)
        # Characters at the end of the text that may go on to become a stop string.
        self.num_held = [0] * len(self.transitions)
        self._link()

    def _insert(self, text: str, index: int) -> None:
        state = 0
        for character in text:
            following = self.transitions[state].get(character)
            if following is None:
                following = len(self.transitions)
                self.transitions[state][character] = following
                self.transitions.append({})
                self.match.append(NO_MATCH)
                self._depth.append(self._depth[state] + 1)
            state = following
        if self.match[state] == NO_MATCH:
            self.match[state] = index

    def _link(self) -> None:
        """Breadth first: a state falls back to the longest end of it that is a state, too."""
        waiting = deque([0])
        while waiting:
            state = waiting.popleft()
            self._inherit(state)
            for character, following in self.transitions[state].items():
                waiting.append(following)
                if state == 0:
                    continue
                link = self.fallback[state]
                while link and character not in self.transitions[link]:
                    link = self.fallback[link]
                self.fallback[following] = self.transitions[link].get(character, 0)

    def _inherit(self, state: int) -> None:
        """What is complete or may go on in the fallback is so here."""
        link = self.fallback[state]
        if self.match[link] != NO_MATCH:
            own = self.match[state]
            self.match[state] = self.match[link] if own == NO_MATCH else min(own, self.match[link])
        goes_on = bool(self.transitions[state])
        self.num_held[state] = self._depth[state] if goes_on else self.num_held[link]
