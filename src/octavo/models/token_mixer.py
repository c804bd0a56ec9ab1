"""What lets the tokens of a sequence see each other in one layer, chosen by the facts."""

from __future__ import annotations

from octavo.config.model_facts import ModelFacts
from octavo.models.delta_net import DeltaNet
from octavo.models.latent_attention import LatentAttention, self_attention
from octavo.models.layers import Attention
from octavo.models.state_space import Mamba, Mamba2
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Weights

StateMixer = Mamba | Mamba2 | DeltaNet
TokenMixer = Attention | LatentAttention | StateMixer


def token_mixer(
    facts: ModelFacts, weights: Weights, layer: int, rope: RopeTable | None
) -> TokenMixer:
    """Of the kind that the facts say."""
    if facts.state is not None and layer in facts.state.layers:
        return state_mixer(facts, weights, layer)
    return self_attention(facts, weights, layer, f"model.layers.{layer}.self_attn", rope)


def state_mixer(facts: ModelFacts, weights: Weights, layer: int) -> StateMixer:
    """The part of a layer that carries a state."""
    assert facts.state is not None, facts
    match facts.state.kind:
        case "mamba":
            return Mamba(facts, facts.state, weights, layer)
        case "mamba2":
            return Mamba2(facts, facts.state, weights, layer)
        case "delta":
            return DeltaNet(facts, facts.state, weights, layer)
