"""Tiny random models made with transformers: the oracle of the model tests, and their files.

A case is a configuration. `make_oracle` fills it with random numbers, large enough that every part
of the arithmetic shows in the logits; `save_folder` writes what Hugging Face's tools write.
`tiny_gguf.py` writes the same models as GGUF files.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import (
    Gemma3Config,
    Gemma3ForCausalLM,
    Gemma3ForConditionalGeneration,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.support.tiny_tokenizer import END, START, tiny_id, tiny_library

VOCAB_SIZE = 403  # rows of the table: more than there are tokens, and not a multiple of 8
BOS, EOS = tiny_id(START), tiny_id(END)
PROMPT = tuple((7 * i * i + 3 * i + 11) % VOCAB_SIZE for i in range(43))

_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": EOS,
}


def _gemma3_with_images(**sizes: Any) -> Gemma3Config:
    """The decoder beside a vision part, which Octavo leaves out."""
    vision = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    attention = sizes.pop("attn_implementation")
    config = Gemma3Config(
        text_config=sizes,
        vision_config=vision,
        mm_tokens_per_image=4,
        image_token_index=VOCAB_SIZE - 1,
        boi_token_index=VOCAB_SIZE - 2,
        eoi_token_index=VOCAB_SIZE - 3,
    )
    config._attn_implementation = attention
    return config


_FAMILIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM),
    "gemma3_with_images": (_gemma3_with_images, Gemma3ForConditionalGeneration),
}


@dataclass(frozen=True)
class TinyCase:
    """One configuration, and how its folder is written."""

    family: str
    changes: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    shard_size: str = "1GB"  # largest file of the folder


def _rope(kind: str, **parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **parameters}}


_GEMMA3_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
}
_LONGROPE = {
    "factor": 16.0,
    "original_max_position_embeddings": 16,
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [1.0 + 1.5 * i for i in range(8)],
}
_LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_YARN = {"factor": 8.0, "original_max_position_embeddings": 32}

CASES: dict[str, TinyCase] = {
    "llama": TinyCase("llama"),
    "llama_tied_bf16_sharded": TinyCase(
        "llama",
        {"tie_word_embeddings": True, "num_key_value_heads": 1, "head_dim": 24},
        torch.bfloat16,
        "40KB",
    ),
    "llama_biases_f16": TinyCase(
        "llama",
        {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4, "head_dim": 8},
        torch.float16,
    ),
    "llama_rope_linear": TinyCase("llama", _rope("linear", factor=4.0)),
    "llama_rope_dynamic": TinyCase(
        "llama", {"max_position_embeddings": 24, **_rope("dynamic", factor=2.0)}
    ),
    "llama_rope_yarn": TinyCase("llama", _rope("yarn", **_YARN)),
    "llama_rope_llama3": TinyCase("llama", _rope("llama3", **_LLAMA3)),
    "llama_rope_longrope": TinyCase("llama", _rope("longrope", **_LONGROPE)),
    "mistral": TinyCase("mistral", {"sliding_window": None, "head_dim": 32}, torch.bfloat16),
    "mistral_window": TinyCase("mistral", {"sliding_window": 9}),
    "qwen2": TinyCase("qwen2", {"tie_word_embeddings": True}, torch.bfloat16),
    "qwen2_window": TinyCase(
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 12, "max_window_layers": 1},
    ),
    "qwen3": TinyCase("qwen3", {"head_dim": 32}, torch.float16),
    "gemma3": TinyCase(
        "gemma3",
        {
            "num_hidden_layers": 7,
            "head_dim": 32,
            "num_key_value_heads": 1,
            "query_pre_attn_scalar": 32,
            "sliding_window": 9,
            "rope_parameters": _GEMMA3_ROPE,
        },
        torch.bfloat16,
    ),
    "gemma3_soft_cap": TinyCase(
        "gemma3",
        {
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "head_dim": 16,
            "query_pre_attn_scalar": 24,
            "sliding_window": 17,
            "final_logit_softcapping": 6.0,
        },
    ),
    "gemma3_with_images": TinyCase(
        "gemma3_with_images",
        {"num_hidden_layers": 2, "head_dim": 16, "sliding_window_pattern": 2, "sliding_window": 9},
    ),
    # Widths that a super-block of 256 elements divides.
    "llama_wide": TinyCase("llama", {"hidden_size": 256, "intermediate_size": 256}),
    "gemma3_wide": TinyCase(
        "gemma3",
        {
            "hidden_size": 256,
            "intermediate_size": 256,
            "num_hidden_layers": 6,
            "head_dim": 64,
            "query_pre_attn_scalar": 64,
            "sliding_window": 9,
        },
    ),
}


def make_oracle(name: str) -> PreTrainedModel:
    """The model in float32 with random weights, rounded to the type in which they are saved."""
    case = CASES[name]
    make_config, make_model = _FAMILIES[case.family]
    config = make_config(**{**_SIZES, **case.changes}, attn_implementation="eager")
    model: PreTrainedModel = make_model(config).eval()
    _randomise(model)
    for parameter in model.parameters():  # the rotary frequencies stay as they are
        parameter.data = parameter.data.to(case.dtype).float()
    return model


def save_folder(oracle: PreTrainedModel, name: str, folder: Path) -> None:
    """config.json, safetensors in the case's type and size, and a tokenizer."""
    case = CASES[name]
    model: Any = copy.deepcopy(oracle)
    model.to(case.dtype).save_pretrained(folder, max_shard_size=case.shard_size)
    make_tokenizer: Any = PreTrainedTokenizerFast
    tokenizer = make_tokenizer(tokenizer_object=tiny_library(), bos_token=START, eos_token=END)
    tokenizer.save_pretrained(folder)


@torch.no_grad()
def _randomise(model: PreTrainedModel) -> None:
    generator = torch.Generator().manual_seed(20)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:  # norm weights and biases, around what they start from
            parameter.add_(0.2 * noise)
        elif "embed_tokens" in name:
            parameter.copy_(0.5 * noise)
        else:
            parameter.copy_(1.5 * noise / parameter.shape[1] ** 0.5)
