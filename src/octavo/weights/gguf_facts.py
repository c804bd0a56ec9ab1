"""GGUF metadata -> ModelFacts.

Owns the meaning of llama.cpp's keys and the constants that llama.cpp has in its code instead of in
the file. Does not know tensors beyond their names, types and shapes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from octavo.config.model_facts import ModelFacts, RopeFacts, RopeScaling
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.facts_check import (
    MAX_LAYERS,
    MAX_ROPE_FACTOR,
    MAX_ROPE_THETA,
    MIN_ROPE_FACTOR,
    check_facts,
    known_token_ids,
)
from octavo.weights.fields import Fields
from octavo.weights.gguf_metadata import GgufMetadata
from octavo.weights.gguf_names import ARCHITECTURES, GgufArchitecture

EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Tokens that end a turn in published chat templates. Older files do not say so in a key.
END_OF_TURN = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<end_of_turn>",
    "<|end|>",
    "<|endoftext|>",
)
SAMPLING_KEYS = {
    "general.sampling.temp": "temperature",
    "general.sampling.top_k": "top_k",
    "general.sampling.top_p": "top_p",
    "general.sampling.min_p": "min_p",
    "general.sampling.penalty_repeat": "repetition_penalty",
}
DTYPES = {WeightType.F32: "float32", WeightType.F16: "float16", WeightType.BF16: "bfloat16"}
GEMMA3_27B_LAYERS = 62
ROPE_DIVISORS = "rope_freqs.weight"


def architecture_of(metadata: GgufMetadata, where: str) -> GgufArchitecture:
    """The architecture of a file. Raises UnsupportedModelError that lists ours."""
    name = Fields(metadata, where).text("general.architecture")
    if name not in ARCHITECTURES:
        message = f"{where}: the GGUF architecture {name!r} is not supported"
        raise UnsupportedModelError(f"{message}. Supported: {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]


def facts_from_gguf(
    metadata: GgufMetadata, tensors: Mapping[str, TensorView], where: str
) -> ModelFacts:
    """Facts of a file; `tensors` have the file's own names.

    Raises CorruptFileError that names a wrong key, UnsupportedModelError for what we do not have.
    """
    architecture = architecture_of(metadata, where)
    prefix = Fields(metadata, where).text("general.architecture")
    keys = Fields(metadata, where, prefix=prefix + ".")
    if keys.integer("expert_count", 0):
        raise UnsupportedModelError(f"{where}: mixtures of experts are not supported")
    facts = _ADJUST[prefix](_common(keys, metadata, tensors, architecture, where), keys)
    check_facts(facts, where)
    return facts


def _common(
    keys: Fields,
    metadata: GgufMetadata,
    tensors: Mapping[str, TensorView],
    architecture: GgufArchitecture,
    where: str,
) -> ModelFacts:
    """What is read in the same way for all architectures."""
    vocab_size = _vocab_size(tensors, where)
    hidden_size = keys.integer("embedding_length", at_least=1)
    num_heads = keys.integer("attention.head_count", at_least=1)
    # A file says it where the heads do not divide the hidden state.
    head_dim = keys.integer("attention.key_length", hidden_size // num_heads, at_least=1)
    value_length = keys.integer("attention.value_length", head_dim)
    if value_length != head_dim:
        message = f"{where}: keys of {head_dim} and values of {value_length} elements"
        raise UnsupportedModelError(f"{message}; supported: equal sizes")
    rope = _rope(keys, head_dim, tensors)
    return ModelFacts(
        architecture=architecture.hf_name,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=keys.integer("feed_forward_length", at_least=1),
        num_layers=keys.integer("block_count", at_least=1, at_most=MAX_LAYERS),
        num_heads=num_heads,
        num_kv_heads=keys.integer("attention.head_count_kv", num_heads, at_least=1),
        head_dim=head_dim,
        max_position=_max_position(keys, rope),
        rms_norm_eps=keys.number("attention.layer_norm_rms_epsilon", above=0.0),
        hidden_act="silu",
        rope=rope,
        tie_word_embeddings="output.weight" not in tensors,
        attention_bias="blk.0.attn_q.bias" in tensors,
        attention_out_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_gate.bias" in tensors,
        qk_norm="blk.0.attn_q_norm.weight" in tensors,
        attention_scale=head_dim**-0.5,
        eos_token_ids=_eos_token_ids(metadata, vocab_size, where),
        bos_token_id=_bos_token_id(metadata, vocab_size, where),
        dtype=_dtype(tensors),
        generation_defaults=_generation_defaults(metadata, where),
    )


def _unchanged(facts: ModelFacts, keys: Fields) -> ModelFacts:
    return facts


def _gemma3(facts: ModelFacts, keys: Fields) -> ModelFacts:
    """Gemma's constants (Gemma Team 2025). The norm weights have their +1 in the file already."""
    is_27b = facts.num_layers == GEMMA3_27B_LAYERS
    query_size = facts.hidden_size / facts.num_heads if is_27b else facts.head_dim
    window = keys.integer("attention.sliding_window", at_least=1)
    return replace(
        facts,
        hidden_act="gelu_tanh",
        attention_scale=query_size**-0.5,
        sliding_windows=_windows(keys, window, facts.num_layers),
        local_rope=RopeFacts(
            theta=keys.number("rope.freq_base_swa", 10000.0, above=1.0, at_most=MAX_ROPE_THETA),
            rotary_dim=facts.rope.rotary_dim,
        ),
        embedding_scale=math.sqrt(facts.hidden_size),
        norm_weight_offset=0.0,
        logits_soft_cap=keys.optional_number("final_logit_softcapping", above=0.0),
    )


