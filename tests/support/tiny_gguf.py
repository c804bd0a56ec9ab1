"""The tiny models as GGUF files: names, keys and row order as llama.cpp's converter writes them.

`quantise` turns a model's weights into stored tensors, `write_gguf` puts them into a file, and
`oracle_of` is the transformers model that computes with exactly the stored numbers.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as GgmlType
from transformers import PreTrainedModel

from octavo.weights.checkpoint import WeightType
from octavo.weights.gguf_repack import REPACKED
from tests.support.random_weights import random_repacked_rows, random_rows
from tests.support.tiny_encoders import pair_library
from tests.support.tiny_experts import exported, imported
from tests.support.tiny_models import BOS, EOS, VOCAB_SIZE
from tests.support.tiny_tokenizer import tiny_library

_ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "arcee": gguf.MODEL_ARCH.ARCEE,
    "bert": gguf.MODEL_ARCH.BERT,
    "bloom": gguf.MODEL_ARCH.BLOOM,
    "cohere": gguf.MODEL_ARCH.COMMAND_R,
    "cohere2": gguf.MODEL_ARCH.COHERE2,
    "deepseek_v2": gguf.MODEL_ARCH.DEEPSEEK2,
    "deepseek_v3": gguf.MODEL_ARCH.DEEPSEEK2,
    "ernie4_5": gguf.MODEL_ARCH.ERNIE4_5,
    "falcon": gguf.MODEL_ARCH.FALCON,
    "gemma": gguf.MODEL_ARCH.GEMMA,
    "gemma2": gguf.MODEL_ARCH.GEMMA2,
    "glm": gguf.MODEL_ARCH.CHATGLM,
    "glm4": gguf.MODEL_ARCH.GLM4,
    "gpt2": gguf.MODEL_ARCH.GPT2,
    "gpt_bigcode": gguf.MODEL_ARCH.STARCODER,
    "gpt_neox": gguf.MODEL_ARCH.GPTNEOX,
    "glm4_moe": gguf.MODEL_ARCH.GLM4_MOE,
    "gpt_oss": gguf.MODEL_ARCH.GPT_OSS,
    "granite": gguf.MODEL_ARCH.GRANITE,
    "granitemoe": gguf.MODEL_ARCH.GRANITE_MOE,
    "llama4_text": gguf.MODEL_ARCH.LLAMA4,
    "mixtral": gguf.MODEL_ARCH.LLAMA,
    "modernbert": gguf.MODEL_ARCH.MODERN_BERT,
    "mpt": gguf.MODEL_ARCH.MPT,
    "nemotron": gguf.MODEL_ARCH.NEMOTRON,
    "olmo": gguf.MODEL_ARCH.OLMO,
    "olmo2": gguf.MODEL_ARCH.OLMO2,
    "olmo3": gguf.MODEL_ARCH.OLMO2,
    "olmoe": gguf.MODEL_ARCH.OLMOE,
    "phi": gguf.MODEL_ARCH.PHI2,
    "phi3": gguf.MODEL_ARCH.PHI3,
    "phimoe": gguf.MODEL_ARCH.PHIMOE,
    "qwen2_moe": gguf.MODEL_ARCH.QWEN2MOE,
    "qwen3_moe": gguf.MODEL_ARCH.QWEN3MOE,
    "roberta": gguf.MODEL_ARCH.BERT,
    "seed_oss": gguf.MODEL_ARCH.SEED_OSS,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
    "stablelm": gguf.MODEL_ARCH.STABLELM,
    "starcoder2": gguf.MODEL_ARCH.STARCODER2,
    "xlm-roberta": gguf.MODEL_ARCH.BERT,
}
# Model types whose q and k rows the converter reorders.
_INTERLEAVED = (
    "arcee",
    "granite",
    "granitemoe",
    "llama",
    "mistral",
    "mixtral",
    "olmo",
    "smollm3",
)
_AROUND_ONE = ("gemma", "gemma2", "gemma3_text", "nemotron")  # ... whose norm weights get a 1

# Model types whose first positions belong to padding.
_PADDED = ("roberta", "xlm-roberta")

ChooseType = Callable[[str], GgmlType]  # Hugging Face name of a matrix -> how it is stored


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in Hugging Face's row order, as bytes of `type`: [rows, bytes of a row]."""

    type: GgmlType
    rows: np.ndarray[Any, Any]
    shape: tuple[int, ...]

    def numbers(self) -> torch.Tensor:
        """What the bytes mean, in float32."""
        values = gguf.quants.dequantize(self.rows, self.type)
        return torch.from_numpy(values.reshape(self.shape).copy())


def all_of(type: GgmlType) -> ChooseType:
    """Every matrix in the same type."""
    return lambda name: type


