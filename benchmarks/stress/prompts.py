"""Random requests that use every path of the KV cache, and fixed ones whose answers are compared.

Knows the fields of the API. Does not know servers.
"""

from __future__ import annotations

import random
from typing import Any

VOCAB = 40_000  # ids below are plain tokens of both test models
BLOCK = 32


class Mix:
    """Draws requests. Prompts begin with one of a few stems: blocks are shared and parted."""

    def __init__(self, chance: random.Random, max_len: int) -> None:
        self._chance = chance
        self._max_len = max_len
        self._stems = [self._ids(length) for length in (BLOCK - 1, BLOCK, 3 * BLOCK, 5 * BLOCK + 9)]

    def prompt(self) -> list[int]:
        """Token ids: a stem cut anywhere, often at a block's end, and something of its own."""
        chance = self._chance
        stem = chance.choice(self._stems)
        cut = chance.choice((len(stem), len(stem) // BLOCK * BLOCK, chance.randint(0, len(stem))))
        longest = max(2, self._max_len - cut)
        length = chance.choice((1, chance.randint(1, 60), chance.randint(1, longest)))
        return stem[:cut] + self._ids(min(length, longest))

    def completion(self, num_tokens: int) -> dict[str, Any]:
        """A completion of one to four choices, or a beam search."""
        chance = self._chance
        kind = chance.choice(("greedy", "seeded", "choices", "beams"))
        body: dict[str, Any] = {
            "prompt": self.prompt(),
            "max_tokens": chance.randint(1, num_tokens),
            "temperature": 0.0,
            "ignore_eos": True,
            "return_token_ids": True,
        }
        if kind in ("seeded", "choices"):
            body |= {"temperature": 0.9, "seed": chance.randint(0, 10**6)}
        if kind == "choices":
            body["n"] = chance.randint(2, 4)
        if kind == "beams":
            body |= {"use_beam_search": True, "n": chance.randint(2, 4)}
        return body

    def chat(self, num_tokens: int) -> dict[str, Any]:
        """A chat about numbers."""
        words = [str(self._chance.randint(0, 9999)) for _ in range(self._chance.randint(3, 90))]
        return {
            "messages": [{"role": "user", "content": "Go on with: " + " ".join(words)}],
            "max_tokens": self._chance.randint(1, num_tokens),
            "temperature": 0.9,
            "seed": self._chance.randint(0, 10**6),
            "n": self._chance.choice((1, 1, 3)),
            "ignore_eos": True,
        }

    def _ids(self, length: int) -> list[int]:
        return [self._chance.randrange(300, VOCAB) for _ in range(length)]


def probes(seed: int, max_len: int, count: int, num_tokens: int = 24) -> list[dict[str, Any]]:
    """The same completions for the same arguments."""
    mix = Mix(random.Random(seed), max_len)  # noqa: S311 - a load
    return [mix.completion(num_tokens) for _ in range(count)]
