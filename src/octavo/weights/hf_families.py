"""The table of architectures that can be read from a config.json.

Owns what each calls its keys and assumes for missing ones. A new architecture is an entry here, one
in `models/registry.py`, and one in `hf_names.py` if its tensors have other names than Llama's. The
class of a model that a user registered says the same in its attributes `family` and `layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from octavo.config.model_facts import ModelFacts
from octavo.contracts.own_models import is_registered, registered_class
from octavo.errors import ConfigError
from octavo.weights import hf_encoders as encoders
from octavo.weights import hf_moe as moe
from octavo.weights import hf_special as own
from octavo.weights import hf_states as states
from octavo.weights.fields import Fields


@dataclass(frozen=True, slots=True)
class Family:
    """One architecture: what it assumes for missing keys, and what it has of its own."""

    assumed: Mapping[str, object]  # by the file's keys
    adjust: Callable[[ModelFacts, Fields], ModelFacts]
    theta: float = 10000.0  # base of the rotary embedding
    names: Mapping[str, str] = field(default_factory=lambda: {"norm_eps": "rms_norm_eps"})
    inner_times: int = 0  # assumed width of the MLP in hidden sizes; 0: the file must say it
    learned_positions: bool = False


# What the architectures assume for keys that a config.json may leave out, as their published
# configuration classes do. Sizes are assumed only where published files do leave them out.
_ASSUMED: dict[str, object] = {"tie_word_embeddings": False, "rms_norm_eps": 1e-6}
_TIED: dict[str, object] = {"tie_word_embeddings": True}
_WINDOWED: dict[str, object] = _ASSUMED | {
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
}
_GEMMA: dict[str, object] = {
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
_GEMMA3 = Family(
    _GEMMA
    | {
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "hidden_activation": "gelu_pytorch_tanh",
        "max_position_embeddings": 131072,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
    },
    own.gemma3,
    theta=1e6,
)
_GLM = Family(
    _ASSUMED
    | {
        "num_key_value_heads": 2,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1.5625e-7,
        "attention_bias": True,
        "partial_rotary_factor": 0.5,
    },
    own.glm,
)
_COHERE: dict[str, object] = _TIED | {
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-5,
    "logit_scale": 0.0625,
}
_LAYER_NORM_EPS = {"norm_eps": "layer_norm_eps"}
_GPT2_NAMES = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions",
    "intermediate_size": "n_inner",
    "hidden_act": "activation_function",
    "norm_eps": "layer_norm_epsilon",
}
_GPT2: dict[str, object] = _TIED | {"n_positions": 1024, "layer_norm_epsilon": 1e-5}
_BERT = Family(
    _ASSUMED | {"hidden_act": "gelu", "layer_norm_eps": 1e-12},
    encoders.bert,
    names=_LAYER_NORM_EPS,
    learned_positions=True,
)
_QWEN3_NEXT: dict[str, object] = _ASSUMED | {
    "num_key_value_heads": 2,
    "head_dim": 256,
    "max_position_embeddings": 32768,
    "partial_rotary_factor": 0.25,
}
_QWEN3_5 = Family(_QWEN3_NEXT | {"num_key_value_heads": 4}, states.qwen3_5)
_QWEN3_5_MOE = Family(
    _QWEN3_NEXT | {"norm_topk_prob": True},
    states.qwen3_next,
    inner_times=1,  # of no layer: all have experts
)
_LLAMA4 = Family(
    _ASSUMED
    | {
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "attention_chunk_size": 8192,
    },
    moe.llama4,
    theta=5e5,
)
FAMILIES = {
    "ArceeForCausalLM": Family(
        _ASSUMED | {"hidden_act": "relu2", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5},
        own.arcee,
    ),
    "BambaForCausalLM": Family(
        _ASSUMED
        | {
            "num_key_value_heads": 8,
            "max_position_embeddings": 262144,
            "rms_norm_eps": 1e-5,
            "partial_rotary_factor": 0.5,
        },
        states.bamba,
    ),
    "BertModel": _BERT,
    "BloomForCausalLM": Family(
        _TIED
        | {
            "hidden_act": "gelu_new",
            "layer_norm_epsilon": 1e-5,
            "seq_length": 2048,
        },
        own.bloom,
        names={
            "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head",
            "max_position_embeddings": "seq_length",
            "norm_eps": "layer_norm_epsilon",
        },
        inner_times=4,
    ),
    "Cohere2ForCausalLM": Family(
        _COHERE | {"sliding_window": 4096}, own.cohere2, names=_LAYER_NORM_EPS
    ),
    "CohereForCausalLM": Family(_COHERE, own.cohere, theta=5e5, names=_LAYER_NORM_EPS),
    "DeepseekV2ForCausalLM": Family(_ASSUMED | {"max_position_embeddings": 2048}, moe.deepseek_v2),
    "DeepseekV3ForCausalLM": Family(
        _ASSUMED
        | {
            "max_position_embeddings": 4096,
            "n_group": 8,
            "topk_group": 4,
            "first_k_dense_replace": 3,
            "routed_scaling_factor": 2.5,
        },
        moe.deepseek_v3,
    ),
    "Ernie4_5ForCausalLM": Family(
        _ASSUMED
        | _TIED
        | {"head_dim": 128, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5},
        own.ernie4_5,
        theta=5e5,
    ),
    "FalconH1ForCausalLM": Family(
        _ASSUMED
        | {
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "mamba_d_ssm": 1024,
        },
        states.falcon_h1,
    ),
    "FalconForCausalLM": Family(
        _TIED | {"max_position_embeddings": 2048, "layer_norm_epsilon": 1e-5, "activation": "gelu"},
        own.falcon,
        names={
            "intermediate_size": "ffn_hidden_size",
            "hidden_act": "activation",
            "norm_eps": "layer_norm_epsilon",
        },
        inner_times=4,
    ),
    "GPT2LMHeadModel": Family(
        _GPT2 | {"activation_function": "gelu_new"},
        own.gpt2,
        names=_GPT2_NAMES,
        inner_times=4,
        learned_positions=True,
    ),
    "GPTBigCodeForCausalLM": Family(
        _GPT2 | {"activation_function": "gelu_pytorch_tanh"},
        own.gpt_bigcode,
        names=_GPT2_NAMES,
        inner_times=4,
        learned_positions=True,
    ),
    "GPTNeoXForCausalLM": Family(
        _ASSUMED
        | {
            "hidden_act": "gelu",
            "max_position_embeddings": 2048,
            "layer_norm_eps": 1e-5,
            "rotary_pct": 0.25,
        },
        own.gpt_neox,
        names=_LAYER_NORM_EPS
        | {"partial_rotary_factor": "rotary_pct", "rope_theta": "rotary_emb_base"},
    ),
    "Gemma2ForCausalLM": Family(
        _GEMMA
        | {
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": 256,
            "sliding_window": 4096,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
        own.gemma2,
    ),
    "Gemma3ForCausalLM": _GEMMA3,
    "Gemma3ForConditionalGeneration": _GEMMA3,
    "GemmaForCausalLM": Family(_GEMMA, own.gemma),
    "Glm4ForCausalLM": _GLM,
    "Glm4MoeForCausalLM": Family(
        _ASSUMED
        | {
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "partial_rotary_factor": 0.5,
        },
        moe.glm4_moe,
    ),
    "GlmForCausalLM": _GLM,
    "GptOssForCausalLM": Family(
        _ASSUMED
        | {
            "num_key_value_heads": 8,
            "head_dim": 64,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "attention_bias": True,
            "sliding_window": 128,
        },
        moe.gpt_oss,
        theta=150000.0,
    ),
    "GraniteForCausalLM": Family(_ASSUMED | {"max_position_embeddings": 2048}, own.granite),
    "GraniteMoeForCausalLM": Family(_ASSUMED | {"max_position_embeddings": 2048}, moe.granite_moe),
    "GraniteMoeHybridForCausalLM": Family(
        _ASSUMED
        | {"max_position_embeddings": 2048, "num_local_experts": 8, "num_experts_per_tok": 2},
        states.granite_hybrid,
    ),
    "HeliumForCausalLM": Family(
        _ASSUMED | {"head_dim": 128, "max_position_embeddings": 4096, "rms_norm_eps": 1e-8},
        own.helium,
        theta=1e5,
    ),
    "JambaForCausalLM": Family(
        _ASSUMED
        | {
            "num_key_value_heads": 8,
            "max_position_embeddings": 262144,
            "num_experts": 16,
            "num_experts_per_tok": 2,
        },
        states.jamba,
    ),
    "Llama4ForCausalLM": _LLAMA4,
    "Llama4ForConditionalGeneration": _LLAMA4,
    "LlamaForCausalLM": Family(_ASSUMED | {"max_position_embeddings": 2048}, own.llama),
    "Mamba2ForCausalLM": Family(
        _ASSUMED | {"max_position_embeddings": states.UNBOUNDED, "layer_norm_epsilon": 1e-5},
        states.mamba2,
        names={"num_attention_heads": "num_heads", "norm_eps": "layer_norm_epsilon"},
        inner_times=2,
    ),
    "MinistralForCausalLM": Family(
        _WINDOWED | {"num_key_value_heads": 8, "max_position_embeddings": 131072}, own.ministral
    ),
    "MistralForCausalLM": Family(
        _WINDOWED | {"num_key_value_heads": 8, "max_position_embeddings": 131072}, own.mistral
    ),
    "MixtralForCausalLM": Family(
        _ASSUMED
        | {"num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5},
        moe.mixtral,
        theta=1e6,
    ),
    "ModernBertModel": Family(
        _TIED
        | {
            "hidden_activation": "gelu",
            "max_position_embeddings": 8192,
            "norm_eps": 1e-5,
        },
        encoders.modernbert,
        theta=160000.0,
        names={"rope_theta": "global_rope_theta"},
    ),
    "MptForCausalLM": Family(
        _TIED | {"hidden_act": "gelu", "layer_norm_epsilon": 1e-5, "max_seq_len": 2048},
        own.mpt,
        names={
            "hidden_size": "d_model",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "max_position_embeddings": "max_seq_len",
            "norm_eps": "layer_norm_epsilon",
        },
        inner_times=4,
    ),
    "NemotronForCausalLM": Family(
        {
            "tie_word_embeddings": False,
            "hidden_act": "relu2",
            "max_position_embeddings": 4096,
            "norm_eps": 1e-5,
            "partial_rotary_factor": 0.5,
        },
        own.nemotron,
        names={},
    ),
    "NemotronHForCausalLM": Family(
        _ASSUMED
        | {
            "num_key_value_heads": 8,
            "head_dim": 128,
            "mlp_hidden_act": "relu2",
            "max_position_embeddings": 4096,
            "layer_norm_epsilon": 1e-5,
        },
        states.nemotron_h,
        names={"hidden_act": "mlp_hidden_act", "norm_eps": "layer_norm_epsilon"},
    ),
    "OPTForCausalLM": Family(
        _TIED
        | {
            "activation_function": "relu",
            "max_position_embeddings": 2048,
            "layer_norm_eps": 1e-5,
        },
        own.opt,
        names=_LAYER_NORM_EPS
        | {"intermediate_size": "ffn_dim", "hidden_act": "activation_function"},
        learned_positions=True,
    ),
    "Olmo2ForCausalLM": Family(
        _ASSUMED | {"max_position_embeddings": 2048, "rms_norm_eps": 1e-5}, own.olmo2
    ),
    "Olmo3ForCausalLM": Family(
        _ASSUMED | {"max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "sliding_window": 4096},
        own.olmo3,
        theta=5e5,
    ),
    "OlmoForCausalLM": Family(
        _ASSUMED | {"max_position_embeddings": 2048, "layer_norm_eps": 1e-5},
        own.olmo,
        names=_LAYER_NORM_EPS,
    ),
    "OlmoeForCausalLM": Family(
        _ASSUMED | {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5}, moe.olmoe
    ),
    "Phi3ForCausalLM": Family(
        _ASSUMED | {"max_position_embeddings": 4096, "rms_norm_eps": 1e-5}, own.phi3
    ),
    "PhiForCausalLM": Family(
        {
            "tie_word_embeddings": False,
            "hidden_act": "gelu_new",
            "max_position_embeddings": 2048,
            "layer_norm_eps": 1e-5,
            "partial_rotary_factor": 0.5,
        },
        own.phi,
        names=_LAYER_NORM_EPS,
    ),
    "PhimoeForCausalLM": Family(
        _ASSUMED
        | {"num_key_value_heads": 8, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5},
        moe.phimoe,
        theta=1e6,
    ),
    "Qwen2ForCausalLM": Family(_WINDOWED | {"num_key_value_heads": 32}, own.qwen2),
    "Qwen2MoeForCausalLM": Family(_WINDOWED | {"num_key_value_heads": 16}, moe.qwen2_moe),
    "Qwen3ForCausalLM": Family(_WINDOWED | {"num_key_value_heads": 32, "head_dim": 128}, own.qwen3),
    "Qwen3MoeForCausalLM": Family(_WINDOWED | {"num_key_value_heads": 4}, moe.qwen3_moe),
    "Qwen3NextForCausalLM": Family(_QWEN3_NEXT | {"norm_topk_prob": True}, states.qwen3_next),
    "Qwen3_5ForCausalLM": _QWEN3_5,
    "Qwen3_5ForConditionalGeneration": _QWEN3_5,
    "Qwen3_5MoeForCausalLM": _QWEN3_5_MOE,
    "Qwen3_5MoeForConditionalGeneration": _QWEN3_5_MOE,
    "SeedOssForCausalLM": Family(
        _ASSUMED
        | {
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 524288,
            "attention_bias": True,
        },
        own.seed_oss,
    ),
    "SmolLM3ForCausalLM": Family(
        _ASSUMED | _TIED | {"num_key_value_heads": 4, "max_position_embeddings": 32768},
        own.smollm3,
        theta=2e6,
    ),
    "StableLmForCausalLM": Family(
        {
            "tie_word_embeddings": False,
            "max_position_embeddings": 4096,
            "layer_norm_eps": 1e-5,
            "partial_rotary_factor": 0.25,
        },
        own.stablelm,
        names=_LAYER_NORM_EPS,
    ),
    "Starcoder2ForCausalLM": Family(
        _TIED
        | {
            "num_key_value_heads": 2,
            "hidden_act": "gelu_pytorch_tanh",
            "max_position_embeddings": 4096,
            "norm_epsilon": 1e-5,
        },
        own.starcoder2,
        names={"norm_eps": "norm_epsilon"},
    ),
    "XLMRobertaModel": replace(_BERT, adjust=encoders.roberta),
}
# What a name may end with, and what an architecture of the table is called instead.
_HEADS = ("ForSequenceClassification", "ForMaskedLM", "Model")
_TABLE_ENDINGS = ("Model", "ForCausalLM", "LMHeadModel")
_SAME = {"Roberta": "XLMRoberta", "Gemma3Text": "Gemma3"}


def base_architecture(name: str) -> str | None:
    """The architecture of the table that `name` is, with whatever head; None if there is none."""
    if name in FAMILIES or is_registered(name):
        return name
    for head in _HEADS:
        if not name.endswith(head):
            continue
        stem = name.removesuffix(head)
        for ending in _TABLE_ENDINGS:
            base = _SAME.get(stem, stem) + ending
            if base in FAMILIES:
                return base
    return None


# Of a registered model whose class does not say: keys and assumptions of Llama.
_PLAIN = Family(_ASSUMED | {"max_position_embeddings": 2048}, own.llama)


def family_of(architecture: str) -> Family:
    """How the config.json of an architecture is read, that `base_architecture` knows.

    Raises ConfigError for a registered class whose `family` is none.
    """
    registered = registered_class(architecture)
    family = getattr(registered, "family", FAMILIES.get(architecture, _PLAIN))
    if not isinstance(family, Family):
        raise ConfigError(
            f"the model {architecture}: family must be a Family of octavo.weights.hf_families, got "
            f"{family!r}"
        )
    return family
