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
    PoolingFacts,
    PoolingMethod,
    RopeFacts,
)
from octavo.errors import UnsupportedModelError
from octavo.weights.facts_check import MAX_ROPE_THETA
from octavo.weights.fields import Fields

GEMMA2_27B_LAYERS = 46
GEMMA3_27B_LAYERS = 62
# `pooling_type` of llama.cpp
POOLING_CLS = 2
POOLING: dict[int, PoolingMethod] = {1: "mean", POOLING_CLS: "first", 3: "last"}
Adjust = Callable[[ModelFacts, Fields], ModelFacts]


def _unchanged(facts: ModelFacts, keys: Fields) -> ModelFacts:
    return facts


def _with_activation(activation: HiddenAct) -> Adjust:
    """Nothing but another activation."""
    return lambda facts, keys: replace(facts, hidden_act=activation)


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
        local_rope=RopeFacts(
            theta=keys.number("rope.freq_base_swa", 10000.0, above=1.0, at_most=MAX_ROPE_THETA),
            rotary_dim=facts.rope.rotary_dim,
        ),
        logits_soft_cap=keys.optional_number("final_logit_softcapping", above=0.0),
    )


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


def _bert(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """An encoder (Devlin et al. 2018); how it pools is a number of llama.cpp's."""
    kind = keys.integer("pooling_type", POOLING_CLS)
    if kind not in POOLING:
        raise UnsupportedModelError(
            f"{keys.where}: pooling of type {kind} is not supported. Supported: mean (1), the "
            "first token (2), the last one (3)"
        )
    everything = Fields(keys.values, keys.where)
    return replace(
        facts,
        hidden_act="gelu",
        norm_bias=True,
        is_causal=False,
        num_segments=everything.integer("tokenizer.ggml.token_type_count", 2, at_least=1),
        embedding_norm=True,
        final_norm=False,
        pooling=PoolingFacts(method=POOLING[kind]),
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
    if keys.number("attention.clamp_kqv", 0.0):
        raise UnsupportedModelError(f"{keys.where}: attention.clamp_kqv is not supported")
    return facts


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
    if facts.qk_norm:
        raise UnsupportedModelError(f"{keys.where}: attn_q_norm of command-r is not supported")
    return replace(
        facts,
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
    "cohere2": _cohere2,
    "command-r": _command_r,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "glm4": _unchanged,
    "gpt2": _with_activation("gelu_tanh"),
    "gptneox": _gptneox,
    "granite": _granite,
    "llama": _unchanged,
    "nemotron": _with_activation("relu2"),
    "olmo": _olmo,
    "olmo2": _olmo2,
    "phi2": _phi2,
    "phi3": _phi3,
    "qwen2": _unchanged,
    "qwen3": _unchanged,
    "seed_oss": _unchanged,
    "smollm3": _smollm3,
    "stablelm": _stablelm,
    "starcoder": _with_activation("gelu_tanh"),
    "starcoder2": _with_activation("gelu_tanh"),
}


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
