"""What each architecture of Hugging Face has of its own, beside the keys that all of them have.

Owns the meaning of those keys, and the refusal of variants that we do not have. Each function gets
the facts that all architectures share and gives those of its own. Which architecture uses which is
in `hf_families.py`.
"""

from __future__ import annotations

import math
from dataclasses import replace

from octavo.config.model_facts import LatentFacts, ModelFacts
from octavo.errors import UnsupportedModelError
from octavo.weights.fields import Fields
from octavo.weights.hf_rope import local_rope_facts

WINDOW_LAYER, FULL_LAYER = "sliding_attention", "full_attention"


def llama(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Touvron et al. 2023."""
    return replace(facts, mlp_bias=keys.flag("mlp_bias", False))


def arcee(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """A plain MLP with squared ReLU."""
    return replace(llama(facts, keys), gated_mlp=False)


def seed_oss(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """ByteDance 2025: Llama with biases on queries, keys and values."""
    return replace(llama(facts, keys), attention_out_bias=keys.flag("attention_out_bias", False))


def mistral(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """A window, where there is one, holds for all layers (Jiang et al. 2023)."""
    window = keys.optional_integer("sliding_window", at_least=1)
    if window is None:
        return facts
    return replace(facts, sliding_windows=(window,) * facts.num_layers)


def ministral(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Mistral AI 2024: as Mistral, but some layers may see everything."""
    return replace(facts, sliding_windows=windows(keys, [WINDOW_LAYER] * facts.num_layers))


def ernie4_5(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Baidu 2025: Llama with biases everywhere or nowhere."""
    return _all_biases(facts, keys.flag("use_bias", False))


def phi3(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Abdin et al. 2024: Llama without biases, with a window in some checkpoints."""
    return replace(mistral(facts, keys), attention_bias=False, attention_out_bias=False)


def qwen2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Queries, keys and values always have a bias, the output never."""
    biases = replace(facts, attention_bias=True, attention_out_bias=False)
    return replace(biases, sliding_windows=_qwen_windows(facts, keys))


def qwen3(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Yang et al. 2025: norms of queries and keys."""
    return replace(facts, qk_norm=True, sliding_windows=_qwen_windows(facts, keys))


def _qwen_windows(facts: ModelFacts, keys: Fields) -> tuple[int, ...]:
    """Only with `use_sliding_window`, and only from layer `max_window_layers` on."""
    if not keys.flag("use_sliding_window", False):
        return ()
    first = keys.integer("max_window_layers", 28)
    kinds = [WINDOW_LAYER if layer >= first else FULL_LAYER for layer in range(facts.num_layers)]
    return windows(keys, kinds)


def gemma(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Gemma Team 2024: scaled embeddings, norm weights around one. "gelu" means its tanh form."""
    if not facts.architecture.startswith("Gemma3"):
        _refuse(keys, "use_bidirectional_attention")
    return replace(
        facts,
        hidden_act="gelu_tanh" if facts.hidden_act == "gelu" else facts.hidden_act,
        embedding_scale=math.sqrt(facts.hidden_size),
        norm_weight_offset=1.0,
    )


def gemma2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Gemma Team 2024: windows in every other layer, capped scores and logits."""
    return replace(
        gemma(facts, keys),
        attention_scale=keys.number("query_pre_attn_scalar", above=0.0) ** -0.5,
        sliding_windows=windows(keys, periodic(facts, 2)),
        attention_soft_cap=keys.optional_number("attn_logit_softcapping", above=0.0),
        logits_soft_cap=keys.optional_number("final_logit_softcapping", above=0.0),
    )


def gemma3(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Gemma Team 2025: windows in five of six layers with frequencies of their own, q/k norms."""
    sees_both_sides = keys.flag("use_bidirectional_attention", False)
    period = keys.integer("sliding_window_pattern", 6, at_least=1)
    return replace(
        gemma2(facts, keys),
        # The context is given after scaling, other than for older models.
        max_position=keys.integer("max_position_embeddings"),
        qk_norm=True,
        is_causal=not sees_both_sides,  # EmbeddingGemma, whose window is split between them
        sliding_windows=tuple(
            window // 2 + 1 if sees_both_sides and window else window
            for window in windows(keys, periodic(facts, period))
        ),
        local_rope=local_rope_facts(keys, facts.head_dim, 10000.0),
    )


def unrotated_layers(facts: ModelFacts, keys: Fields) -> tuple[int, ...]:
    """Layers without rotary positions: those that a list marks with 0, else one in so many."""
    interval = keys.integer("no_rope_layer_interval", 4, at_least=1)
    flags = keys.items("no_rope_layers") or [(i + 1) % interval for i in range(facts.num_layers)]
    if len(flags) < facts.num_layers:
        keys.refuse("no_rope_layers", f"has {len(flags)} items for {facts.num_layers} layers")
    return tuple(layer for layer in range(facts.num_layers) if not flags[layer])


def smollm3(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Some layers have no rotary positions; a window, if used at all, is there alone."""
    unrotated = unrotated_layers(facts, keys)
    kinds = [WINDOW_LAYER if i in unrotated else FULL_LAYER for i in range(facts.num_layers)]
    has_windows = keys.flag("use_sliding_window", False)
    return replace(
        llama(facts, keys),
        layers_without_rope=unrotated,
        sliding_windows=windows(keys, kinds) if has_windows else (),
    )


def granite(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """IBM 2024: multipliers instead of learned scales."""
    return replace(
        llama(facts, keys),
        embedding_scale=keys.number("embedding_multiplier", 1.0),
        attention_scale=keys.number("attention_multiplier", 1.0),
        residual_scale=keys.number("residual_multiplier", 1.0),
        logits_scale=1.0 / keys.number("logits_scaling", 1.0, above=0.0),
    )


def olmo(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Groeneveld et al. 2024: layer norms without weights."""
    clip = keys.optional_number("clip_qkv", above=0.0)
    return replace(facts, norm="layer_without_weight", clip_qkv=clip)


def olmo2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """OLMo Team 2024: norms of all queries together, and of all keys."""
    return replace(facts, qk_norm=True, qk_norm_over_heads=True)


def olmo3(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """OLMo Team 2025: windows in three of four layers, whose frequencies are not scaled."""
    return replace(
        olmo2(facts, keys),
        sliding_windows=windows(keys, periodic(facts, 4)),
        local_rope=local_rope_facts(keys, facts.head_dim, facts.rope.theta),
    )


def glm(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Queries, keys and values may have a bias, the output never. GLM-4 differs in its wiring."""
    return replace(facts, attention_out_bias=False)


def helium(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Kyutai 2025: Llama without a bias on the output of attention."""
    return replace(llama(facts, keys), attention_out_bias=False)


def cohere(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Command R: attention and MLP side by side behind one layer norm without a bias."""
    return replace(
        facts,
        qk_norm=keys.flag("use_qk_norm", False),
        qk_norm_by_head=True,
        norm="layer",
        parallel_residual=True,
        shared_norm=True,
        logits_scale=keys.number("logit_scale"),
    )


def cohere2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Command R7B: layers without a window have no rotary positions."""
    period = keys.integer("sliding_window_pattern", 4, at_least=1)
    own_windows = windows(keys, periodic(facts, period))
    return replace(
        cohere(facts, keys),
        sliding_windows=own_windows,
        layers_without_rope=tuple(
            layer for layer in range(facts.num_layers) if not (own_windows and own_windows[layer])
        ),
    )


def stablelm(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Bellagente et al. 2024: Llama with layer norms and a rotation of a quarter of each head."""
    _refuse(keys, "qk_layernorm")
    return replace(
        _layer_norms(facts),
        attention_bias=keys.flag("use_qkv_bias", False),
        attention_out_bias=False,
        parallel_residual=keys.flag("use_parallel_residual", False),
        shared_norm=True,
    )


def starcoder2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Lozhkov et al. 2024."""
    facts = mistral(_layer_norms(facts), keys)
    return _all_biases(replace(facts, gated_mlp=False), keys.flag("use_bias", True))


def gpt_neox(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Black et al. 2022. The MLP always has biases."""
    has_bias = keys.flag("attention_bias", True)
    return replace(
        _layer_norms(facts),
        attention_bias=has_bias,
        attention_out_bias=has_bias,
        mlp_bias=True,
        gated_mlp=False,
        parallel_residual=keys.flag("use_parallel_residual", True),
    )


def phi(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Phi 1 to 2 (Gunasekar et al. 2023): biases everywhere, also on the logits."""
    _refuse(keys, "qk_layernorm")
    return replace(
        _all_biases(_layer_norms(facts), True),
        head_bias=True,
        gated_mlp=False,
        parallel_residual=True,
        shared_norm=True,
    )


def nemotron(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Parmar et al. 2024: layer norms with weights around one, a plain MLP with squared ReLU."""
    return replace(_layer_norms(llama(facts, keys)), norm_weight_offset=1.0, gated_mlp=False)


def gpt2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Radford et al. 2019."""
    for key in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        _refuse(keys, key)
    scale = facts.attention_scale if keys.flag("scale_attn_weights", True) else 1.0
    facts = replace(facts, attention_scale=scale, gated_mlp=False)
    return _all_biases(_layer_norms(facts), True)


def gpt_bigcode(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Allal et al. 2023: GPT-2 with one KV head."""
    num_kv_heads = 1 if keys.flag("multi_query", True) else facts.num_heads
    return replace(gpt2(facts, keys), num_kv_heads=num_kv_heads)


def opt(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Zhang et al. 2022. The model of 350 million parameters is another one (post-norm)."""
    if not keys.flag("do_layer_norm_before", True):
        raise UnsupportedModelError(f"{keys.where}: do_layer_norm_before false is not supported")
    if keys.integer("word_embed_proj_dim", facts.hidden_size) != facts.hidden_size:
        raise UnsupportedModelError(
            f"{keys.where}: a word_embed_proj_dim other than hidden_size is not supported"
        )
    _refuse(keys, "_remove_final_layer_norm")
    facts = replace(facts, gated_mlp=False)
    facts = _all_biases(facts, keys.flag("enable_bias", True))
    if not keys.flag("layer_norm_elementwise_affine", True):
        return replace(facts, norm="layer_without_weight")
    return _layer_norms(facts)


def falcon(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Almazrouei et al. 2023, both architectures."""
    is_new = keys.flag("new_decoder_architecture", False)
    num_kv_heads = facts.num_heads
    if is_new:
        num_kv_heads = keys.integer("num_kv_heads", facts.num_heads, at_least=1)
    elif keys.flag("multi_query", True):
        num_kv_heads = 1
    is_parallel = is_new or keys.flag("parallel_attn", True)
    num_norms = keys.integer("num_ln_in_parallel_attn", 2 if is_new else 1)
    facts = replace(
        _layer_norms(facts),
        num_kv_heads=num_kv_heads,
        gated_mlp=False,
        alibi=keys.flag("alibi", False),
        alibi_scale=facts.attention_scale,  # they are scaled with the scores
        parallel_residual=is_parallel,
        shared_norm=is_parallel and not (is_new and num_norms == 2),
    )
    return _all_biases(facts, keys.flag("bias", False))


def bloom(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """BigScience 2022: positions by distance, embeddings that are normed, biases everywhere."""
    _refuse(keys, "apply_residual_connection_post_layernorm")
    facts = replace(facts, gated_mlp=False, alibi=True, embedding_norm=True)
    return _all_biases(_layer_norms(facts), True)


def mpt(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """MosaicML 2023: positions by distance, no biases, not even in norms."""
    if not keys.flag("no_bias", True):
        raise UnsupportedModelError(f"{keys.where}: no_bias false is not supported")
    attention = keys.section("attn_config") or Fields({}, keys.where)
    _refuse(attention, "qk_ln")
    if not attention.flag("alibi", True):
        raise UnsupportedModelError(f"{attention.where}: alibi false is not supported")
    scale = attention.optional_number("softmax_scale", above=0.0)
    return replace(
        facts,
        norm="layer",
        gated_mlp=False,
        alibi=True,
        clip_qkv=attention.optional_number("clip_qkv", above=0.0),
        attention_scale=facts.attention_scale if scale is None else scale,
    )


def latent(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Multi-head latent attention (DeepSeek-AI 2024). Where YaRN has a word for it, it stretches
    the scores as well."""
    parts = LatentFacts(
        q_rank=keys.integer("q_lora_rank", 0),
        kv_rank=keys.integer("kv_lora_rank", at_least=1),
        nope_dim=keys.integer("qk_nope_head_dim", at_least=1),
        rope_dim=keys.integer("qk_rope_head_dim", at_least=2),
        value_dim=keys.integer("v_head_dim", at_least=1),
    )
    scale = (parts.nope_dim + parts.rope_dim) ** -0.5
    rope = replace(facts.rope, rotary_dim=parts.rope_dim)
    if rope.scaling == "yarn" and rope.mscale_all_dim:
        scale *= (0.1 * rope.mscale_all_dim * math.log(rope.factor) + 1.0) ** 2
    return replace(
        facts,
        num_kv_heads=1,
        head_dim=parts.kv_rank + parts.rope_dim,
        rope=rope,
        attention_scale=scale,
        latent=parts,
    )


def _layer_norms(facts: ModelFacts) -> ModelFacts:
    return replace(facts, norm="layer", norm_bias=True)


def _all_biases(facts: ModelFacts, has_bias: bool) -> ModelFacts:
    return replace(facts, attention_bias=has_bias, attention_out_bias=has_bias, mlp_bias=has_bias)


def _refuse(keys: Fields, key: str) -> None:
    """Raise UnsupportedModelError when the flag `key` is set."""
    if keys.flag(key, False):
        raise UnsupportedModelError(f"{keys.where}: {key} is not supported")


def periodic(facts: ModelFacts, period: int) -> list[str]:
    """Kinds of layers where every `period`-th sees everything."""
    return [FULL_LAYER if (i + 1) % period == 0 else WINDOW_LAYER for i in range(facts.num_layers)]


def windows(keys: Fields, assumed_kinds: list[str]) -> tuple[int, ...]:
    """The window of each layer from `layer_types`; empty when no layer has one."""
    kinds = keys.texts("layer_types") or assumed_kinds
    unknown = set(kinds) - {WINDOW_LAYER, FULL_LAYER}
    if unknown:
        raise UnsupportedModelError(
            f"{keys.where}: layers of type {', '.join(sorted(unknown))} are not supported. "
            f"Supported: {FULL_LAYER}, {WINDOW_LAYER}"
        )
    window = keys.optional_integer("sliding_window", at_least=1)
    if window is None or WINDOW_LAYER not in kinds:
        return ()
    return tuple(window if kind == WINDOW_LAYER else 0 for kind in kinds)