_ADJUST: dict[str, Callable[[ModelFacts, Fields], ModelFacts]] = {
    "llama": _unchanged,
    "qwen2": _unchanged,
    "qwen3": _unchanged,
    "gemma3": _gemma3,
}


def _windows(keys: Fields, window: int, num_layers: int) -> tuple[int, ...]:
    """The window of each layer: every sixth sees everything, unless the file says otherwise."""
    key = "attention.sliding_window_pattern"
    if isinstance(keys.value(key), list):
        flags = keys.items(key)
        if len(flags) != num_layers:
            keys.refuse(key, f"has {len(flags)} items for {num_layers} layers")
        return tuple(window if flag else 0 for flag in flags)
    period = keys.integer(key, 6, at_least=1)
    return tuple(window if (layer + 1) % period else 0 for layer in range(num_layers))


def _rope(keys: Fields, head_dim: int, tensors: Mapping[str, TensorView]) -> RopeFacts:
    """Base and scaling. `attn_factor` multiplies YaRN's own formula, as in llama.cpp."""
    factor = keys.number("rope.scaling.factor", keys.number("rope.scale_linear", 1.0)) or 1.0
    kind = keys.text("rope.scaling.type", "linear" if factor != 1.0 else "none")
    if kind not in ("none", "linear", "yarn"):
        message = f"{keys.where}: rope scaling {kind!r} is not supported"
        raise UnsupportedModelError(f"{message}. Supported in GGUF files: none, linear, yarn")
    if not 1.0 <= factor <= MAX_ROPE_FACTOR:
        keys.refuse("rope.scaling.factor", f"must be from 1 to {MAX_ROPE_FACTOR:g}, got {factor:g}")
    scaling = "default" if kind == "none" else cast(RopeScaling, kind)
    attention_factor = None
    own_factor = _factor(keys, "rope.scaling.attn_factor", 1.0)
    if scaling == "yarn" and own_factor != 1.0:
        attention_factor = own_factor * (0.1 * math.log(factor) + 1.0)
    original = keys.integer("rope.scaling.original_context_length", 0)
    return RopeFacts(
        theta=keys.number("rope.freq_base", 10000.0, above=1.0, at_most=MAX_ROPE_THETA),
        rotary_dim=keys.integer("rope.dimension_count", head_dim, at_least=1),
        scaling=scaling,
        factor=factor if scaling != "default" else 1.0,
        original_max_position=(original or keys.integer("context_length"))
        if scaling == "yarn"
        else 0,
        attention_factor=attention_factor,
        beta_fast=_factor(keys, "rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=_factor(keys, "rope.scaling.yarn_beta_slow", 1.0),
        inv_freq_divisors=_rope_divisors(tensors, keys.where),
    )


def _factor(keys: Fields, key: str, default: float) -> float:
    return keys.number(key, default, above=MIN_ROPE_FACTOR, at_most=MAX_ROPE_FACTOR)


def _max_position(keys: Fields, rope: RopeFacts) -> int:
    """The context that the file promises. YaRN's stretch counts where its start is given."""
    context = keys.integer("context_length", at_least=1)
    if rope.scaling == "yarn" and "rope.scaling.original_context_length" in keys:
        return max(context, int(rope.original_max_position * rope.factor))
    return context


def _rope_divisors(tensors: Mapping[str, TensorView], where: str) -> tuple[float, ...]:
    """One divisor of each frequency, which converters work out for Llama 3's scaling."""
    tensor = tensors.get(ROPE_DIVISORS)
    if tensor is None:
        return ()
    if tensor.type != WeightType.F32 or len(tensor.shape) != 1:
        raise CorruptFileError(f"{where}: {ROPE_DIVISORS} must be a vector of F32")
    divisors = tuple(tensor.data.cast("f"))
    if not all(math.isfinite(divisor) and divisor > 0 for divisor in divisors):
        raise CorruptFileError(f"{where}: {ROPE_DIVISORS} must hold positive numbers")
    return divisors


def _vocab_size(tensors: Mapping[str, TensorView], where: str) -> int:
    """Rows of the embedding table, which may be more than there are tokens."""
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CorruptFileError(f"{where}: the embedding table token_embd.weight is missing")
    return embedding.shape[0]


def _eos_token_ids(metadata: GgufMetadata, vocab_size: int, where: str) -> tuple[int, ...]:
    """Ids from the keys, and the end-of-turn tokens that the chat template writes."""
    keys = Fields(metadata, where)
    found = [
        keys.integer(f"tokenizer.ggml.{key}", at_most=2**32 - 1)
        for key in EOS_KEYS
        if f"tokenizer.ggml.{key}" in metadata
    ]
    template = keys.text("tokenizer.chat_template", "")
    for text in END_OF_TURN:
        if text in template:
            token_id = metadata.index_in("tokenizer.ggml.tokens", text)
            found += [] if token_id is None else [token_id]
    return known_token_ids(found, vocab_size, where, "the EOS id")


def _bos_token_id(metadata: GgufMetadata, vocab_size: int, where: str) -> int | None:
    key = "tokenizer.ggml.bos_token_id"
    if key not in metadata:
        return None
    token_id = Fields(metadata, where).integer(key, at_most=2**32 - 1)
    return next(iter(known_token_ids([token_id], vocab_size, where, "the BOS id")), None)


def _dtype(tensors: Mapping[str, TensorView]) -> str:
    """The commonest type of unquantised matrices; vectors are F32 in every file."""
    types = Counter(t.type for t in tensors.values() if len(t.shape) > 1 and t.type in DTYPES)
    return DTYPES[types.most_common(1)[0][0]] if types else "float32"


def _generation_defaults(metadata: GgufMetadata, where: str) -> dict[str, float | int]:
    keys = Fields(metadata, where)
    defaults: dict[str, float | int] = {}
    for key, name in SAMPLING_KEYS.items():
        if key in metadata:
            defaults[name] = keys.integer(key) if name == "top_k" else keys.number(key)
    return defaults
