"""Tiny random models made with transformers: the oracle of the model tests, and their files.

A case is a configuration. `make_oracle` fills it with random numbers, large enough that every part
of the arithmetic shows in the logits; `save_folder` writes what Hugging Face's tools write.
`tiny_gguf.py` writes the same models as GGUF files.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    Gemma3Config,
    Llama4Config,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3_5Config,
    Qwen3_5MoeConfig,
)

from tests.support.foreign_cases import FOREIGN_CASES
from tests.support.tiny_cases import CASES, TinyCase
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


class Llama4ForConditionalGeneration(transformers.Llama4ForConditionalGeneration):
    """The text part of the answer, which transformers' own class fails to give without an image."""

    def forward(self, input_ids: torch.Tensor) -> Any:  # type: ignore[override]
        return self.language_model(input_ids)


def _llama4_with_images(**sizes: Any) -> Llama4Config:
    """The same for Llama 4."""
    vision = {
        "hidden_size": 32,
        "intermediate_size": 128,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
        "vision_output_dim": 32,
        "projector_input_dim": 32,
        "projector_output_dim": 32,
    }
    attention = sizes.pop("attn_implementation")
    config = Llama4Config(text_config=sizes, vision_config=vision, image_token_index=1)
    config._attn_implementation = attention
    return config


def _qwen3_5_vision(sizes: dict[str, Any]) -> dict[str, Any]:
    """What Octavo leaves out."""
    return {
        "depth": 1,
        "hidden_size": 32,
        "num_heads": 2,
        "intermediate_size": 32,
        "out_hidden_size": sizes["hidden_size"],
        "num_position_embeddings": 16,
    }


def _qwen3_5_with_images(**sizes: Any) -> Qwen3_5Config:
    """The same for Qwen 3.5."""
    attention = sizes.pop("attn_implementation")
    config = Qwen3_5Config(text_config=sizes, vision_config=_qwen3_5_vision(sizes))
    config._attn_implementation = attention
    return config


def _qwen3_5_moe_with_images(**sizes: Any) -> Qwen3_5MoeConfig:
    """And with experts."""
    attention = sizes.pop("attn_implementation")
    config = Qwen3_5MoeConfig(text_config=sizes, vision_config=_qwen3_5_vision(sizes))
    config._attn_implementation = attention
    return config


