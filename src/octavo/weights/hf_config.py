"""config.json of a Hugging Face folder -> ModelFacts.

Owns the keys, what a missing one means for each architecture, and which architectures can be read.
Does not know files other than by the objects it is given, and no tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from octavo.config.model_facts import ModelFacts
from octavo.errors import UnsupportedModelError
from octavo.weights.checkpoint import WeightType
from octavo.weights.facts_check import MAX_LAYERS, check_facts
from octavo.weights.fields import Fields
from octavo.weights.hf_rope import local_rope_facts, max_position, rope_facts

ACTIVATIONS: dict[str, Literal["silu", "gelu_tanh", "gelu"]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
DTYPES = ("float32", "float16", "bfloat16")
WINDOW_LAYER, FULL_LAYER = "sliding_attention", "full_attention"


@dataclass(frozen=True, slots=True)
class _Family:
    """One architecture: what it assumes for missing keys, and what it has of its own."""

    assumed: Mapping[str, object]
    adjust: Callable[[ModelFacts, Fields], ModelFacts]
    theta: float = 10000.0  # base of the rotary embedding


def facts_from_config(values: Mapping[str, object], where: str) -> ModelFacts:
    """Facts from the content of config.json, without what other files say (EOS ids, defaults).

    Raises UnsupportedModelError for an architecture or quantisation that we do not have,
    CorruptFileError that names a missing or wrong key.
    """
    config = Fields(values, where)
    architecture = _architecture(config)
    family = _FAMILIES[architecture]
    text = text_section(config)
    for section in (config, text):
        _refuse_quantisation(section)
    keys = Fields({**family.assumed, **_present(values, text)}, text.where)
    facts = family.adjust(_common(keys, architecture, family.theta), keys)
    check_facts(facts, where)
    return facts


def text_section(config: Fields) -> Fields:
    """The part about the decoder: models that also see or hear keep it apart."""
    return config.section("text_config") or config


def _present(values: Mapping[str, object], text: Fields) -> dict[str, object]:
    """Keys of the decoder, before those that hold for the whole model."""
    nested = values.get("text_config")
    if not isinstance(nested, dict):
        return dict(values)
    shared = {k: values[k] for k in ("tie_word_embeddings", "torch_dtype", "dtype") if k in values}
    return {**shared, **nested}


def _architecture(config: Fields) -> str:
    names = config.texts("architectures")
    for name in names:
        if name in _FAMILIES:
            return name
    found = ", ".join(names) or f"model_type {config.text('model_type', 'unknown')}"
    message = f"{config.where}: the architecture {found} is not supported"
    raise UnsupportedModelError(f"{message}. Supported: {', '.join(sorted(_FAMILIES))}")


def _refuse_quantisation(section: Fields) -> None:
    for key in ("quantization_config", "compression_config"):
        quantisation = section.section(key)
        if quantisation is not None:
            method = quantisation.text("quant_method", "of an unnamed method")
            ours = ", ".join(t.name for t in WeightType if t.block_elements > 1)
            raise UnsupportedModelError(
                f"{section.where}: quantisation {method} is not supported. Supported: F32, F16 and "
                f"BF16 in safetensors files, and the types {ours} in GGUF files"
            )


def _common(keys: Fields, architecture: str, default_theta: float) -> ModelFacts:
    """What is read in the same way for all architectures."""
    hidden_size = keys.integer("hidden_size", at_least=1)
    num_heads = keys.integer("num_attention_heads", at_least=1)
    head_dim = keys.optional_integer("head_dim", at_least=1)
    if head_dim is None:
        if hidden_size % num_heads:
            keys.refuse("hidden_size", f"{hidden_size} is not a multiple of {num_heads} heads")
        head_dim = hidden_size // num_heads
    rope = rope_facts(keys, head_dim, default_theta)
    longest = keys.integer("max_position_embeddings", at_least=1)
    has_bias = keys.flag("attention_bias", False)
    return ModelFacts(
        architecture=architecture,
        vocab_size=keys.integer("vocab_size", at_least=1),
        hidden_size=hidden_size,
        intermediate_size=keys.integer("intermediate_size", at_least=1),
        num_layers=keys.integer("num_hidden_layers", at_least=1, at_most=MAX_LAYERS),
        num_heads=num_heads,
        num_kv_heads=keys.integer("num_key_value_heads", num_heads, at_least=1),
        head_dim=head_dim,
        max_position=max_position(keys, rope, longest),
        rms_norm_eps=keys.number("rms_norm_eps", above=0.0),
        hidden_act=_activation(keys),
        rope=rope,
        tie_word_embeddings=keys.flag("tie_word_embeddings"),
        attention_bias=has_bias,
        attention_out_bias=has_bias,
        attention_scale=head_dim**-0.5,
        dtype=_dtype(keys),
    )


def _llama(facts: ModelFacts, keys: Fields) -> ModelFacts:
    return replace(facts, mlp_bias=keys.flag("mlp_bias", False))


def _mistral(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """A window, where there is one, holds for all layers (Jiang et al. 2023)."""
    window = keys.optional_integer("sliding_window", at_least=1)
    if window is None:
        return facts
    return replace(facts, sliding_windows=(window,) * facts.num_layers)


def _qwen2(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Queries, keys and values always have a bias, the output never."""
    biases = replace(facts, attention_bias=True, attention_out_bias=False)
    return replace(biases, sliding_windows=_qwen_windows(facts, keys))


