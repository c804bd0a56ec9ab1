"""GGUF metadata -> ModelFacts.

Owns the meaning of llama.cpp's keys and the constants that llama.cpp has in its code instead of in
the file. Does not know tensors beyond their names, types and shapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from octavo.config.model_facts import ModelFacts, RopeFacts
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.arrangement import GATE_UP
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.facts_check import (
    MAX_LAYERS,
    check_facts,
    known_token_ids,
)
from octavo.weights.fields import Fields
from octavo.weights.gguf_latent import has_latent, with_latent
from octavo.weights.gguf_metadata import GgufMetadata
from octavo.weights.gguf_moe import gguf_moe
from octavo.weights.gguf_names import ARCHITECTURES, SECOND_NORM, GgufArchitecture
from octavo.weights.gguf_pooling import with_pooling
from octavo.weights.gguf_rope import gguf_max_position, gguf_rope
from octavo.weights.gguf_special import ADJUST

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
    if keys.integer("expert_count", 0) and not architecture.has_experts:
        raise UnsupportedModelError(f"{where}: {prefix} with experts is not supported")
    facts = _common(keys, metadata, tensors, architecture, where)
    if has_latent(keys):
        facts = with_latent(facts, keys)
    facts = with_pooling(ADJUST[prefix](facts, keys), keys, tensors)
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
    if value_length != head_dim and not has_latent(keys):
        message = f"{where}: keys of {head_dim} and values of {value_length} elements"
        raise UnsupportedModelError(f"{message}; supported: equal sizes")
    num_layers = keys.integer("block_count", at_least=1, at_most=MAX_LAYERS)
    num_draft_layers = keys.integer("nextn_predict_layers", 0, at_most=num_layers - 1)
    num_layers -= num_draft_layers
    prefix = Fields(metadata, where).text("general.architecture")
    has_positions = "position_embd.weight" in tensors
    rope = RopeFacts(rotary_dim=0) if has_positions else gguf_rope(keys, head_dim, tensors)
    eps_key = "rms_epsilon" if architecture.norm == "rms" else "epsilon"
    return ModelFacts(
        architecture=architecture.hf_name,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=keys.integer("feed_forward_length", at_least=1),
        num_layers=num_layers,
        num_draft_layers=num_draft_layers,
        num_heads=num_heads,
        num_kv_heads=keys.integer("attention.head_count_kv", num_heads, at_least=1),
        head_dim=head_dim,
        max_position=gguf_max_position(keys, rope),
        norm_eps=keys.number(f"attention.layer_norm_{eps_key}", above=0.0),
        hidden_act="silu",
        rope=rope,
        tie_word_embeddings="output.weight" not in tensors,
        attention_bias=any(f"blk.0.attn_{part}.bias" in tensors for part in ("q", "qkv")),
        attention_out_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias=any(f"blk.0.ffn_{part}.bias" in tensors for part in ("gate", "up")),
        head_bias="output.bias" in tensors,
        gated_mlp=any(f"blk.0.ffn_gate{kind}.weight" in tensors for kind in ("", "_exps"))
        or architecture.layer_parts["ffn_up"] == GATE_UP,
        moe=gguf_moe(keys, tensors, prefix, num_layers),
        attention_sinks="blk.0.attn_sinks.weight" in tensors,
        norm=architecture.norm,
        norm_bias="output_norm.bias" in tensors,
        shared_norm=bool(architecture.two_norms) and SECOND_NORM not in tensors,
        learned_positions=has_positions,
        qk_norm="blk.0.attn_q_norm.weight" in tensors,
        attention_scale=head_dim**-0.5,
        eos_token_ids=_eos_token_ids(metadata, vocab_size, where),
        bos_token_id=_bos_token_id(metadata, vocab_size, where),
        dtype=_dtype(tensors),
        generation_defaults=_generation_defaults(metadata, where),
    )


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
