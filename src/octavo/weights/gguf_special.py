"""What each of llama.cpp's architectures has of its own.

Owns the keys that only some have, and the constants that llama.cpp has in its code instead of in
the file. Each function gets the facts that all share and gives those of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from octavo.config.model_facts import (
    HiddenAct,
    ModelFacts,
    MoeFacts,
    RopeFacts,
)
from octavo.errors import UnsupportedModelError
from octavo.weights.facts_check import MAX_ROPE_THETA
from octavo.weights.fields import Fields

GEMMA2_27B_LAYERS = 46
GEMMA3_27B_LAYERS = 62
LLAMA4_MAVERICK_EXPERTS = 128  # the model that does not norm its queries and keys
LLAMA4_CHUNK = 8192
PHIMOE_TOLERANCE = 0.02  # twice the `router_jitter_noise` of Phi-3.5-MoE
ALIBI_LARGEST = 8.0  # exponent that slopes end with (Press et al. 2022)
MODERN_BERT_ACTIVATIONS: dict[str, HiddenAct] = {"gelu": "gelu", "silu": "silu"}
Adjust = Callable[[ModelFacts, Fields], ModelFacts]


def _unchanged(facts: ModelFacts, keys: Fields) -> ModelFacts:
    return facts


def _with_activation(activation: HiddenAct) -> Adjust:
    """Nothing but another activation."""
    return lambda facts, keys: replace(facts, hidden_act=activation)


def _bloom(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Positions by their distance, embeddings that are normed (BigScience 2022)."""
    return replace(facts, hidden_act="gelu_tanh", alibi=True, embedding_norm=True)


