"""Keys and tensors of a GGUF file that tell of experts -> MoeFacts.

Owns the keys that all architectures share, and what llama.cpp assumes where a file is silent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from octavo.config.model_facts import MoeFacts, Scoring
from octavo.errors import UnsupportedModelError
from octavo.weights.checkpoint import TensorView
from octavo.weights.facts_check import MAX_EXPERTS
from octavo.weights.fields import Fields

# `expert_gating_func` of llama.cpp
GATING: dict[int, Scoring] = {1: "softmax", 2: "sigmoid", 3: "softmax_chosen"}


class Assumed(msgspec.Struct, frozen=True):
    """What llama.cpp has in its code for one architecture."""

    gating: int = 1
    normalises: bool = False


_ASSUMED = {
    "gpt-oss": Assumed(gating=3),
    "granitemoe": Assumed(normalises=True),
    "llama4": Assumed(gating=2),
    "llama": Assumed(normalises=True),
    "qwen3moe": Assumed(normalises=True),
}


def gguf_moe(
    keys: Fields, tensors: Mapping[str, TensorView], architecture: str, num_layers: int
) -> MoeFacts | None:
    """The experts of a file, or None where there are none.

    Raises UnsupportedModelError for a kind of gating that we do not have.
    """
    num_experts = keys.integer("expert_count", 0, at_most=MAX_EXPERTS)
    if not num_experts:
        return None
    assumed = _ASSUMED.get(architecture, Assumed())
    gating = keys.integer("expert_gating_func", assumed.gating) or assumed.gating
    if gating not in GATING:
        kinds = ", ".join(f"{name} ({number})" for number, name in GATING.items())
        raise UnsupportedModelError(
            f"{keys.where}: expert gating of type {gating} is not supported. Supported: {kinds}"
        )
    layers = [i for i in range(num_layers) if f"blk.{i}.ffn_gate_inp.weight" in tensors]
    inner_size = keys.integer("feed_forward_length", 0) or None
    moe = MoeFacts(
        num_experts=num_experts,
        num_chosen=keys.integer("expert_used_count", at_least=1),
        intermediate_size=keys.integer("expert_feed_forward_length", inner_size, at_least=1),
        layers=tuple(layers),
        scoring=GATING[gating],
        normalises=keys.flag("expert_weights_norm", assumed.normalises),
        scale=keys.number("expert_weights_scale", 1.0) or 1.0,
    )
    return _with_groups(_with_tensors(moe, keys, tensors), keys)


def _with_groups(moe: MoeFacts, keys: Fields) -> MoeFacts:
    """The best of a group count, two where each counts for itself through a sigmoid."""
    num_groups = keys.integer("expert_group_count", 0) or 1
    return replace(
        moe,
        num_groups=num_groups,
        num_chosen_groups=keys.integer("expert_group_used_count", 0) or num_groups,
        group_best=2 if moe.scoring == "sigmoid" and num_groups > 1 else 1,
    )


def _with_tensors(moe: MoeFacts, keys: Fields, tensors: Mapping[str, TensorView]) -> MoeFacts:
    """What a file tells by the tensors that it has, all layers with experts alike."""
    first = f"blk.{moe.layers[0]}" if moe.layers else ""
    shared = tensors.get(f"{first}.ffn_gate_shexp.weight")
    return replace(
        moe,
        router_bias=f"{first}.ffn_gate_inp.bias" in tensors,
        has_correction=f"{first}.exp_probs_b.bias" in tensors,
        expert_bias=f"{first}.ffn_down_exps.bias" in tensors,
        shared_size=0 if shared is None else shared.shape[0],
        has_shared_gate=f"{first}.ffn_gate_inp_shexp.weight" in tensors,
    )