def _qwen3(facts: ModelFacts, keys: Fields) -> ModelFacts:
    return replace(facts, qk_norm=True, sliding_windows=_qwen_windows(facts, keys))


def _qwen_windows(facts: ModelFacts, keys: Fields) -> tuple[int, ...]:
    """Only with `use_sliding_window`, and only from layer `max_window_layers` on."""
    if not keys.flag("use_sliding_window", False):
        return ()
    first = keys.integer("max_window_layers", 28)
    kinds = [WINDOW_LAYER if layer >= first else FULL_LAYER for layer in range(facts.num_layers)]
    return _windows(keys, kinds)


def _gemma3(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Gemma Team 2025: windows in five of six layers, norms around all, scaled embeddings."""
    if keys.flag("use_bidirectional_attention", False):
        raise UnsupportedModelError(f"{keys.where}: use_bidirectional_attention is not supported")
    period = keys.integer("sliding_window_pattern", 6, at_least=1)
    kinds = [WINDOW_LAYER if (i + 1) % period else FULL_LAYER for i in range(facts.num_layers)]
    return replace(
        facts,
        # The context is given after scaling, other than for older models.
        max_position=keys.integer("max_position_embeddings"),
        qk_norm=True,
        attention_scale=keys.number("query_pre_attn_scalar", above=0.0) ** -0.5,
        sliding_windows=_windows(keys, kinds),
        local_rope=local_rope_facts(keys, facts.head_dim),
        embedding_scale=math.sqrt(facts.hidden_size),
        norm_weight_offset=1.0,
        attention_soft_cap=keys.optional_number("attn_logit_softcapping", above=0.0),
        logits_soft_cap=keys.optional_number("final_logit_softcapping", above=0.0),
    )


def _windows(keys: Fields, assumed_kinds: list[str]) -> tuple[int, ...]:
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


def _activation(keys: Fields) -> Literal["silu", "gelu_tanh", "gelu"]:
    name = keys.text("hidden_activation", keys.text("hidden_act", "silu"))
    if name not in ACTIVATIONS:
        message = f"{keys.where}: the activation {name!r} is not supported"
        raise UnsupportedModelError(f"{message}. Supported: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _dtype(keys: Fields) -> str:
    """Of the weights as they were saved; a note, the tensors themselves count."""
    name = keys.text("dtype", keys.text("torch_dtype", "float32")).removeprefix("torch.")
    if name not in DTYPES:
        message = f"{keys.where}: weights of type {name!r} are not supported"
        raise UnsupportedModelError(f"{message}. Supported: {', '.join(DTYPES)}")
    return name


# What the architectures assume for keys that a config.json may leave out, as their published
# configuration classes do. Sizes are assumed only where published files do leave them out.
_ASSUMED: dict[str, object] = {"tie_word_embeddings": False, "rms_norm_eps": 1e-6}
_GEMMA3 = _Family(
    {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
    },
    _gemma3,
    theta=1e6,
)
_FAMILIES = {
    "LlamaForCausalLM": _Family(_ASSUMED | {"max_position_embeddings": 2048}, _llama),
    "MistralForCausalLM": _Family(
        _ASSUMED
        | {
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "sliding_window": 4096,
        },
        _mistral,
    ),
    "Qwen2ForCausalLM": _Family(
        _ASSUMED
        | {"num_key_value_heads": 32, "max_position_embeddings": 32768, "sliding_window": 4096},
        _qwen2,
    ),
    "Qwen3ForCausalLM": _Family(
        _ASSUMED
        | {
            "num_key_value_heads": 32,
            "head_dim": 128,
            "max_position_embeddings": 32768,
            "sliding_window": 4096,
        },
        _qwen3,
    ),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
}
SUPPORTED_ARCHITECTURES = frozenset(_FAMILIES)
