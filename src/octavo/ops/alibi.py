"""How much each head prefers keys that are near, where positions are told by distance alone."""

from __future__ import annotations


def alibi_slopes(num_heads: int) -> tuple[float, ...]:
    """Powers of two, evenly spread from head to head (Press et al. 2022).

    Where their number is no power of two itself, those of the next smaller one come first, and then
    every other one of the next larger.
    """
    fitting = 1 << (num_heads.bit_length() - 1)
    first = [2.0 ** (-8.0 * (i + 1) / fitting) for i in range(fitting)]
    others = [2.0 ** (-4.0 * (2 * i + 1) / fitting) for i in range(num_heads - fitting)]
    return tuple(first + others)