def _llama(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """With experts it is Mixtral."""
    return facts if facts.moe is None else replace(facts, architecture="MixtralForCausalLM")


def _llama4(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Chunks in three of four layers, the others do not rotate (Meta 2025)."""
    moe = _experts_of(facts, keys)
    unrotated = tuple(range(3, facts.num_layers, 4))
    return replace(
        facts,
        qk_norm=moe.num_experts != LLAMA4_MAVERICK_EXPERTS,
        qk_norm_plain=True,
        temperature=(
            float(keys.integer("attention.temperature_length", 8192, at_least=1)),
            keys.number("attention.temperature_scale", 0.1),
        ),
        layers_without_rope=unrotated,
        sliding_windows=tuple(
            0 if layer in unrotated else LLAMA4_CHUNK for layer in range(facts.num_layers)
        ),
        windows_are_chunks=True,
        moe=replace(moe, scoring="score", scale=1.0, normalises=False, weighs_input=True),
    )


def _deepseek2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Versions 2 and 3, which differ in their routers (DeepSeek-AI 2024)."""
    if _experts_of(facts, keys).scoring == "sigmoid":
        return replace(facts, architecture="DeepseekV3ForCausalLM")
    return facts


def _gpt_oss(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Sinks, windows in every other layer, clamped SwiGLU (OpenAI 2025)."""
    moe = _experts_of(facts, keys)
    return replace(
        facts,
        rope=replace(facts.rope, truncate=False),  # as it was trained
        sliding_windows=_windows(keys, facts.num_layers, 2),
        moe=replace(moe, activation="clamped_swiglu"),
    )


def _olmoe(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Norms of all queries together, and of all keys (Muennighoff et al. 2024)."""
    return replace(facts, qk_norm_over_heads=True)


def _gemma(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Gemma Team 2024. The norm weights have their +1 in the file already."""
    return replace(facts, hidden_act="gelu_tanh", embedding_scale=math.sqrt(facts.hidden_size))


def _gemma2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Windows in every other layer, capped scores and logits (Gemma Team 2024)."""
    return replace(
        _gemma(facts, keys),
        attention_scale=_query_size(facts, GEMMA2_27B_LAYERS) ** -0.5,
        sliding_windows=_windows(keys, facts.num_layers, 2),
        attention_soft_cap=keys.optional_number("attn_logit_softcapping", above=0.0),
        logits_soft_cap=keys.optional_number("final_logit_softcapping", above=0.0),
    )


def _gemma3(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Windows in five of six layers, with frequencies of their own (Gemma Team 2025)."""
    return replace(
        _gemma(facts, keys),
        attention_scale=_query_size(facts, GEMMA3_27B_LAYERS) ** -0.5,
        sliding_windows=_windows(keys, facts.num_layers, 6),
        local_rope=_local_rope(facts, keys),
        logits_soft_cap=keys.optional_number("final_logit_softcapping", above=0.0),
    )


def _gemma_embedding(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Gemma 3 that sees both sides, its windows split between them (Vera et al. 2025)."""
    facts = _gemma3(facts, keys)
    halves = tuple(window // 2 + 1 if window else 0 for window in facts.sliding_windows)
    return replace(facts, is_causal=False, sliding_windows=halves)


def _local_rope(facts: ModelFacts, keys: Fields) -> RopeFacts:
    """Of layers with a window."""
    theta = keys.number("rope.freq_base_swa", 10000.0, above=1.0, at_most=MAX_ROPE_THETA)
    return RopeFacts(theta=theta, rotary_dim=facts.rope.rotary_dim)


def _query_size(facts: ModelFacts, layers_of_27b: int) -> float:
    """What the scores are divided by the root of: the largest model has a rule of its own."""
    if facts.num_layers == layers_of_27b:
        return facts.hidden_size / facts.num_heads
    return facts.head_dim


def _phi2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    return replace(facts, hidden_act="gelu_tanh", parallel_residual=True, shared_norm=True)


def _phi3(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """A window of 0 tokens is none."""
    window = keys.integer("attention.sliding_window", 0)
    return replace(facts, sliding_windows=(window,) * facts.num_layers if window else ())


def _phimoe(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Abdin et al. 2024: layer norms, and a sparse mixer with its published noise."""
    moe = _experts_of(facts, keys)
    if moe.num_chosen != 2:
        keys.refuse("expert_used_count", f"must be 2, got {moe.num_chosen}")
    return replace(
        _phi3(facts, keys),
        norm="layer",
        moe=replace(moe, scoring="sparse_mixer", normalises=False, tolerance=PHIMOE_TOLERANCE),
    )


def _falcon(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Almazrouei et al. 2023, the models that rotate: attention and MLP side by side."""
    return replace(facts, hidden_act="gelu", parallel_residual=True)


def _mpt(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """MosaicML 2023: positions by distance, queries, keys and values within a limit."""
    largest = keys.number("attention.max_alibi_bias", 0.0)
    if largest != ALIBI_LARGEST:
        raise UnsupportedModelError(
            f"{keys.where}: attention.max_alibi_bias is {largest:g}; supported: {ALIBI_LARGEST:g}"
        )
    return replace(_olmo(facts, keys), hidden_act="gelu", alibi=True)


def _bert(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """An encoder (Devlin et al. 2018), and RoBERTa, whose table begins with the first position."""
    everything = Fields(keys.values, keys.where)
    return replace(
        facts,
        hidden_act="gelu",
        norm_bias=True,
        is_causal=False,
        num_segments=everything.integer("tokenizer.ggml.token_type_count", 2, at_least=1),
        embedding_norm=True,
        final_norm=False,
    )


def _modern_bert(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Warner et al. 2024: one in three layers sees everything, the first one among them."""
    activation = keys.text("hidden_activation", "gelu")
    if activation not in MODERN_BERT_ACTIVATIONS:
        keys.refuse("hidden_activation", f"must be gelu or silu, got {activation!r}")
    period = keys.integer("attention.sliding_window_pattern", 3, at_least=1)
    window = keys.integer("attention.sliding_window", 0) // 2 + 1
    return replace(
        facts,
        hidden_act=MODERN_BERT_ACTIVATIONS[activation],
        is_causal=False,
        embedding_norm=True,
        sliding_windows=tuple(
            window if window > 1 and layer % period else 0 for layer in range(facts.num_layers)
        ),
        local_rope=_local_rope(facts, keys),
    )


def _granite(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Multipliers; logits are divided by theirs."""
    return replace(
        facts,
        attention_scale=keys.number("attention.scale", facts.attention_scale),
        embedding_scale=keys.number("embedding_scale", 1.0),
        residual_scale=keys.number("residual_scale", 1.0),
        logits_scale=1.0 / keys.number("logit_scale", above=0.0),
    )


def _smollm3(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Every fourth layer has no rotary positions."""
    return replace(facts, layers_without_rope=tuple(range(3, facts.num_layers, 4)))


def _olmo(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Groeneveld et al. 2024; a limit of 0 is none."""
    limit = keys.number("attention.clamp_kqv", 0.0)
    if limit < 0.0:
        keys.refuse("attention.clamp_kqv", f"must not be negative, got {limit:g}")
    return replace(facts, clip_qkv=limit or None)


def _olmo2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """With a window it is OLMo 3, whose window layers are not scaled."""
    facts = replace(facts, qk_norm_over_heads=True)
    if "attention.sliding_window" not in keys:
        return facts
    return replace(
        facts,
        architecture="Olmo3ForCausalLM",
        sliding_windows=_windows(keys, facts.num_layers, 4),
        local_rope=RopeFacts(theta=facts.rope.theta, rotary_dim=facts.rope.rotary_dim),
    )


def _command_r(facts: ModelFacts, keys: Fields) -> ModelFacts:
    return replace(
        facts,
        qk_norm_by_head=True,
        parallel_residual=True,
        shared_norm=True,
        logits_scale=keys.number("logit_scale"),
    )


def _cohere2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Layers without a window have no rotary positions."""
    windows = _windows(keys, facts.num_layers, 4)
    full = tuple(layer for layer, window in enumerate(windows) if not window)
    return replace(_command_r(facts, keys), sliding_windows=windows, layers_without_rope=full)


def _stablelm(facts: ModelFacts, keys: Fields) -> ModelFacts:
    if facts.qk_norm:
        raise UnsupportedModelError(f"{keys.where}: attn_q_norm of stablelm is not supported")
    is_parallel = keys.flag("use_parallel_residual", False)
    return replace(facts, parallel_residual=is_parallel, shared_norm=True)


def _gptneox(facts: ModelFacts, keys: Fields) -> ModelFacts:
    is_parallel = keys.flag("use_parallel_residual", True)
    return replace(facts, hidden_act="gelu", parallel_residual=is_parallel)


ADJUST: dict[str, Adjust] = {
    "arcee": _with_activation("relu2"),
    "bert": _bert,
    "bloom": _bloom,
    "chatglm": _unchanged,
    "cohere2": _cohere2,
    "command-r": _command_r,
    "deepseek2": _deepseek2,
    "ernie4_5": _unchanged,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma-embedding": _gemma_embedding,
    "glm4": _unchanged,
    "gpt2": _with_activation("gelu_tanh"),
    "gptneox": _gptneox,
    "glm4moe": _unchanged,
    "gpt-oss": _gpt_oss,
    "granite": _granite,
    "granitemoe": _granite,
    "llama": _llama,
    "llama4": _llama4,
    "modern-bert": _modern_bert,
    "mpt": _mpt,
    "nemotron": _with_activation("relu2"),
    "olmo": _olmo,
    "olmo2": _olmo2,
    "olmoe": _olmoe,
    "phi2": _phi2,
    "phi3": _phi3,
    "phimoe": _phimoe,
    "qwen2": _unchanged,
    "qwen2moe": _unchanged,
    "qwen3": _unchanged,
    "qwen3moe": _unchanged,
    "seed_oss": _unchanged,
    "smollm3": _smollm3,
    "stablelm": _stablelm,
    "starcoder": _with_activation("gelu_tanh"),
    "starcoder2": _with_activation("gelu_tanh"),
}


def _experts_of(facts: ModelFacts, keys: Fields) -> MoeFacts:
    """Of an architecture that is nothing without them."""
    if facts.moe is None:
        keys.refuse("expert_count", "must be at least 1 for this architecture")
    return facts.moe


def _windows(keys: Fields, num_layers: int, assumed_period: int) -> tuple[int, ...]:
    """The window of each layer: one in so many sees everything, unless the file says otherwise."""
    window = keys.integer("attention.sliding_window", at_least=1)
    key = "attention.sliding_window_pattern"
    if isinstance(keys.value(key), list):
        flags = keys.items(key)
        if len(flags) != num_layers:
            keys.refuse(key, f"has {len(flags)} items for {num_layers} layers")
        return tuple(window if flag else 0 for flag in flags)
    period = keys.integer(key, assumed_period, at_least=1)
    return tuple(window if (layer + 1) % period else 0 for layer in range(num_layers))
