"""What architectures of Hugging Face with layers that carry a state have of their own.

Owns the keys that tell of these layers, and the refusal of variants that we do not have; each
function is one of `hf_families.py`'s, as those of `hf_special.py` are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from octavo.config.model_facts import BranchScales, ModelFacts, StateFacts
from octavo.errors import UnsupportedModelError
from octavo.weights import hf_moe as moe
from octavo.weights import hf_special as own
from octavo.weights.fields import Fields

# What files call the two kinds of layers, over time.
_STATE_LAYERS = ("linear_attention", "mamba")
_ATTENTION_LAYERS = ("full_attention", "attention")
_BY_LETTER = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}  # Nemotron-H
UNBOUNDED = 1 << 20
"""Context of a model that has no keys and values, and names no limit: a state takes in any number
of tokens."""


def mamba2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Dao and Gu 2024: layers of a state-space mixer alone."""
    state = StateFacts(
        kind="mamba2",
        layers=tuple(range(facts.num_layers)),
        num_heads=facts.num_heads,
        head_dim=facts.head_dim,
        state_size=keys.integer("state_size", 128, at_least=1),
        num_groups=keys.integer("n_groups", 8, at_least=1),
        conv_width=keys.integer("conv_kernel", 4, at_least=2),
        conv_bias=keys.flag("use_conv_bias", True),
        projection_bias=keys.flag("use_bias", False),
        step_limits=_step_limits(keys),
    )
    return _with_states(facts, keys, state)


