"""RopeTable: the frequencies of a rotary embedding, computed once in double precision."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RopeTable:
    """Angles are `position * inv_freq[i]`; cos and sin are multiplied by `attention_factor`."""

    rotary_dim: int
    inv_freq: tuple[float, ...]  # [rotary_dim / 2]
    attention_factor: float = 1.0
