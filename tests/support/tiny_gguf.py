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
from tests.support.random_weights import random_rows
from tests.support.tiny_models import BOS, EOS, VOCAB_SIZE
from tests.support.tiny_tokenizer import tiny_library

_ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
}
_INTERLEAVED = ("llama", "mistral")  # model types whose q and k rows the converter reorders

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
    for name, parameter in oracle.state_dict().items():
        if tied and name == "lm_head.weight":
            continue
        values = parameter.numpy()
        type = GgmlType.F32 if values.ndim == 1 else choose(name)
        if type.name.endswith("_K"):  # no Python package can quantise to these
            num_rows, num_cols = values.shape
            rows = random_rows(WeightType(int(type)), num_rows, num_cols, seed=len(stored))
        else:
            rows = gguf.quants.quantize(values, type)
        stored[name] = StoredTensor(type, rows, values.shape)
    return stored


def oracle_of(oracle: PreTrainedModel, stored: Mapping[str, StoredTensor]) -> PreTrainedModel:
    """A copy of `oracle` that computes with the stored numbers."""
    model = copy.deepcopy(oracle)
    state = {name: tensor.numbers() for name, tensor in stored.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    model.tie_weights()
    return model


def write_gguf(oracle: PreTrainedModel, stored: Mapping[str, StoredTensor], path: Path) -> None:
    """One file with metadata, vocabulary and tensors."""
    config = oracle.config
    architecture = _ARCHITECTURES[config.model_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    _add_sizes(writer, config)
    _add_rope(writer, config)
    _add_vocabulary(writer)
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, tensor in stored.items():
        rows = _converted(name, tensor, config)
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert target is not None, name
        writer.add_tensor(target, rows, raw_dtype=tensor.type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _converted(name: str, tensor: StoredTensor, config: Any) -> np.ndarray[Any, Any]:
    """The rows in the order and with the constant that llama.cpp expects."""
    rows = tensor.rows
    if config.model_type == "gemma3_text" and name.endswith("norm.weight"):
        return rows + np.float32(1.0)
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


def _add_sizes(writer: gguf.GGUFWriter, config: Any) -> None:
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = _head_dim(config)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    if config.model_type == "gemma3_text":
        writer.add_sliding_window(config.sliding_window)


def _add_rope(writer: gguf.GGUFWriter, config: Any) -> None:
    rope = config.rope_parameters
    if "full_attention" in rope:  # the window layers' own table is llama.cpp's constant
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_dimension_count(_head_dim(config))
    match rope["rope_type"]:
        case "linear":
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(rope["factor"])
        case "yarn":
            writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
            writer.add_rope_scaling_factor(rope["factor"])
            writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
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


def _head_dim(config: Any) -> int:
    return int(
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
