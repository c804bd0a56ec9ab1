"""Rotary embedding keys and tensors of a GGUF file -> RopeFacts.

Owns the keys and the checks of single values. Does not know the formulas (`ops/rope.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from octavo.config.model_facts import RopeFacts, RopeScaling
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.facts_check import MAX_ROPE_FACTOR, MAX_ROPE_THETA, MIN_ROPE_FACTOR
from octavo.weights.fields import Fields

ROPE_DIVISORS = "rope_freqs.weight"  # of Llama 3's scaling
LONG_FACTORS, SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
ROPE_TENSORS = (ROPE_DIVISORS, LONG_FACTORS, SHORT_FACTORS)


def gguf_rope(keys: Fields, head_dim: int, tensors: Mapping[str, TensorView]) -> RopeFacts:
    """Base and scaling. `attn_factor` multiplies YaRN's own formula, as in llama.cpp."""
    if LONG_FACTORS in tensors:
        return _longrope(keys, head_dim, tensors)
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1.0)) or 1.0
    kind = keys.text("rope.scaling.type", "linear" if factor != 1.0 else "none")
    if kind not in ("none", "linear", "yarn"):
        message = f"{keys.where}: rope scaling {kind!r} is not supported"
        raise UnsupportedModelError(f"{message}. Supported in GGUF files: none, linear, yarn")
    if not 1.0 <= factor <= MAX_ROPE_FACTOR:
        keys.refuse("rope.scaling.factor", f"must be from 1 to {MAX_ROPE_FACTOR:g}, got {factor:g}")
    scaling = "default" if kind == "none" else cast(RopeScaling, kind)
    attention_factor = None
    own_factor = _factor(keys, "rope.scaling.attn_factor", 1.0)
    if scaling == "yarn" and own_factor != 1.0:
        attention_factor = own_factor * (0.1 * math.log(factor) + 1.0)
    original = keys.integer("rope.scaling.original_context_length", 0)
    return RopeFacts(
        theta=keys.number("rope.freq_base", 10000.0, above=1.0, at_most=MAX_ROPE_THETA),
        rotary_dim=keys.integer("rope.dimension_count", head_dim, at_least=1),
        scaling=scaling,
        factor=factor if scaling != "default" else 1.0,
        original_max_position=(original or keys.integer("context_length"))
        if scaling == "yarn"
        else 0,
        attention_factor=attention_factor,
        beta_fast=_factor(keys, "rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=_factor(keys, "rope.scaling.yarn_beta_slow", 1.0),
        inv_freq_divisors=_divisors(tensors, ROPE_DIVISORS, keys.where),
    )


def _longrope(keys: Fields, head_dim: int, tensors: Mapping[str, TensorView]) -> RopeFacts:
    """LongRoPE, which a file has when it has its factors. `attn_factor` is the outcome."""
    original = keys.integer("rope.scaling.original_context_length", at_least=2)
    factor = max(1.0, keys.integer("context_length", at_least=1) / original)
    own_factor = keys.optional_number(
        "rope.scaling.attn_factor", above=MIN_ROPE_FACTOR, at_most=MAX_ROPE_FACTOR
    )
    return RopeFacts(
        theta=keys.number("rope.freq_base", 10000.0, above=1.0, at_most=MAX_ROPE_THETA),
        rotary_dim=keys.integer("rope.dimension_count", head_dim, at_least=1),
        scaling="longrope",
        factor=factor,
        original_max_position=original,
        attention_factor=own_factor,
        short_factor=_divisors(tensors, SHORT_FACTORS, keys.where),
        long_factor=_divisors(tensors, LONG_FACTORS, keys.where),
    )


def _factor(keys: Fields, key: str, default: float) -> float:
    return keys.number(key, default, above=MIN_ROPE_FACTOR, at_most=MAX_ROPE_FACTOR)


def gguf_max_position(keys: Fields, rope: RopeFacts) -> int:
    """The context that the file promises. YaRN's stretch counts where its start is given."""
    context = keys.integer("context_length", at_least=1)
    if rope.scaling == "yarn" and "rope.scaling.original_context_length" in keys:
        return max(context, int(rope.original_max_position * rope.factor))
    return context


def _divisors(tensors: Mapping[str, TensorView], name: str, where: str) -> tuple[float, ...]:
    """One divisor of each frequency, which converters work out; empty when the file has none."""
    tensor = tensors.get(name)
    if tensor is None:
        return ()
    if tensor.type != WeightType.F32 or len(tensor.shape) != 1:
        raise CorruptFileError(f"{where}: {name} must be a vector of F32")
    divisors = tuple(tensor.data.cast("f"))
    if not all(math.isfinite(divisor) and divisor > 0 for divisor in divisors):
        raise CorruptFileError(f"{where}: {name} must hold positive numbers")
    return divisors
