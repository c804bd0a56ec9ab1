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
import transformers
from transformers import Gemma3Config, PreTrainedModel, PreTrainedTokenizerFast

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


# Family -> what its classes are called before "Config" and "ForCausalLM".
_NAMES = {
    "arcee": "Arcee",
    "cohere": "Cohere",
    "cohere2": "Cohere2",
    "ernie4_5": "Ernie4_5",
    "falcon": "Falcon",
    "gemma": "Gemma",
    "gemma2": "Gemma2",
    "glm": "Glm",
    "glm4": "Glm4",
    "gpt_bigcode": "GPTBigCode",
    "gpt_neox": "GPTNeoX",
    "granite": "Granite",
    "helium": "Helium",
    "llama": "Llama",
    "ministral": "Ministral",
    "mistral": "Mistral",
    "nemotron": "Nemotron",
    "olmo": "Olmo",
    "olmo2": "Olmo2",
    "olmo3": "Olmo3",
    "opt": "OPT",
    "phi": "Phi",
    "phi3": "Phi3",
    "qwen2": "Qwen2",
    "qwen3": "Qwen3",
    "seed_oss": "SeedOss",
    "smollm3": "SmolLM3",
    "stablelm": "StableLm",
    "starcoder2": "Starcoder2",
}
_FAMILIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
    "gemma3_with_images": (_gemma3_with_images, transformers.Gemma3ForConditionalGeneration),
    "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
} | {
    family: (getattr(transformers, f"{name}Config"), getattr(transformers, f"{name}ForCausalLM"))
    for family, name in _NAMES.items()
}
# Families whose configuration calls a size by another name, or does not have it (None).
_OTHER_NAMES: dict[str, dict[str, str | None]] = {
    "falcon": {"intermediate_size": "ffn_hidden_size", "num_key_value_heads": "num_kv_heads"},
    "gpt2": {
        "hidden_size": "n_embd",
        "intermediate_size": "n_inner",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "num_key_value_heads": None,
        "max_position_embeddings": "n_positions",
    },
    "gpt_neox": {"num_key_value_heads": None},
    "opt": {"intermediate_size": "ffn_dim", "num_key_value_heads": None},
}
_OTHER_NAMES["gpt_bigcode"] = _OTHER_NAMES["gpt2"]


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
_OLMO3_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 5e5},
    "full_attention": {
        "rope_type": "yarn",
        "rope_theta": 5e5,
        "factor": 8.0,
        "original_max_position_embeddings": 32,
    },
}
_PHI3_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0 + 0.1 * i for i in range(6)],
    "long_factor": [1.0 + 1.5 * i for i in range(6)],
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
    "ministral": TinyCase(
        "ministral",
        {
            "head_dim": 32,
            "sliding_window": 9,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
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
    "arcee": TinyCase("arcee"),
    "cohere": TinyCase("cohere", {"logit_scale": 0.25}),
    "cohere2": TinyCase(
        "cohere2", {"num_hidden_layers": 4, "sliding_window": 9, "logit_scale": 0.5}, torch.float16
    ),
    "ernie4_5": TinyCase("ernie4_5", {"head_dim": 16, "use_bias": True}, torch.bfloat16),
    "falcon": TinyCase("falcon", {"ffn_hidden_size": 128}, torch.bfloat16),
    "falcon_grouped": TinyCase("falcon", {"new_decoder_architecture": True, "bias": True}),
    "falcon_grouped_one_norm": TinyCase(
        "falcon", {"new_decoder_architecture": True, "num_ln_in_parallel_attn": 1}
    ),
    "falcon_sequential": TinyCase(
        "falcon", {"multi_query": False, "parallel_attn": False, "num_kv_heads": 4}
    ),
    "gemma": TinyCase("gemma", {"head_dim": 24}, torch.bfloat16),
    "gemma2": TinyCase(
        "gemma2",
        {
            "num_hidden_layers": 4,
            "head_dim": 32,
            "query_pre_attn_scalar": 32,
            "sliding_window": 9,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 8.0,
        },
        torch.bfloat16,
    ),
    "gemma2_wide_query": TinyCase(
        "gemma2", {"head_dim": 16, "query_pre_attn_scalar": 64, "attn_logit_softcapping": None}
    ),
    "glm": TinyCase("glm", {"head_dim": 16}),
    "glm4": TinyCase("glm4", {"head_dim": 32}, torch.bfloat16),
    "gpt2": TinyCase("gpt2", dtype=torch.float16),
    "gpt2_unscaled": TinyCase("gpt2", {"scale_attn_weights": False, "n_inner": None}),
    "gpt_bigcode": TinyCase("gpt_bigcode", dtype=torch.bfloat16),
    "gpt_bigcode_heads": TinyCase("gpt_bigcode", {"multi_query": False}),
    "gpt_neox": TinyCase("gpt_neox", dtype=torch.float16),
    "gpt_neox_sequential": TinyCase(
        "gpt_neox", {"use_parallel_residual": False, "attention_bias": False}
    ),
    "granite": TinyCase(
        "granite",
        {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.3,
            "logits_scaling": 2.0,
            "attention_bias": True,
        },
        torch.bfloat16,
    ),
    "helium": TinyCase("helium", {"head_dim": 16}, torch.bfloat16),
    "nemotron": TinyCase("nemotron", dtype=torch.bfloat16),
    "olmo": TinyCase("olmo", dtype=torch.float16),
    "olmo2": TinyCase("olmo2", dtype=torch.bfloat16),
    "olmo3": TinyCase(
        "olmo3",
        {"num_hidden_layers": 4, "sliding_window": 9, "rope_parameters": _OLMO3_ROPE},
    ),
    "opt": TinyCase("opt", dtype=torch.float16),
    "opt_plain": TinyCase("opt", {"enable_bias": False, "layer_norm_elementwise_affine": False}),
    "phi": TinyCase("phi", dtype=torch.float16),
    "phi3": TinyCase("phi3", {"sliding_window": 11}, torch.bfloat16),
    "phi3_longrope": TinyCase(
        "phi3",
        {
            "num_key_value_heads": 4,
            "partial_rotary_factor": 0.75,
            "original_max_position_embeddings": 16,
            "rope_parameters": _PHI3_LONGROPE,
        },
    ),
    "seed_oss": TinyCase("seed_oss", {"head_dim": 24, "attention_out_bias": True}),
    "smollm3": TinyCase("smollm3", {"num_hidden_layers": 5}, torch.bfloat16),
    "smollm3_window": TinyCase(
        "smollm3", {"no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 9}
    ),
    "stablelm": TinyCase("stablelm", {"use_qkv_bias": True}, torch.float16),
    "stablelm_parallel": TinyCase("stablelm", {"use_parallel_residual": True}),
    "starcoder2": TinyCase("starcoder2", {"sliding_window": 9}, torch.bfloat16),
    "starcoder2_full": TinyCase("starcoder2", {"use_bias": False}, torch.bfloat16),
    # Widths that blocks of 128 elements divide, and those of 256.
    "llama_128": TinyCase("llama", {"hidden_size": 128, "intermediate_size": 256}),
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
    names = _OTHER_NAMES.get(case.family, {})
    sizes = {names.get(key, key): value for key, value in _SIZES.items()}
    sizes.pop(None, None)
    config = make_config(**{**sizes, **case.changes}, attn_implementation="eager")
    model: PreTrainedModel = make_model(config).eval()
    randomise(model)
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


_EMBEDDINGS = (
    "embed_tokens",
    "embed_positions",
    "embed_in",
    "word_embeddings",
    "position_embeddings",
    "token_type_embeddings",
    "tok_embeddings",
    "wte",
    "wpe",
)


@torch.no_grad()
def randomise(model: PreTrainedModel) -> None:
    """Numbers large enough that every part of the arithmetic shows in the result."""
    generator = torch.Generator().manual_seed(20)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.dim() == 1:  # norm weights and biases, around what they start from
            parameter.add_(0.2 * noise)
        elif name.rpartition(".")[0].endswith(_EMBEDDINGS):
            parameter.copy_(0.5 * noise)
        else:
            parameter.copy_(1.5 * noise / parameter.shape[1] ** 0.5)