def k_quant_mix(name: str) -> GgmlType:
    """Several types in a model, also within one fused projection, as published files have."""
    if name.endswith("v_proj.weight"):
        return GgmlType.Q6_K
    if name.endswith(("q_proj.weight", "down_proj.weight")):
        return GgmlType.Q5_K
    if name.endswith("embed_tokens.weight"):
        return GgmlType.Q8_0
    return GgmlType.Q4_K


def quantise(oracle: PreTrainedModel, choose: ChooseType) -> dict[str, StoredTensor]:
    """All weights as they go into a file; vectors stay float32."""
    stored: dict[str, StoredTensor] = {}
    tied = bool(oracle.config.tie_word_embeddings)
    for name, parameter in exported(oracle.state_dict(), oracle.config):
        if (tied and name == "lm_head.weight") or name.startswith("pooler."):
            continue
        values = parameter.numpy()
        type = choose(name) if _is_matrix(name, values.shape) else GgmlType.F32
        num_cols = values.shape[-1]
        num_rows = values.size // num_cols
        if int(type) in REPACKED:
            rows = random_repacked_rows(int(type), num_rows, num_cols, seed=len(stored))
            rows = rows.reshape(*values.shape[:-1], -1)
        elif type.name.endswith("_K") or type.name.startswith("IQ"):
            # No Python package can quantise to these.
            rows = random_rows(WeightType(int(type)), num_rows, num_cols, seed=len(stored))
            rows = rows.reshape(*values.shape[:-1], -1)
        else:
            rows = gguf.quants.quantize(values, type)
        stored[name] = StoredTensor(type, rows, values.shape)
    return stored


def _is_matrix(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a converter quantises it: neither vectors, norms of heads, nor routers."""
    is_router = name.endswith(("mlp.gate.weight", "router.weight", "_expert_gate.weight"))
    is_small = is_router or name.endswith("_norm.weight")
    return len(shape) > 1 and name.endswith(".weight") and not is_small


def oracle_of(oracle: PreTrainedModel, stored: Mapping[str, StoredTensor]) -> PreTrainedModel:
    """A copy of `oracle` that computes with the stored numbers."""
    model = copy.deepcopy(oracle)
    numbers = {name: tensor.numbers() for name, tensor in stored.items()}
    state = imported(numbers, oracle.config)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight", "pooler.dense.weight", "pooler.dense.bias"}, missing
    model.tie_weights()
    return model


def write_gguf(
    oracle: PreTrainedModel,
    stored: Mapping[str, StoredTensor],
    path: Path,
    pooling: gguf.PoolingType | None = None,
) -> None:
    """One file with metadata, vocabulary and tensors; with `pooling` of a model of vectors."""
    config = oracle.config
    architecture = _ARCHITECTURES[config.model_type]
    if getattr(config, "use_bidirectional_attention", False):
        architecture = gguf.MODEL_ARCH.GEMMA_EMBEDDING
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    _add_sizes(writer, config)
    _add_rope(writer, config)
    if pooling is not None:
        _add_word_pieces(writer, config)
        _add_pooling(writer, config, pooling)
    else:
        _add_vocabulary(writer)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, tensor in stored.items():
        rows = _converted(name, tensor, config)
        target = names.get_name(_known_name(name, config), try_suffixes=(".weight", ".bias"))
        assert target is not None, name
        writer.add_tensor(target, rows, raw_dtype=tensor.type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _known_name(name: str, config: Any) -> str:
    """As the table of names has it, where that is not transformers' own."""
    if config.model_type == "bloom":
        return name.removeprefix("transformer.")
    if config.model_type in _PADDED:
        return name.removeprefix("roberta.")
    if config.model_type in ("gemma3_text", "qwen3") and name.startswith(
        ("layers.", "norm.", "embed")
    ):
        return f"model.{name}"
    return name.replace(".block_sparse_moe.experts.", ".mlp.experts.")


def _converted(name: str, tensor: StoredTensor, config: Any) -> np.ndarray[Any, Any]:
    """The rows in the order and with the constant that llama.cpp expects."""
    rows = tensor.rows
    if config.model_type in _AROUND_ONE and name.endswith("norm.weight"):
        return rows + np.float32(1.0)
    if config.model_type == "gpt2" and ".c_" in name and rows.ndim == 2:
        return np.ascontiguousarray(rows.T)
    if config.model_type in _PADDED and "position_embeddings" in name:
        return rows[config.pad_token_id + 1 :]
    if config.model_type in ("bloom", "gpt_neox") and ".query_key_value." in name:
        heads = rows.reshape(config.num_attention_heads, 3, -1, *rows.shape[1:])
        return np.ascontiguousarray(heads.swapaxes(0, 1).reshape(rows.shape))
    if config.model_type == "falcon" and ".query_key_value." in name:
        return _apart(rows, config.num_attention_heads, _num_kv_heads(config))
    if config.model_type in _INTERLEAVED:
        if ".q_proj." in name:
            return _interleaved(rows, config.num_attention_heads)
        if ".k_proj." in name:
            return _interleaved(rows, config.num_key_value_heads)
    return rows


def _interleaved(rows: np.ndarray[Any, Any], num_heads: int) -> np.ndarray[Any, Any]:
    """x0 x1 ... y0 y1 ... of each head as x0 y0 x1 y1 ..."""
    halves = rows.reshape(num_heads, 2, -1, *rows.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows.shape))


