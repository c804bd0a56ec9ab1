"""Rotary embedding keys of config.json -> RopeFacts, in every form that they had over time.

    rope_theta, rope_scaling {"type": ...}                   until 2024
    rope_theta, rope_scaling {"rope_type": ...}              until transformers 4
    rope_parameters {"rope_type", "rope_theta", ...}         since transformers 5
    rope_parameters {"full_attention": {...}, ...}           the same for each kind of layer
    rope_local_base_freq                                     Gemma 3 before transformers 5

Owns these forms and the checks of single values. Does not know the formulas (`ops/rope.py`).
"""

from __future__ import annotations

from octavo.config.model_facts import RopeFacts, RopeScaling
from octavo.errors import UnsupportedModelError
from octavo.weights.facts_check import MAX_ROPE_FACTOR, MAX_ROPE_THETA, MIN_ROPE_FACTOR
from octavo.weights.fields import Fields

# Names of scalings over time -> ours.
SCALINGS: dict[str, RopeScaling] = {
    "default": "default",
    "linear": "linear",
    "dynamic": "dynamic",
    "yarn": "yarn",
    "llama3": "llama3",
    "longrope": "longrope",
    "su": "longrope",
}
FULL, WINDOW = "full_attention", "sliding_attention"
# Scalings whose `max_position_embeddings` is the context before scaling, unless it is given apart.
_STRETCHING = ("linear", "dynamic", "yarn")


def rope_facts(config: Fields, head_dim: int, default_theta: float) -> RopeFacts:
    """Base and scaling of layers with full attention.

    Raises CorruptFileError that names a wrong key, UnsupportedModelError for an unknown scaling.
    """
    return _facts(_scaling(config, FULL), config, head_dim, default_theta)


def local_rope_facts(config: Fields, head_dim: int, default_theta: float) -> RopeFacts:
    """Base of window layers alone. A `rope_scaling` of the old form is not meant for them."""
    nested = _nested(config, WINDOW)
    theta = config.number("rope_local_base_freq", default_theta, above=1.0, at_most=MAX_ROPE_THETA)
    return _facts(nested or Fields({}, config.where), Fields({}, config.where), head_dim, theta)


def max_position(config: Fields, rope: RopeFacts, max_position_embeddings: int) -> int:
    """The context that the checkpoint promises."""
    if rope.scaling not in _STRETCHING:
        return max_position_embeddings
    before = rope.original_max_position or max_position_embeddings
    return max(max_position_embeddings, int(before * rope.factor))


def _scaling(config: Fields, kind_of_layer: str) -> Fields:
    """The object that describes the scaling, empty where there is none."""
    nested = _nested(config, kind_of_layer)
    if nested is not None:
        return nested
    for key in ("rope_parameters", "rope_scaling"):
        section = config.section(key)
        if section is not None and FULL not in section and WINDOW not in section:
            return section
    return Fields({}, config.where)


def _nested(config: Fields, kind_of_layer: str) -> Fields | None:
    for key in ("rope_parameters", "rope_scaling"):
        section = config.section(key)
        if section is not None and isinstance(section.value(kind_of_layer), dict):
            return section.section(kind_of_layer)
    return None


def _facts(scaling: Fields, config: Fields, head_dim: int, default_theta: float) -> RopeFacts:
    written = scaling.text("rope_type", scaling.text("type", "default"))
    if written not in SCALINGS:
        message = f"{scaling.where}: rope scaling {written!r} is not supported"
        raise UnsupportedModelError(f"{message}. Supported: {', '.join(SCALINGS)}")
    kind = SCALINGS[written]
    key = "partial_rotary_factor"
    share = config.number(key, 1.0, above=0.0, at_most=1.0)
    share = scaling.number(key, share, above=0.0, at_most=1.0)
    theta = config.number("rope_theta", default_theta, above=1.0, at_most=MAX_ROPE_THETA)
    theta = scaling.number("rope_theta", theta, above=1.0, at_most=MAX_ROPE_THETA)
    facts = RopeFacts(theta=theta, rotary_dim=int(head_dim * share))
    if kind == "default":
        return facts
    original = _original_max_position(scaling, config, kind)
    return RopeFacts(
        theta=theta,
        rotary_dim=facts.rotary_dim,
        scaling=kind,
        factor=_factor(scaling, config, kind, original),
        original_max_position=original,
        attention_factor=_optional_factor(scaling, "attention_factor"),
        beta_fast=_optional_factor(scaling, "beta_fast") or 32.0,
        beta_slow=_optional_factor(scaling, "beta_slow") or 1.0,
        mscale=_optional_factor(scaling, "mscale") or 0.0,
        mscale_all_dim=_optional_factor(scaling, "mscale_all_dim") or 0.0,
        truncate=scaling.flag("truncate", True),
        low_freq_factor=_optional_factor(scaling, "low_freq_factor") or 1.0,
        high_freq_factor=_optional_factor(scaling, "high_freq_factor") or 4.0,
        short_factor=scaling.numbers("short_factor", above=MIN_ROPE_FACTOR),
        long_factor=scaling.numbers("long_factor", above=MIN_ROPE_FACTOR),
    )


def _optional_factor(scaling: Fields, key: str) -> float | None:
    """A number that is multiplied or divided with: neither next to nothing nor endless."""
    return scaling.optional_number(key, above=MIN_ROPE_FACTOR, at_most=MAX_ROPE_FACTOR)


def _original_max_position(scaling: Fields, config: Fields, kind: RopeScaling) -> int:
    """Context before scaling; for `dynamic` always `max_position_embeddings`."""
    if kind == "linear":
        return 0
    key = "original_max_position_embeddings"
    longest = config.optional_integer("max_position_embeddings", at_least=1) or 0
    if kind == "dynamic":
        return longest
    # Phi-3 has the key beside the object, and then it counts before the one inside.
    own = config.optional_integer(key, at_least=2)
    return own or scaling.optional_integer(key, at_least=2) or longest


def _factor(scaling: Fields, config: Fields, kind: RopeScaling, original: int) -> float:
    """LongRoPE files may leave it out: then it is the ratio of the two contexts."""
    if kind == "longrope" and "factor" not in scaling and original:
        return max(config.integer("max_position_embeddings", original) / original, 1.0)
    factor = scaling.number("factor", at_most=MAX_ROPE_FACTOR)
    if factor < 1.0:
        scaling.refuse("factor", f"must be at least 1, got {factor:g}")
    return factor
