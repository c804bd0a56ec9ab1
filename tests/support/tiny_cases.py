"""The tiny models: configurations that between them have every feature of every architecture.

`tiny_models.py` makes models of them. Sizes that a case does not name are the same for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch


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

_DEEPSEEK_YARN = {
    "factor": 8.0,
    "original_max_position_embeddings": 32,
    "mscale": 0.7,
    "mscale_all_dim": 0.7,
}
_LATENT = {
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
}
_SIZES_128 = dict.fromkeys(("hidden_size", "intermediate_size", "kv_lora_rank"), 128)
_SIZES_128 |= dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 32)
# Sizes that differ from each other, and states that end inside a block.
_MAMBA2 = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_n_groups": 2,
    "mamba_d_state": 12,
    "mamba_expand": 2,
}
_DELTA = {
    "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"],
    "head_dim": 32,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 12,
    "linear_num_value_heads": 6,
    "linear_value_head_dim": 20,
}
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32}

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
    "bloom": TinyCase("bloom", dtype=torch.float16),
    "bloom_odd_heads": TinyCase("bloom", {"n_head": 6, "hidden_size": 96}),
    "cohere": TinyCase("cohere", {"logit_scale": 0.25}),
    "cohere_qk_norm": TinyCase("cohere", {"use_qk_norm": True}, torch.float16),
    "cohere2": TinyCase(
        "cohere2", {"num_hidden_layers": 4, "sliding_window": 9, "logit_scale": 0.5}, torch.float16
    ),
    "ernie4_5": TinyCase("ernie4_5", {"head_dim": 16, "use_bias": True}, torch.bfloat16),
    "falcon": TinyCase("falcon", {"ffn_hidden_size": 128}, torch.bfloat16),
    "falcon_alibi": TinyCase(
        "falcon",
        {
            "alibi": True,
            "multi_query": False,
            "parallel_attn": False,
            "num_kv_heads": 4,
            "bias": True,
            "attn_implementation": "sdpa",  # transformers' eager one adds distances twice
        },
    ),
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
    "olmo_clip": TinyCase("olmo", {"clip_qkv": 0.7}, torch.bfloat16),
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
    "deepseek_v2": TinyCase(
        "deepseek_v2", _LATENT | {"q_lora_rank": None, "topk_method": "greedy"}, torch.bfloat16
    ),
    "deepseek_v2_groups": TinyCase(
        "deepseek_v2",
        _LATENT
        | {
            "q_lora_rank": 24,
            "topk_method": "group_limited_greedy",
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 2.0,
        },
    ),
    "deepseek_v3": TinyCase(
        "deepseek_v3",
        _LATENT
        | {"q_lora_rank": 24, "n_group": 4, "topk_group": 2, **_rope("yarn", **_DEEPSEEK_YARN)},
        torch.bfloat16,
    ),
    "llama4": TinyCase(
        "llama4",
        {
            "num_hidden_layers": 5,
            "head_dim": 32,
            "intermediate_size": 48,
            "intermediate_size_mlp": 96,
            "interleave_moe_layer_step": 2,
            "num_local_experts": 6,
            "attention_chunk_size": 16,
            "floor_scale": 8,
        },
        torch.bfloat16,
    ),
    "llama4_with_images": TinyCase(
        "llama4_with_images",
        {
            "num_hidden_layers": 2,
            "head_dim": 16,
            "intermediate_size": 32,
            "intermediate_size_mlp": 96,
            "num_local_experts": 4,
        },
    ),
    # Lengths that llama.cpp has in its code.
    "llama4_long": TinyCase(
        "llama4",
        {
            "num_hidden_layers": 4,
            "head_dim": 32,
            "intermediate_size": 32,
            "intermediate_size_mlp": 96,
            "interleave_moe_layer_step": 2,
            "num_local_experts": 6,
        },
    ),
    "mpt": TinyCase("mpt", {"attn_config": {"clip_qkv": 0.9}}, torch.bfloat16),
    "mixtral": TinyCase("mixtral", {"num_local_experts": 5}, torch.bfloat16),
    "mixtral_window": TinyCase("mixtral", {"sliding_window": 9, "num_experts_per_tok": 3}),
    "qwen2_moe": TinyCase("qwen2_moe", _EXPERTS | {"shared_expert_intermediate_size": 40}),
    "qwen2_moe_mixed": TinyCase(
        "qwen2_moe",
        _EXPERTS
        | {
            "shared_expert_intermediate_size": 64,
            "num_hidden_layers": 4,
            "decoder_sparse_step": 2,
            "mlp_only_layers": [1],
            "norm_topk_prob": True,
        },
        torch.bfloat16,
    ),
    "qwen3_moe": TinyCase(
        "qwen3_moe", _EXPERTS | {"head_dim": 32, "norm_topk_prob": True}, torch.bfloat16
    ),
    "olmoe": TinyCase("olmoe", {"num_experts": 8, "num_experts_per_tok": 3}, torch.float16),
    "olmoe_clip": TinyCase("olmoe", _EXPERTS | {"clip_qkv": 1.1}),
    "granitemoe": TinyCase(
        "granitemoe", {"embedding_multiplier": 3.0, "residual_multiplier": 0.3}, torch.bfloat16
    ),
    "phimoe": TinyCase("phimoe", {"lm_head_bias": True, "attention_bias": True}),
    "gpt_oss": TinyCase(
        "gpt_oss",
        {
            "num_hidden_layers": 4,
            "head_dim": 32,
            "sliding_window": 9,
            "num_local_experts": 6,
            "num_experts_per_tok": 3,
        },
        torch.bfloat16,
    ),
    "glm4_moe": TinyCase(
        "glm4_moe",
        {
            "num_hidden_layers": 3,
            "head_dim": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 1.5,
            "use_qk_norm": True,
            "attention_bias": True,
        },
        torch.bfloat16,
    ),
    # Widths that blocks of 128 elements divide, and those of 256.
    "llama_128": TinyCase("llama", {"hidden_size": 128, "intermediate_size": 256}),
    "deepseek_v2_128": TinyCase("deepseek_v2", _LATENT | _SIZES_128 | {"q_lora_rank": None}),
    "llama_wide": TinyCase("llama", {"hidden_size": 256, "intermediate_size": 256}),
    "mixtral_wide": TinyCase("mixtral", {"hidden_size": 256, "intermediate_size": 256}),
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
    # Layers that carry a state.
    "mamba2": TinyCase(
        "mamba2", {"num_heads": 8, "head_dim": 16, "state_size": 12, "n_groups": 2}, torch.bfloat16
    ),
    "mamba2_limits": TinyCase(
        "mamba2",
        {
            "num_heads": 4,
            "head_dim": 32,
            "state_size": 20,
            "n_groups": 1,
            "conv_kernel": 3,
            "use_bias": True,
            "use_conv_bias": False,
            "time_step_limit": [0.3, 0.9],
            "tie_word_embeddings": True,
        },
    ),
    "qwen3_next": TinyCase(
        "qwen3_next",
        _DELTA | _EXPERTS | {"shared_expert_intermediate_size": 40, "mlp_only_layers": [1]},
        torch.bfloat16,
    ),
    "qwen3_5": TinyCase("qwen3_5", _DELTA),
    "qwen3_5_with_images": TinyCase("qwen3_5_with_images", _DELTA),
    "qwen3_5_moe": TinyCase(
        "qwen3_5_moe", _DELTA | _EXPERTS | {"shared_expert_intermediate_size": 40}
    ),
    "qwen3_5_moe_with_images": TinyCase(
        "qwen3_5_moe_with_images", _DELTA | _EXPERTS | {"shared_expert_intermediate_size": 40}
    ),
    "granitemoehybrid": TinyCase(
        "granitemoehybrid",
        _MAMBA2
        | {
            "num_hidden_layers": 3,
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "num_local_experts": 6,
            "num_experts_per_tok": 3,
            "shared_intermediate_size": 40,
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.3,
            "logits_scaling": 2.0,
        },
        torch.bfloat16,
    ),
    "granitemoehybrid_dense": TinyCase(
        "granitemoehybrid",
        _MAMBA2
        | {
            "layer_types": ["linear_attention", "full_attention"],
            "num_local_experts": 0,
            "shared_intermediate_size": 72,
            "position_embedding_type": "rope",
        },
    ),
    "jamba": TinyCase(
        "jamba",
        {
            "num_hidden_layers": 4,
            "attn_layer_period": 3,
            "attn_layer_offset": 1,
            "num_experts": 5,
            "mamba_d_state": 12,
            "mamba_proj_bias": True,
        },
        torch.bfloat16,
    ),
    "bamba": TinyCase(
        "bamba", _MAMBA2 | {"num_hidden_layers": 3, "attn_layer_indices": [1]}, torch.float16
    ),
    "nemotron_h": TinyCase(
        "nemotron_h",
        {
            "layers_block_type": ["linear_attention", "mlp", "full_attention", "moe"],
            "mamba_num_heads": 6,
            "mamba_head_dim": 12,
            "n_groups": 2,
            "ssm_state_size": 20,
            "head_dim": 32,
            "n_routed_experts": 8,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "moe_shared_expert_intermediate_size": 40,
            "n_group": 4,
            "topk_group": 2,
            "routed_scaling_factor": 1.5,
        },
        torch.bfloat16,
    ),
    "falcon_h1": TinyCase(
        "falcon_h1",
        _MAMBA2
        | {
            "mamba_n_heads": 6,
            "mamba_d_ssm": 96,
            "mamba_rms_norm": True,
            "mlp_multipliers": [0.7, 0.4],
            "ssm_multipliers": [0.9, 0.6, 0.7, 1.2, 0.8],
            "ssm_in_multiplier": 1.3,
            "ssm_out_multiplier": 0.6,
            "attention_in_multiplier": 0.9,
            "attention_out_multiplier": 0.7,
            "key_multiplier": 0.5,
            "embedding_multiplier": 2.0,
            "lm_head_multiplier": 0.5,
        },
        torch.bfloat16,
    ),
    "falcon_h1_plain": TinyCase("falcon_h1", _MAMBA2 | {"mamba_d_ssm": 128}),
    "falcon_h1_gate_first": TinyCase(
        "falcon_h1",
        _MAMBA2 | {"mamba_d_ssm": 128, "mamba_rms_norm": True, "mamba_norm_before_gate": False},
    ),
}