def _apart(rows: np.ndarray[Any, Any], num_heads: int, num_kv_heads: int) -> np.ndarray[Any, Any]:
    """Queries, key and value of each KV head as all queries, all keys, all values."""
    groups = rows.reshape(num_kv_heads, num_heads // num_kv_heads + 2, -1, *rows.shape[1:])
    parts = (groups[:, :-2], groups[:, -2:-1], groups[:, -1:])
    return np.concatenate([part.reshape(-1, *rows.shape[1:]) for part in parts])


def _num_kv_heads(config: Any) -> int:
    if config.model_type == "falcon" and not config.new_decoder_architecture:
        return 1 if config.multi_query else int(config.num_attention_heads)
    words = ("num_key_value_heads", "num_kv_heads")
    found = [getattr(config, word) for word in words if getattr(config, word, None)]
    return int(found[0] if found else config.num_attention_heads)


def _add_sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_vocab_size(config.vocab_size)
    words = ("max_position_embeddings", "max_seq_len", "seq_length")
    lengths = [getattr(config, word) for word in words if getattr(config, word, None)]
    num_padded = config.pad_token_id + 1 if config.model_type in _PADDED else 0
    writer.add_context_length(lengths[0] - num_padded)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    words = ("intermediate_size_mlp", "intermediate_size", "ffn_hidden_size", "n_inner")
    inner = next((getattr(config, word) for word in words if getattr(config, word, None)), None)
    writer.add_feed_forward_length(inner or 4 * config.hidden_size)
    writer.add_head_count(config.num_attention_heads)
    if not hasattr(config, "kv_lora_rank"):
        writer.add_head_count_kv(_num_kv_heads(config))
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    else:
        words = ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
        found = [getattr(config, word) for word in words if hasattr(config, word)]
        writer.add_layer_norm_eps(found[0] if found else 1e-5)
    head_dim = _head_dim(config)
    if hasattr(config, "kv_lora_rank"):
        _add_latent(writer, config)
    else:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    _add_constants(writer, config)


def _add_constants(writer: gguf.GGUFWriter, config: Any) -> None:
    """Keys of single architectures."""
    if getattr(config, "use_bidirectional_attention", False):
        writer.add_sliding_window(2 * (config.sliding_window - 1))  # as it was before its halving
    elif getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    _add_experts(writer, config)
    match config.model_type:
        case "gemma2":
            writer.add_attn_logit_softcapping(config.attn_logit_softcapping)
            writer.add_final_logit_softcapping(config.final_logit_softcapping)
        case "granite" | "granitemoe":
            writer.add_attention_scale(config.attention_multiplier)
            writer.add_embedding_scale(config.embedding_multiplier)
            writer.add_residual_scale(config.residual_multiplier)
            writer.add_logit_scale(config.logits_scaling)
        case "cohere" | "cohere2":
            writer.add_logit_scale(config.logit_scale)
        case "gemma3_text":
            period = config.layer_types.index("full_attention") + 1
            writer.add_sliding_window_pattern(period)
        case "modernbert":
            writer.add_sliding_window(config.local_attention)
        case "mpt":
            writer.add_max_alibi_bias(config.attn_config.alibi_bias_max)
            writer.add_clamp_kqv(config.attn_config.clip_qkv)
        case "olmo" if config.clip_qkv is not None:
            writer.add_clamp_kqv(config.clip_qkv)
        case "stablelm" | "gpt_neox":
            writer.add_parallel_residual(config.use_parallel_residual)
        case "olmo3":
            windows = [kind == "sliding_attention" for kind in config.layer_types]
            writer.add_sliding_window_pattern(windows)


def _add_latent(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_head_count_kv(1)
    if config.q_lora_rank is not None:
        writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_value_length(config.kv_lora_rank)
    writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length_mla(config.v_head_dim)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    if config.rope_parameters["rope_type"] == "yarn":
        writer.add_rope_scaling_yarn_log_mul(0.1 * config.rope_parameters["mscale_all_dim"])


def _add_experts(writer: gguf.GGUFWriter, config: Any) -> None:
    words = ("n_routed_experts", "num_local_experts", "num_experts")
    counts = [getattr(config, word) for word in words if hasattr(config, word)]
    if not counts:
        return
    writer.add_expert_count(counts[0])
    writer.add_expert_used_count(config.num_experts_per_tok)
    inner_size = getattr(config, "moe_intermediate_size", None) or config.intermediate_size
    writer.add_expert_feed_forward_length(inner_size)
    if config.model_type in ("glm4_moe", "deepseek_v3"):
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        writer.add_expert_group_count(config.n_group)
        writer.add_expert_group_used_count(config.topk_group)
        writer.add_expert_weights_norm(config.norm_topk_prob)
        writer.add_expert_weights_scale(config.routed_scaling_factor)


def _add_rope(writer: gguf.GGUFWriter, config: Any) -> None:
    rope = getattr(config, "rope_parameters", None)
    if rope is None:
        return
    if "full_attention" in rope:  # the window layers' own table is llama.cpp's constant
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    share = rope.get("partial_rotary_factor", 1.0)
    writer.add_rope_dimension_count(int(share * _head_dim(config)))
    match rope["rope_type"]:
        case "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rope["factor"])
        case "yarn":
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(rope["factor"])
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        case "longrope":
            original = config.original_max_position_embeddings
            stretch = config.max_position_embeddings / original
            writer.add_rope_scaling_orig_ctx_len(original)
            writer.add_rope_scaling_attn_factors((1 + np.log(stretch) / np.log(original)) ** 0.5)
            for name in ("long", "short"):
                factors = np.array(rope[f"{name}_factor"], dtype=np.float32)
                writer.add_tensor(f"rope_factors_{name}.weight", factors)
        case "llama3":
            writer.add_tensor("rope_freqs.weight", _llama3_divisors(rope, _head_dim(config)))
        case kind:
            assert kind == "default", f"GGUF has no rope scaling {kind}"


def _llama3_divisors(rope: Mapping[str, float], head_dim: int) -> np.ndarray[Any, Any]:
    """What each frequency is divided by, as the converter precomputes it for Llama 3.1."""
    frequencies = rope["rope_theta"] ** -(np.arange(0, head_dim, 2) / head_dim)
    waves = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    low, high, factor = rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
    smooth = (waves - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    divisors = np.where(waves > high, 1.0, np.where(waves < low, factor, between))
    return divisors.astype(np.float32)


def _add_vocabulary(writer: gguf.GGUFWriter) -> None:
    """The tiny byte-level BPE, in the words that GGUF has for GPT-2's kind of tokenizer.

    Rows of the table without a token get a name each, as the converter does it.
    """
    library = tiny_library()
    by_id = {token_id: token for token, token_id in library.get_vocab().items()}
    tokens = [by_id.get(i, f"[PAD{i}]") for i in range(VOCAB_SIZE)]
    kinds = dict.fromkeys(range(VOCAB_SIZE), gguf.TokenType.UNUSED)
    kinds |= dict.fromkeys(by_id, gguf.TokenType.NORMAL)
    kinds |= dict.fromkeys(library.get_added_tokens_decoder(), gguf.TokenType.CONTROL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(list(kinds.values()))
    merges = json.loads(library.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_add_bos_token(False)


def _add_word_pieces(writer: gguf.GGUFWriter, config: Any) -> None:
    """The tiny WordPiece: the converter marks beginnings of words where BERT marks what follows."""
    library = pair_library()
    by_id = {token_id: token for token, token_id in library.get_vocab().items()}
    tokens = [by_id.get(i, f"[PAD{i}]") for i in range(config.vocab_size)]
    kinds = [
        gguf.TokenType.NORMAL if i in by_id else gguf.TokenType.UNUSED for i in range(len(tokens))
    ]
    for token_id in library.get_added_tokens_decoder():
        kinds[token_id] = gguf.TokenType.CONTROL
    writer.add_tokenizer_model("bert")
    writer.add_token_list([_marked(token) for token in tokens])
    writer.add_token_types(kinds)
    for key, token in (("bos", "[CLS]"), ("sep", "[SEP]"), ("pad", "[PAD]"), ("unk", "[UNK]")):
        getattr(writer, f"add_{key}_token_id")(library.token_to_id(token))


def _add_pooling(writer: gguf.GGUFWriter, config: Any, pooling: gguf.PoolingType) -> None:
    writer.add_pooling_type(pooling)
    if hasattr(config, "type_vocab_size"):
        writer.add_token_type_count(config.type_vocab_size)
        writer.add_causal_attention(False)
    if pooling == gguf.PoolingType.RANK:
        writer.add_classifier_output_labels([config.id2label[i] for i in range(config.num_labels)])


def _marked(token: str) -> str:
    if token.startswith("[") and token.endswith("]"):
        return token
    return token.removeprefix("##") if token.startswith("##") else "\u2581" + token


def _head_dim(config: Any) -> int:
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
