"""RopeTable: the frequencies of a rotary embedding, computed once in double precision.

Owns the arithmetic of every kind of context extension. Does not know tensors, positions or models:
it turns RopeFacts into numbers that a back end multiplies positions with.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from octavo.config.model_facts import RopeFacts, RopeScaling


class RopeTable(msgspec.Struct, frozen=True):
    """Angles are `position * inv_freq[i]`; cos and sin are multiplied by `attention_factor`."""

    rotary_dim: int
    inv_freq: tuple[float, ...]  # [rotary_dim / 2]
    attention_factor: float = 1.0


def rope_table(facts: RopeFacts, max_model_len: int) -> RopeTable:
    """Frequencies for sequences of up to `max_model_len` tokens.

    A key is rotated once and then stays in the cache, so the frequencies of a sequence may not
    change while it grows. The two kinds that depend on the length, `dynamic` and `longrope`, are
    therefore settled here for `max_model_len`, as vLLM does it for the longest context, and hold
    for short sequences as well.
    """
    assert facts.rotary_dim % 2 == 0, facts.rotary_dim
    inv_freq, own_factor = _KINDS[facts.scaling](facts, max_model_len)
    assert len(inv_freq) == facts.rotary_dim // 2, (facts.scaling, len(inv_freq))
    factor = own_factor if facts.attention_factor is None else facts.attention_factor
    return RopeTable(facts.rotary_dim, tuple(inv_freq), factor)


def _base_frequencies(facts: RopeFacts, theta: float) -> list[float]:
    """`theta ** (-2 i / rotary_dim)` (Su et al. 2021), over the file's own divisors, if any."""
    frequencies = [theta ** (-i / facts.rotary_dim) for i in range(0, facts.rotary_dim, 2)]
    if not facts.inv_freq_divisors:
        return frequencies
    return _divided(frequencies, facts.inv_freq_divisors)


def _divided(frequencies: list[float], divisors: tuple[float, ...]) -> list[float]:
    assert len(frequencies) == len(divisors), (len(frequencies), len(divisors))
    return [frequency / divisor for frequency, divisor in zip(frequencies, divisors, strict=True)]


def _default(facts: RopeFacts, max_model_len: int) -> tuple[list[float], float]:
    """No scaling."""
    return _base_frequencies(facts, facts.theta), 1.0


def _linear(facts: RopeFacts, max_model_len: int) -> tuple[list[float], float]:
    """Positions are squeezed by `factor` (Chen et al. 2023)."""
    return [frequency / facts.factor for frequency in _base_frequencies(facts, facts.theta)], 1.0


def _dynamic(facts: RopeFacts, max_model_len: int) -> tuple[list[float], float]:
    """NTK-aware scaling: the base grows with the length beyond the original context.

    The length is `max_model_len` whatever the length of a sequence, so that the cache stays valid.
    """
    length = max(max_model_len, facts.original_max_position)
    stretch = facts.factor * length / facts.original_max_position - (facts.factor - 1.0)
    exponent = facts.rotary_dim / (facts.rotary_dim - 2)
    return _base_frequencies(facts, facts.theta * stretch**exponent), 1.0


def _yarn(facts: RopeFacts, max_model_len: int) -> tuple[list[float], float]:
    """YaRN (Peng et al. 2023): fast dimensions stay, slow ones are squeezed, a ramp in between."""
    low = _dimension_of(facts.beta_fast, facts)
    high = _dimension_of(facts.beta_slow, facts)
    if facts.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, facts.rotary_dim - 1)
    if low == high:
        high += 0.001  # a ramp of no width would divide by zero

    scaled = []
    for i, frequency in enumerate(_base_frequencies(facts, facts.theta)):
        squeezed_share = min(max((i - low) / (high - low), 0.0), 1.0)
        squeezed = frequency / facts.factor
        scaled.append(squeezed * squeezed_share + frequency * (1.0 - squeezed_share))
    return scaled, _yarn_attention_factor(facts)


def _dimension_of(rotations: float, facts: RopeFacts) -> float:
    """The (fractional) dimension that turns `rotations` times within the original context."""
    wavelength = facts.original_max_position / (rotations * 2.0 * math.pi)
    return facts.rotary_dim * math.log(wavelength) / (2.0 * math.log(facts.theta))


def _yarn_attention_factor(facts: RopeFacts) -> float:
    if facts.mscale and facts.mscale_all_dim:
        return _mscale(facts.factor, facts.mscale) / _mscale(facts.factor, facts.mscale_all_dim)
    return _mscale(facts.factor, 1.0)


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1.0 else 0.1 * weight * math.log(factor) + 1.0


def _llama3(facts: RopeFacts, max_model_len: int) -> tuple[list[float], float]:
    """Llama 3.1: long waves are squeezed, short ones stay, a linear blend of both in between."""
    frequencies = _base_frequencies(facts, facts.theta)
    if facts.inv_freq_divisors:
        return frequencies, 1.0  # the file brings the outcome of the formula below
    scaled = []
    for frequency in frequencies:
        waves = facts.original_max_position * frequency / (2.0 * math.pi)
        kept_share = _llama3_kept_share(waves, facts.low_freq_factor, facts.high_freq_factor)
        scaled.append(frequency / facts.factor * (1.0 - kept_share) + frequency * kept_share)
    return scaled, 1.0


def _llama3_kept_share(waves: float, low: float, high: float) -> float:
    """0 for waves that are longer than `low` says, 1 for those shorter than `high` says."""
    if waves <= low:
        return 0.0
    return 1.0 if waves >= high else (waves - low) / (high - low)


def _longrope(facts: RopeFacts, max_model_len: int) -> tuple[list[float], float]:
    """LongRoPE (Ding et al. 2024): one searched divisor per dimension.

    The long divisors hold for every sequence as soon as `max_model_len` exceeds the original
    context.
    """
    is_long = max_model_len > facts.original_max_position
    divisors = facts.long_factor if is_long else facts.short_factor
    factor = 1.0
    if facts.factor > 1.0:
        factor = math.sqrt(1.0 + math.log(facts.factor) / math.log(facts.original_max_position))
    return _divided(_base_frequencies(facts, facts.theta), divisors), factor


_Kind = Callable[[RopeFacts, int], tuple[list[float], float]]
_KINDS: dict[RopeScaling, _Kind] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "llama3": _llama3,
    "longrope": _longrope,
}
