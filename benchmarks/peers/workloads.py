"""What every engine is asked: the same token ids, other ones in every round.

Owns: the shapes, the ids, and what columns of the table are made of.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

_FIRST_ORDINARY = 256  # ids below are often special or single bytes


@dataclass(frozen=True, slots=True)
class Shape:
    """Equal requests, all at once. Lengths in tokens."""

    name: str
    num_requests: int
    prompt_len: int
    new_len: int

    @property
    def longest(self) -> int:
        return self.prompt_len + self.new_len


PREFILL = Shape("prefill_512", 1, 512, 1)
FIRST = Shape("first_128", 1, 128, 1)  # the prefill of SINGLE alone
SINGLE = Shape("single_stream", 1, 128, 128)
BATCH_8 = Shape("b8", 8, 128, 64)
BATCH_32 = Shape("b32", 32, 128, 64)
SHAPES = (PREFILL, FIRST, SINGLE, BATCH_8, BATCH_32)
START_PROMPT_LEN = 8  # of the request whose first token ends the start

# Columns of the table -> unit. Rates are higher-is-better, the start is not.
COLUMNS: Mapping[str, str] = {
    "prefill_512": "prompt tokens/s",
    "single_stream": "output tokens/s, 128 in + 128 out end to end",
    "decode": "output tokens/s of the single stream after its first token",
    "b8": "output tokens/s, 8 x (128 in + 64 out) end to end",
    "b32": "output tokens/s, 32 x (128 in + 64 out) end to end",
    "start_s": "s from process start to the first token",
}


def prompts(shape: Shape, vocab_size: int, round_number: int) -> list[list[int]]:
    """Random ordinary tokens; a round's prompts share nothing with those of another."""
    generator = random.Random(f"{shape.name} {round_number}")  # noqa: S311 - a benchmark
    return [
        [generator.randrange(_FIRST_ORDINARY, vocab_size) for _ in range(shape.prompt_len)]
        for _ in range(shape.num_requests)
    ]


def rates(seconds: Mapping[str, float]) -> dict[str, float]:
    """The columns of one round from the seconds of its shapes.

    A column whose shapes are missing is missing. The decode rate is left out where the prefill
    alone took as long as everything: then the clock saw only noise.
    """
    found: dict[str, float] = {}
    if PREFILL.name in seconds:
        found["prefill_512"] = PREFILL.prompt_len / seconds[PREFILL.name]
    if SINGLE.name in seconds:
        found["single_stream"] = SINGLE.new_len / seconds[SINGLE.name]
        decode_s = seconds[SINGLE.name] - seconds.get(FIRST.name, seconds[SINGLE.name])
        if decode_s > 0:
            found["decode"] = (SINGLE.new_len - FIRST.new_len) / decode_s
    for shape in (BATCH_8, BATCH_32):
        if shape.name in seconds:
            found[shape.name] = shape.num_requests * shape.new_len / seconds[shape.name]
    return found