def nemotron_h(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """NVIDIA 2025: layers of one part each, Mamba-2, attention, an MLP or experts, all of them
    plain. No positions."""
    every = range(facts.num_layers)
    pattern = keys.text("hybrid_override_pattern", "")
    kinds = keys.texts("layers_block_type") or [_BY_LETTER.get(one, one) for one in pattern]
    layers = _state_layers(facts, keys, kinds, ("mlp", "moe"))
    state = StateFacts(
        kind="mamba2",
        layers=layers,
        num_heads=keys.integer("mamba_num_heads", 128, at_least=1),
        head_dim=keys.integer("mamba_head_dim", 64, at_least=1),
        state_size=keys.integer("ssm_state_size", 128, at_least=1),
        num_groups=keys.integer("n_groups", 8, at_least=1),
        conv_width=keys.integer("conv_kernel", 4, at_least=2),
        conv_bias=keys.flag("use_conv_bias", True),
        projection_bias=keys.flag("use_bias", False),
        step_limits=(keys.number("time_step_min", 0.001), math.inf),
    )
    if keys.optional_integer("moe_latent_size") is not None:
        raise UnsupportedModelError(f"{keys.where}: moe_latent_size is not supported")
    experts = None
    if "moe" in kinds:
        experts = replace(
            moe.deepseek_moe(facts, keys),
            layers=tuple(layer for layer in every if kinds[layer] == "moe"),
            shared_size=keys.integer("moe_shared_expert_intermediate_size", 7688, at_least=1),
        )
    facts = replace(
        facts,
        attention_bias=False,
        attention_out_bias=False,
        mlp_bias=keys.flag("mlp_bias", False),
        gated_mlp=False,
        moe=experts,
        layers_without_rope=tuple(every),
    )
    facts = _with_states(facts, keys, state, keys.text("mamba_hidden_act", "silu"))
    attending = [layer for layer in every if kinds[layer] in _ATTENTION_LAYERS]
    without = tuple(layer for layer in every if layer not in attending)
    return replace(facts, layers_without_attention=without)


def _with_states(
    facts: ModelFacts, keys: Fields, state: StateFacts, activation: str = ""
) -> ModelFacts:
    """The layers of the state have no attention."""
    activation = activation or facts.hidden_act
    if activation != "silu":
        raise UnsupportedModelError(
            f"{keys.where}: the activation {activation!r} is not supported in layers that carry a "
            "state. Supported: silu"
        )
    return replace(facts, state=state, layers_without_attention=state.layers)


def _step_limits(keys: Fields) -> tuple[float, float]:
    """Within which time steps are kept; JSON has no word for infinity, and files write several."""
    limits = keys.items("time_step_limit") or [0.0, math.inf]
    read = [math.inf if isinstance(one, dict) and "__float__" in one else one for one in limits]
    numbers = [float(one) for one in read if isinstance(one, int | float)]
    if len(read) != 2 or len(numbers) != 2 or numbers[0] > numbers[1]:
        keys.refuse("time_step_limit", f"must be two numbers, the lower first, got {limits}")
    return numbers[0], numbers[1]


def _state_layers(
    facts: ModelFacts, keys: Fields, kinds: Sequence[str], others: tuple[str, ...] = ()
) -> tuple[int, ...]:
    """Which layers carry a state, from a list of kinds. `others` are known and neither."""
    if len(kinds) != facts.num_layers:
        keys.refuse("layer_types", f"has {len(kinds)} items for {facts.num_layers} layers")
    unknown = sorted(set(kinds).difference(_STATE_LAYERS, _ATTENTION_LAYERS, others))
    if unknown:
        raise UnsupportedModelError(
            f"{keys.where}: layers of type {', '.join(unknown)} are not supported. Supported: "
            f"{', '.join((*_ATTENTION_LAYERS, *_STATE_LAYERS, *others))}"
        )
    return tuple(layer for layer, kind in enumerate(kinds) if kind in _STATE_LAYERS)


def qwen3_5(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Qwen 2026: gated delta nets in three of four layers, gated attention in the others."""
    period = keys.integer("full_attention_interval", 4, at_least=1)
    assumed = [
        _STATE_LAYERS[0] if (layer + 1) % period else _ATTENTION_LAYERS[0]
        for layer in range(facts.num_layers)
    ]
    state = StateFacts(
        kind="delta",
        layers=_state_layers(facts, keys, keys.texts("layer_types") or assumed),
        num_heads=keys.integer("linear_num_value_heads", 32, at_least=1),
        head_dim=keys.integer("linear_value_head_dim", 128, at_least=1),
        state_size=keys.integer("linear_key_head_dim", 128, at_least=1),
        num_groups=keys.integer("linear_num_key_heads", 16, at_least=1),
        conv_width=keys.integer("linear_conv_kernel_dim", 4, at_least=2),
    )
    return replace(
        _with_states(facts, keys, state),
        qk_norm=True,
        norm_weight_offset=1.0,
        attention_gate=True,
    )


def qwen3_next(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Qwen 2025: the same with experts, one of which all tokens share."""
    experts = replace(
        moe.qwen_moe(facts, keys),
        shared_size=keys.integer("shared_expert_intermediate_size", 512, at_least=1),
        has_shared_gate=True,
    )
    return replace(qwen3_5(facts, keys), moe=experts)


def granite_hybrid(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """IBM 2025: Granite with Mamba-2 in most layers, and experts beside a shared one in some."""
    kinds = keys.texts("layer_types") or keys.texts("layers_block_type")
    layers = _state_layers(facts, keys, kinds or [_STATE_LAYERS[0]] * facts.num_layers)
    positions = keys.text("position_embedding_type", "nope")
    facts = replace(
        facts, layers_without_rope=() if positions == "rope" else tuple(range(facts.num_layers))
    )
    shared_size = keys.integer("shared_intermediate_size", 1024, at_least=1)
    if keys.integer("num_local_experts"):
        experts = moe.granite_moe(facts, keys)
        assert experts.moe is not None, experts
        facts = replace(experts, moe=replace(experts.moe, shared_size=shared_size))
    else:
        facts = replace(own.granite(facts, keys), mlp_bias=False, intermediate_size=shared_size)
    return _with_states(facts, keys, _mamba2_state(facts, keys, layers))


def bamba(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """IBM 2024: Mamba-2 and, in the layers that a list names, attention."""
    listed = keys.items("attn_layer_indices")
    layers = tuple(layer for layer in range(facts.num_layers) if layer not in listed)
    facts = replace(facts, mlp_bias=keys.flag("mlp_bias", False))
    return _with_states(facts, keys, _mamba2_state(facts, keys, layers))


def falcon_h1(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """TII 2025: attention and Mamba-2 side by side, with factors for everything."""
    layers = tuple(range(facts.num_layers))
    state = replace(
        _mamba2_state(facts, keys, layers),
        has_norm=keys.flag("mamba_rms_norm", False),
        norm_before_gate=keys.flag("mamba_norm_before_gate", True),
        scales=_factors(keys, "ssm_multipliers", 5),
    )
    if keys.flag("projectors_bias", False) != state.projection_bias:
        raise UnsupportedModelError(
            f"{keys.where}: projectors_bias other than mamba_proj_bias is not supported"
        )
    mlp_gate, mlp_down = _factors(keys, "mlp_multipliers", 2)
    scales = BranchScales(
        state_in=keys.number("ssm_in_multiplier", 1.0),
        state_out=keys.number("ssm_out_multiplier", 1.0),
        attention_in=keys.number("attention_in_multiplier", 1.0),
        attention_out=keys.number("attention_out_multiplier", 1.0),
        mlp_gate=mlp_gate,
        mlp_down=mlp_down,
    )
    facts = replace(
        facts,
        attention_scale=facts.attention_scale * keys.number("key_multiplier", 1.0),
        embedding_scale=keys.number("embedding_multiplier", 1.0),
        logits_scale=keys.number("lm_head_multiplier", 1.0),
        mlp_bias=keys.flag("mlp_bias", False),
        branch_scales=scales,
    )
    return replace(_with_states(facts, keys, state), layers_without_attention=())


def _factors(keys: Fields, key: str, count: int) -> tuple[float, ...]:
    """So many numbers, all 1 where the file has none."""
    factors = keys.numbers(key) or (1.0,) * count
    if len(factors) != count:
        keys.refuse(key, f"must have {count} numbers, got {len(factors)}")
    return factors


def _mamba2_state(facts: ModelFacts, keys: Fields, layers: tuple[int, ...]) -> StateFacts:
    """Mamba-2 by the keys that hybrids share."""
    inner = keys.integer("mamba_expand", 2, at_least=1) * facts.hidden_size
    inner = keys.integer("mamba_d_ssm", inner, at_least=1)
    num_heads = keys.integer("mamba_n_heads", 128, at_least=1)
    if inner % num_heads:
        keys.refuse("mamba_n_heads", f"{num_heads} does not divide {inner} columns")
    head_dim = inner // num_heads
    if keys.value("mamba_d_head") not in (None, "auto", head_dim):
        keys.refuse("mamba_d_head", f"must be {head_dim} for {num_heads} heads of {inner} columns")
    return StateFacts(
        kind="mamba2",
        layers=layers,
        num_heads=num_heads,
        head_dim=head_dim,
        state_size=keys.integer("mamba_d_state", 256, at_least=1),
        num_groups=keys.integer("mamba_n_groups", 1, at_least=1),
        conv_width=keys.integer("mamba_d_conv", 4, at_least=2),
        conv_bias=keys.flag("mamba_conv_bias", True),
        projection_bias=keys.flag("mamba_proj_bias", False),
        step_limits=_step_limits(keys),
    )


def jamba(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Lieber et al. 2024: Mamba with attention and experts in between, positions by neither."""
    every = range(facts.num_layers)
    period = keys.integer("attn_layer_period", 8, at_least=1)
    offset = keys.integer("attn_layer_offset", 4)
    rank: int | None = None
    if keys.value("mamba_dt_rank") != "auto":
        rank = keys.optional_integer("mamba_dt_rank", at_least=1)
    state = StateFacts(
        kind="mamba",
        layers=tuple(layer for layer in every if layer % period != offset),
        num_heads=keys.integer("mamba_expand", 2, at_least=1) * facts.hidden_size,
        head_dim=1,
        state_size=keys.integer("mamba_d_state", 16, at_least=1),
        conv_width=keys.integer("mamba_d_conv", 4, at_least=2),
        conv_bias=keys.flag("mamba_conv_bias", True),
        projection_bias=keys.flag("mamba_proj_bias", False),
        step_rank=-(-facts.hidden_size // 16) if rank is None else rank,
    )
    experts = None
    if keys.integer("num_experts", at_least=1) > 1:
        period = keys.integer("expert_layer_period", 2, at_least=1)
        offset = keys.integer("expert_layer_offset", 1)
        with_experts = [layer for layer in every if layer % period == offset]
        experts = moe.mixture(facts, keys, normalises=False, layers=with_experts)
    facts = replace(facts, moe=experts, layers_without_rope=tuple(every))
    return _with_states(facts, keys, state)
