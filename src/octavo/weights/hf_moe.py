"""What mixtures of experts of Hugging Face have of their own.

Owns the keys that tell of experts and routers, and the refusal of variants that we do not have;
each function is one of `hf_families.py`'s, as those of `hf_special.py` are.
"""

from __future__ import annotations

from dataclasses import replace

from octavo.config.model_facts import ModelFacts, MoeFacts
from octavo.errors import UnsupportedModelError
from octavo.weights import hf_special as own
from octavo.weights.facts_check import MAX_EXPERTS
from octavo.weights.fields import Fields

_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")


def mixtral(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Jiang et al. 2024: experts in every layer, weights of those chosen add up to one."""
    return replace(own.mistral(facts, keys), moe=mixture(facts, keys, normalises=True))


def qwen2_moe(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Yang et al. 2024: an expert that all tokens share, which a gate of its own weighs."""
    has_bias = keys.flag("qkv_bias", True)
    moe = replace(
        qwen_moe(facts, keys),
        shared_size=keys.integer("shared_expert_intermediate_size", 5632, at_least=1),
        has_shared_gate=True,
    )
    windows = own.qwen2(facts, keys).sliding_windows
    return replace(
        facts, attention_bias=has_bias, attention_out_bias=False, moe=moe, sliding_windows=windows
    )


def qwen3_moe(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Yang et al. 2025: norms of queries and keys; a window, if used at all, is everywhere."""
    windows: tuple[int, ...] = ()
    if keys.flag("use_sliding_window", False):
        windows = own.mistral(facts, keys).sliding_windows
    return replace(facts, qk_norm=True, sliding_windows=windows, moe=qwen_moe(facts, keys))


def qwen_moe(facts: ModelFacts, keys: Fields) -> MoeFacts:
    """Layers without experts are named, or come in between."""
    dense = keys.items("mlp_only_layers")
    period = keys.integer("decoder_sparse_step", 1, at_least=1)
    layers = [i for i in range(facts.num_layers) if i not in dense and (i + 1) % period == 0]
    moe = mixture(facts, keys, normalises=keys.flag("norm_topk_prob", False), layers=layers)
    return replace(moe, intermediate_size=keys.integer("moe_intermediate_size", at_least=1))


def olmoe(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Muennighoff et al. 2024: norms of all queries together, and of all keys."""
    moe = mixture(facts, keys, normalises=keys.flag("norm_topk_prob", False))
    clip = keys.optional_number("clip_qkv", above=0.0)
    return replace(own.olmo2(facts, keys), moe=moe, clip_qkv=clip)


def granite_moe(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """IBM 2024: Granite with experts, whose weights are the softmax over those chosen."""
    moe = replace(mixture(facts, keys, normalises=False), scoring="softmax_chosen")
    return replace(own.granite(facts, keys), mlp_bias=False, moe=moe)


def phimoe(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Abdin et al. 2024: layer norms, biases in attention and on logits, a sparse mixer."""
    moe = mixture(facts, keys, normalises=False)
    if moe.num_chosen != 2:
        keys.refuse("num_experts_per_tok", f"must be 2, got {moe.num_chosen}")
    jitter = keys.number("router_jitter_noise", 0.01)
    moe = replace(moe, scoring="sparse_mixer", tolerance=2 * jitter)
    return replace(
        own.mistral(facts, keys),
        rope=replace(facts.rope, attention_factor=_mscale(keys) or facts.rope.attention_factor),
        norm="layer",
        norm_bias=True,
        head_bias=keys.flag("lm_head_bias", False),
        moe=moe,
    )


def _mscale(keys: Fields) -> float | None:
    """Phi's own word for the attention factor of its rope scaling, the same for any length."""
    for key in ("rope_scaling", "rope_parameters"):
        scaling = keys.section(key)
        if scaling is None or "long_mscale" not in scaling:
            continue
        factor = scaling.number("long_mscale", above=0.0)
        if scaling.number("short_mscale", factor) != factor:
            raise UnsupportedModelError(
                f"{scaling.where}: a short_mscale other than long_mscale is not supported"
            )
        return factor
    return None


def gpt_oss(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """OpenAI 2025: sinks beside the keys, windows in every other layer, clamped SwiGLU."""
    limit = keys.number("swiglu_limit", 7.0)
    if limit != 7.0:
        raise UnsupportedModelError(f"{keys.where}: swiglu_limit {limit:g} is not supported; 7 is")
    moe = replace(
        mixture(facts, keys, normalises=False),
        scoring="softmax_chosen",
        router_bias=True,
        expert_bias=True,
        activation="clamped_swiglu",
    )
    return replace(
        facts,
        attention_sinks=True,
        sliding_windows=own.windows(keys, own.periodic(facts, 2)),
        moe=moe,
    )


def llama4(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Meta 2025: one expert and a shared one; layers that rotate look at chunks."""
    period = keys.integer("interleave_moe_layer_step", 1, at_least=1)
    listed = keys.items("moe_layers") or list(range(period - 1, facts.num_layers, period))
    layers = [layer for layer in range(facts.num_layers) if layer in listed]
    moe = replace(
        mixture(facts, keys, normalises=False, layers=layers),
        scoring="score",
        weighs_input=True,
        shared_size=facts.intermediate_size,
    )
    if moe.num_chosen != 1:
        keys.refuse("num_experts_per_tok", f"must be 1, got {moe.num_chosen}")
    unrotated = own.unrotated_layers(facts, keys)
    chunk = keys.integer("attention_chunk_size", 0)
    temperature = None
    if keys.flag("attn_temperature_tuning", True):
        temperature = (
            float(keys.integer("floor_scale", 8192, at_least=1)),
            keys.number("attn_scale", 0.1),
        )
    return replace(
        facts,
        intermediate_size=keys.integer("intermediate_size_mlp", 16384, at_least=1),
        qk_norm=keys.flag("use_qk_norm", True),
        qk_norm_plain=True,
        temperature=temperature,
        layers_without_rope=unrotated,
        sliding_windows=tuple(
            0 if layer in unrotated else chunk for layer in range(facts.num_layers)
        )
        if chunk
        else (),
        windows_are_chunks=True,
        moe=moe,
    )


def glm4_moe(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Zeng et al. 2025: DeepSeek's router over a decoder with partly rotated heads."""
    return replace(
        facts,
        attention_out_bias=False,
        qk_norm=keys.flag("use_qk_norm", False),
        num_draft_layers=keys.integer("num_nextn_predict_layers", 0),
        moe=deepseek_moe(facts, keys),
    )


def deepseek_v2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """DeepSeek-AI 2024: latent attention, softmax over the experts of the best groups."""
    method = keys.text("topk_method", "greedy")
    if method not in ("greedy", "group_limited_greedy"):
        raise UnsupportedModelError(
            f"{keys.where}: topk_method {method!r} is not supported. Supported: greedy, "
            "group_limited_greedy"
        )
    moe = replace(
        deepseek_moe(facts, keys),
        scoring="softmax",
        has_correction=False,
        group_best=1,
        normalises=False,
    )
    if method == "greedy":
        moe = replace(moe, num_groups=1, num_chosen_groups=1)
    return replace(own.latent(facts, keys), moe=moe, mlp_bias=keys.flag("mlp_bias", False))


def deepseek_v3(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """DeepSeek-AI 2024: the same attention, sigmoids with a correction; layers to draft with."""
    return replace(
        own.latent(facts, keys),
        num_draft_layers=keys.integer("num_nextn_predict_layers", 0),
        moe=deepseek_moe(facts, keys),
    )


def deepseek_moe(facts: ModelFacts, keys: Fields) -> MoeFacts:
    """DeepSeek-AI 2024: sigmoids with a correction, groups, shared experts behind dense layers."""
    first = keys.integer("first_k_dense_replace", 0)
    moe = mixture(
        facts,
        keys,
        normalises=keys.flag("norm_topk_prob", True),
        layers=[i for i in range(facts.num_layers) if i >= first],
    )
    inner = keys.integer("moe_intermediate_size", at_least=1)
    return replace(
        moe,
        intermediate_size=inner,
        scoring="sigmoid",
        has_correction=True,
        scale=keys.number("routed_scaling_factor", 1.0),
        num_groups=keys.integer("n_group", 1, at_least=1),
        num_chosen_groups=keys.integer("topk_group", 1, at_least=1),
        group_best=2,
        shared_size=inner * keys.integer("n_shared_experts", 0),
    )


def mixture(
    facts: ModelFacts, keys: Fields, *, normalises: bool, layers: list[int] | None = None
) -> MoeFacts:
    """What all of them say; without `layers` all layers have experts."""
    count = next((name for name in _COUNTS if name in keys), None)
    if count is None:
        keys.refuse(
            _COUNTS[0], f"or {' or '.join(_COUNTS[1:])} must say how many experts there are"
        )
    return MoeFacts(
        num_experts=keys.integer(count, at_least=1, at_most=MAX_EXPERTS),
        num_chosen=keys.integer("num_experts_per_tok", at_least=1),
        intermediate_size=facts.intermediate_size,
        layers=tuple(range(facts.num_layers) if layers is None else layers),
        normalises=normalises,
    )
