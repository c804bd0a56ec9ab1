"""What must hold between the facts of a model, whatever file they came from.

Owns the checks that neither reader can leave to a single key. Does not know keys or files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from octavo.config.model_facts import ModelFacts, MoeFacts, RopeFacts
from octavo.errors import CorruptFileError

logger = logging.getLogger(__name__)

# A claim beyond these is a broken file, not a model.
MAX_LAYERS = 4096
MAX_EXPERTS = 4096
MAX_HEADS = 2**16
MAX_HEAD_DIM = 2**16
MAX_ROPE_THETA = 1e12
MAX_ROPE_FACTOR = 1e6
MIN_ROPE_FACTOR = 1e-6


def check_facts(facts: ModelFacts, where: str) -> None:
    """Raises CorruptFileError with the numbers that do not fit together."""
    if facts.num_heads > MAX_HEADS or facts.head_dim > MAX_HEAD_DIM:
        raise CorruptFileError(
            f"{where}: {facts.num_heads} heads of {facts.head_dim} elements; at most {MAX_HEADS} "
            f"of {MAX_HEAD_DIM} are allowed"
        )
    if facts.num_heads % facts.num_kv_heads:
        raise CorruptFileError(
            f"{where}: {facts.num_heads} attention heads cannot share {facts.num_kv_heads} KV heads"
        )
    if facts.sliding_windows and len(facts.sliding_windows) != facts.num_layers:
        raise CorruptFileError(
            f"{where}: {facts.num_layers} layers, but {len(facts.sliding_windows)} layer types"
        )
    if facts.moe is not None:
        _check_moe(facts.moe, where)
    if facts.state is not None and facts.state.num_heads % facts.state.num_groups:
        raise CorruptFileError(
            f"{where}: {facts.state.num_heads} heads that carry a state cannot share the keys of "
            f"{facts.state.num_groups} groups"
        )
    if not facts.learned_positions and not facts.alibi:
        _check_rope(facts.rope, facts, where)
    if facts.local_rope is not None:
        _check_rope(facts.local_rope, facts, where)


def _check_moe(moe: MoeFacts, where: str) -> None:
    if moe.num_experts % moe.num_groups or moe.num_chosen_groups > moe.num_groups:
        raise CorruptFileError(
            f"{where}: {moe.num_experts} experts in {moe.num_groups} groups, of which "
            f"{moe.num_chosen_groups} are looked at, do not fit together"
        )
    size = moe.num_experts // moe.num_groups
    if moe.num_chosen > size * moe.num_chosen_groups or moe.group_best > size:
        raise CorruptFileError(
            f"{where}: a token cannot use {moe.num_chosen} experts of "
            f"{moe.num_chosen_groups} groups of {size}"
        )


def known_token_ids(
    token_ids: Iterable[int], vocab_size: int, where: str, what: str
) -> tuple[int, ...]:
    """`token_ids` without repetitions and without ids that the vocabulary does not have."""
    kept: list[int] = []
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            # Some files write a number out of range for "none".
            logger.warning("%s: %s %d is not in the vocabulary, ignored", where, what, token_id)
        elif token_id not in kept:
            kept.append(token_id)
    return tuple(kept)


def _check_rope(rope: RopeFacts, facts: ModelFacts, where: str) -> None:
    if rope.rotary_dim % 2 or not 0 < rope.rotary_dim <= facts.head_dim:
        raise CorruptFileError(
            f"{where}: {rope.rotary_dim} rotary dimensions in heads of {facts.head_dim}; "
            "must be even and at most as many"
        )
    if rope.scaling in ("yarn", "llama3", "longrope", "dynamic") and not rope.original_max_position:
        raise CorruptFileError(
            f"{where}: {rope.scaling} rope scaling needs the original context length"
        )
    if rope.scaling == "llama3" and rope.low_freq_factor > rope.high_freq_factor:
        raise CorruptFileError(f"{where}: low_freq_factor must not be above high_freq_factor")
    if rope.scaling == "dynamic" and rope.rotary_dim < 4:
        raise CorruptFileError(f"{where}: dynamic rope scaling needs at least 4 rotary dimensions")
    divisors = [rope.inv_freq_divisors] if rope.inv_freq_divisors else []
    if rope.scaling == "longrope":
        divisors += [rope.short_factor, rope.long_factor]
    for values in divisors:
        if len(values) != rope.rotary_dim // 2 or min(values) <= 0:
            raise CorruptFileError(
                f"{where}: {len(values)} rope factors for {rope.rotary_dim // 2} frequencies; "
                "there must be one positive factor for each"
            )
