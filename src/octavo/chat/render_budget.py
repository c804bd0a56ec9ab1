"""RenderBudget: how much time and memory one rendering of a template may take.

Owns two numbers, a deadline and the characters that may still be made, and the weighing of values.
Does not know: templates, Jinja. Whoever makes a string says so beforehand.
Used by: sandbox and its neighbours.

Why counting suffices: every loop and every recursion of a template passes through a statement, and
each statement calls `tick`; every single operation is bounded, because whatever it makes is
charged.
"""

from __future__ import annotations

from octavo.foundation.clock import Clock

MAX_SECONDS = 2.0
# Templates copy: each `+` and each block makes the text anew. So the allowance is a multiple of the
# input, and generous for small ones; at four bytes a character it bounds the memory, too.
FREE_CHARACTERS = 128 * 2**20
CHARACTERS_PER_INPUT = 64
MAX_NODES = 250_000  # items in one nested value
LIST_ITEM = 16  # characters that a place in a list counts for


class RenderStoppedError(Exception):
    """A template used up its budget; the message says which part of it."""


class TemplateRefusalError(Exception):
    """A template called raise_exception; the message is its own."""


class RenderBudget:
    """The budget of one rendering."""

    __slots__ = ("_characters_left", "_deadline_s", "_now_s")

    def __init__(self, clock: Clock, num_input_characters: int) -> None:
        self._now_s = clock.now_s
        self._deadline_s = clock.now_s() + MAX_SECONDS
        self._characters_left = FREE_CHARACTERS + CHARACTERS_PER_INPUT * num_input_characters

    def tick(self, num_characters: int = 0) -> None:
        """Note a step that makes so many characters. Raises RenderStoppedError past a limit."""
        self._characters_left -= num_characters
        if self._characters_left < 0:
            raise RenderStoppedError("it makes more text than any prompt needs")
        if self._now_s() > self._deadline_s:
            raise RenderStoppedError(f"it did not end within {MAX_SECONDS:g} s")

    def weigh(self, value: object) -> int:
        """About how many characters a value has when it is written out, shared parts each time.

        Raises RenderStoppedError when it has more than the budget holds, without walking through it
        all: a list of a list of a list that share their items is small to hold and endless to
        write.
        """
        if isinstance(value, str):
            return len(value)
        weight = num_nodes = 0
        waiting = [value]
        while waiting:
            node = waiting.pop()
            num_nodes += 1
            if isinstance(node, str):
                weight += len(node)
            elif isinstance(node, list | tuple | dict):
                weight += len(node) * LIST_ITEM
                if num_nodes + len(waiting) + len(node) > MAX_NODES:
                    raise RenderStoppedError("it handles a value of too many items")
                waiting += node
                if isinstance(node, dict):
                    waiting += node.values()
            elif isinstance(node, int):
                weight += node.bit_length() // 3
            if weight > self._characters_left:
                raise RenderStoppedError("it handles a value that is too large")
        return weight