# Family -> what its classes are called before "Config" and "ForCausalLM".
_NAMES = {
    "apertus": "Apertus",
    "arcee": "Arcee",
    "bamba": "Bamba",
    "bloom": "Bloom",
    "cohere": "Cohere",
    "cohere2": "Cohere2",
    "deepseek_v2": "DeepseekV2",
    "deepseek_v3": "DeepseekV3",
    "diffllama": "DiffLlama",
    "dots1": "Dots1",
    "ernie4_5": "Ernie4_5",
    "exaone4": "Exaone4",
    "falcon": "Falcon",
    "falcon_h1": "FalconH1",
    "gemma": "Gemma",
    "gemma2": "Gemma2",
    "glm": "Glm",
    "glm4": "Glm4",
    "gpt_bigcode": "GPTBigCode",
    "gpt_neox": "GPTNeoX",
    "gptj": "GPTJ",
    "glm4_moe": "Glm4Moe",
    "gpt_oss": "GptOss",
    "granite": "Granite",
    "granitemoe": "GraniteMoe",
    "granitemoehybrid": "GraniteMoeHybrid",
    "helium": "Helium",
    "hunyuan_v1_dense": "HunYuanDenseV1",
    "jamba": "Jamba",
    "llama": "Llama",
    "mamba2": "Mamba2",
    "ministral": "Ministral",
    "mistral": "Mistral",
    "mixtral": "Mixtral",
    "mpt": "Mpt",
    "nemotron": "Nemotron",
    "nemotron_h": "NemotronH",
    "olmo": "Olmo",
    "olmo2": "Olmo2",
    "olmo3": "Olmo3",
    "olmoe": "Olmoe",
    "opt": "OPT",
    "persimmon": "Persimmon",
    "phi": "Phi",
    "phi3": "Phi3",
    "phimoe": "Phimoe",
    "qwen2": "Qwen2",
    "qwen2_moe": "Qwen2Moe",
    "qwen3": "Qwen3",
    "qwen3_moe": "Qwen3Moe",
    "qwen3_next": "Qwen3Next",
    "seed_oss": "SeedOss",
    "smollm3": "SmolLM3",
    "stablelm": "StableLm",
    "starcoder2": "Starcoder2",
    "vaultgemma": "VaultGemma",
}
_FAMILIES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
    "gemma3_with_images": (_gemma3_with_images, transformers.Gemma3ForConditionalGeneration),
    "gemma4_text": (transformers.Gemma4TextConfig, transformers.Gemma4ForCausalLM),
    "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel),
    "llama4_with_images": (_llama4_with_images, Llama4ForConditionalGeneration),
    "llama4": (transformers.Llama4TextConfig, transformers.Llama4ForCausalLM),
    "qwen3_5_with_images": (_qwen3_5_with_images, transformers.Qwen3_5ForConditionalGeneration),
    "qwen3_5_moe_with_images": (
        _qwen3_5_moe_with_images,
        transformers.Qwen3_5MoeForConditionalGeneration,
    ),
    "qwen3_5": (transformers.Qwen3_5TextConfig, transformers.Qwen3_5ForCausalLM),
    "qwen3_5_moe": (transformers.Qwen3_5MoeTextConfig, transformers.Qwen3_5MoeForCausalLM),
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
_OTHER_NAMES["gptj"] = {
    "hidden_size": "n_embd",
    "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "num_key_value_heads": None,
    "max_position_embeddings": "n_positions",
}
_OTHER_NAMES["persimmon"] = {"num_key_value_heads": None}
_OTHER_NAMES["mamba2"] = {
    "num_attention_heads": "num_heads",
    "num_key_value_heads": None,
    "intermediate_size": None,
    "max_position_embeddings": None,
}
_OTHER_NAMES["nemotron_h"] = {"num_hidden_layers": None}
_OTHER_NAMES["bloom"] = {
    "intermediate_size": None,
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "num_key_value_heads": None,
    "max_position_embeddings": "seq_length",
}
_OTHER_NAMES["mpt"] = {
    "hidden_size": "d_model",
    "intermediate_size": None,
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": None,
    "max_position_embeddings": "max_seq_len",
}
_OTHER_NAMES["gpt_bigcode"] = _OTHER_NAMES["gpt2"]


def case_of(name: str) -> TinyCase:
    """A case of either table."""
    return CASES[name] if name in CASES else FOREIGN_CASES[name]


def make_oracle(name: str) -> PreTrainedModel:
    """The model in float32 with random weights, rounded to the type in which they are saved."""
    case = case_of(name)
    make_config, make_model = _FAMILIES[case.family]
    names = _OTHER_NAMES.get(case.family, {})
    sizes = {names.get(key, key): value for key, value in _SIZES.items()}
    sizes.pop(None, None)
    config = make_config(**{"attn_implementation": "eager", **sizes, **case.changes})
    torch.manual_seed(20)  # decays of states are drawn when a model is made
    model: PreTrainedModel = make_model(config).eval()
    randomise(model)
    for parameter in model.parameters():  # the rotary frequencies stay as they are
        parameter.data = parameter.data.to(case.dtype).float()
    return model


def save_folder(oracle: PreTrainedModel, name: str, folder: Path) -> None:
    """config.json, safetensors in the case's type and size, and a tokenizer."""
    case = case_of(name)
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
        if parameter.dim() == 1 or name.endswith(".A_log"):
            # Norm weights, biases and decays, around what they start from.
            parameter.add_(0.2 * noise)
        elif name.rpartition(".")[0].endswith(_EMBEDDINGS):
            parameter.copy_(0.5 * noise)
        else:
            num_inputs = parameter.shape[-1 if name.endswith(".conv1d.weight") else 1]
            parameter.copy_(1.5 * noise / num_inputs**0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator).to(torch.bfloat16))
