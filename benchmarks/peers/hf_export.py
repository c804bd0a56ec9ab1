"""A checkpoint that Octavo reads, written as a Hugging Face folder for engines that read no GGUF.

Owns: config.json, model.safetensors in float32 or bfloat16, the tokenizer files. The numbers are
those of the checkpoint, dequantised by the reference back end, so every engine computes with the
same weights. Knows the architectures in `_CONFIGS`; needs torch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import tokenizers
import torch

from octavo.backends.torch.dequantise import dequantise
from octavo.config.model_facts import ModelFacts
from octavo.errors import UnsupportedModelError
from octavo.text.tokenizer import Tokenizer
from octavo.weights.checkpoint import Checkpoint

FloatType = Literal["float32", "bfloat16"]
_STORED = {"float32": ("F32", torch.float32), "bfloat16": ("BF16", torch.bfloat16)}


def export_folder(checkpoint: Checkpoint, folder: Path, dtype: FloatType) -> None:
    """Write the folder. Raises UnsupportedModelError for an architecture without a template."""
    facts = checkpoint.facts
    if facts.architecture not in _CONFIGS:
        raise UnsupportedModelError(
            f"no config.json can be written for {facts.architecture}; known: {', '.join(_CONFIGS)}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    config = _common(facts, dtype) | _CONFIGS[facts.architecture](facts)
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"eos_token_id": list(facts.eos_token_ids)})
    _write_tokenizer(checkpoint, folder)
    _write_weights(checkpoint, folder / "model.safetensors", dtype)


def _common(facts: ModelFacts, dtype: FloatType) -> dict[str, Any]:
    return {
        "architectures": [facts.architecture],
        "vocab_size": facts.vocab_size,
        "hidden_size": facts.hidden_size,
        "intermediate_size": facts.intermediate_size,
        "num_hidden_layers": facts.num_layers,
        "num_attention_heads": facts.num_heads,
        "num_key_value_heads": facts.num_kv_heads,
        "head_dim": facts.head_dim,
        "max_position_embeddings": facts.max_position,
        "rms_norm_eps": facts.norm_eps,
        "tie_word_embeddings": facts.tie_word_embeddings,
        "attention_bias": facts.attention_bias,
        "bos_token_id": facts.bos_token_id,
        "eos_token_id": list(facts.eos_token_ids),
        "torch_dtype": dtype,
    }


def _llama(facts: ModelFacts) -> dict[str, Any]:
    if facts.rope.scaling != "default":
        raise UnsupportedModelError(f"rope scaling {facts.rope.scaling} is not written")
    return {
        "model_type": "llama",
        "hidden_act": "silu",
        "mlp_bias": facts.mlp_bias,
        "rope_theta": facts.rope.theta,
    }


def _gemma3(facts: ModelFacts) -> dict[str, Any]:
    windows = facts.sliding_windows
    local = facts.local_rope or facts.rope
    kinds = ["sliding_attention" if window else "full_attention" for window in windows]
    return {
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_theta": facts.rope.theta,
        "rope_local_base_freq": local.theta,
        "sliding_window": max(windows, default=0),
        "layer_types": kinds,
        "query_pre_attn_scalar": round(facts.attention_scale**-2),
        "attn_logit_softcapping": facts.attention_soft_cap,
        "final_logit_softcapping": facts.logits_soft_cap,
    }


_CONFIGS: dict[str, Callable[[ModelFacts], dict[str, Any]]] = {
    "LlamaForCausalLM": _llama,
    "Gemma3ForCausalLM": _gemma3,
}
# What the architecture adds to every norm weight when it loads a folder.
_NORM_OFFSETS = {"Gemma3ForCausalLM": 1.0}


def _write_weights(checkpoint: Checkpoint, path: Path, dtype: FloatType) -> None:
    """A safetensors file, one tensor after the other as they are dequantised."""
    stored, torch_type = _STORED[dtype]
    facts = checkpoint.facts
    shift = facts.norm_weight_offset - _NORM_OFFSETS.get(facts.architecture, 0.0)
    views = {
        name: view
        for name, view in checkpoint.tensors.items()
        if not (facts.tie_word_embeddings and name == "lm_head.weight")
    }
    header, end = dict[str, Any](metadata={"format": "pt"}), 0
    header["__metadata__"] = header.pop("metadata")
    for name, view in views.items():
        begin, end = end, end + torch.Size(view.shape).numel() * torch_type.itemsize
        header[name] = {"dtype": stored, "shape": list(view.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, view in views.items():
            values = dequantise(view)
            if name.endswith("norm.weight"):
                values = values + shift
            file.write(bytes(values.to(torch_type).contiguous().view(torch.uint8).numpy()))


def _write_tokenizer(checkpoint: Checkpoint, folder: Path) -> None:
    tokenizer: Tokenizer = checkpoint.load_tokenizer()
    if not isinstance(tokenizer.library, tokenizers.Tokenizer):
        raise UnsupportedModelError(
            "no tokenizer.json can be written for this vocabulary; make the folder by other means"
        )
    tokenizer.library.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    config |= tokenizer.special_tokens
    if checkpoint.chat_template:
        config["chat_template"] = checkpoint.chat_template
    _write_json(folder / "tokenizer_config.json", config)


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
