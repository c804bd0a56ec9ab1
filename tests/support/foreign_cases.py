"""Tiny models of architectures that Octavo lacks: for users' classes and transformers' code.

Between them: windows and full layers, layers without rotation, norms in other places, soft caps,
experts, two attentions in a layer, heads whose values are narrower than their keys, learned
positions.
"""

from __future__ import annotations

import torch

from tests.support.tiny_cases import TinyCase

FOREIGN_CASES: dict[str, TinyCase] = {
    "hunyuan_dense": TinyCase("hunyuan_v1_dense", {"head_dim": 16}),
    "hunyuan_dense_alpha": TinyCase(
        "hunyuan_v1_dense",
        {
            "head_dim": 16,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "dynamic",
                "rope_theta": 10000.0,
                "alpha": 50.0,
                "factor": 1.0,
            },
        },
    ),
    "exaone4": TinyCase(
        "exaone4",
        {"num_hidden_layers": 4, "sliding_window": 9, "sliding_window_pattern": 4},
    ),
    "vaultgemma": TinyCase(
        "vaultgemma",
        {
            "num_hidden_layers": 3,
            "head_dim": 32,
            "sliding_window": 9,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
    ),
    "gptj": TinyCase("gptj", {"rotary_dim": 8}),
    "dots1": TinyCase(
        "dots1",
        {
            "head_dim": 16,
            "num_hidden_layers": 3,
            "first_k_dense_replace": 1,
            "n_routed_experts": 8,
            "n_shared_experts": 1,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 32,
            "n_group": 2,
            "topk_group": 1,
        },
    ),
    "apertus": TinyCase("apertus", {"hidden_act": "xielu"}),
    "diffllama": TinyCase("diffllama", {"head_dim": 16}),
    "gemma4": TinyCase(
        "gemma4_text",
        {
            "num_hidden_layers": 6,
            "head_dim": 16,
            "global_head_dim": 32,
            "num_global_key_value_heads": 1,
            "attention_k_eq_v": True,
            "sliding_window": 9,
            "vocab_size_per_layer_input": 403,
            "hidden_size_per_layer_input": 8,
            "num_kv_shared_layers": 2,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
        },
    ),
    "persimmon": TinyCase("persimmon", {"tie_word_embeddings": False}, torch.bfloat16),
}
