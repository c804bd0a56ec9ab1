"""llama.cpp's architecture and tensor names -> Hugging Face's.

Owns the tables. A new architecture is one row here and, where it has constants of its own, one
function in `gguf_special.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from octavo.config.model_facts import NormKind
from octavo.weights.arrangement import GATE_UP, Arrangement

# Names of whole tensors without `.weight` or `.bias`.
MODEL_PARTS = {
    "token_embd": "model.embed_tokens",
    "position_embd": "model.embed_positions",
    "token_types": "model.embed_segments",
    "token_embd_norm": "model.embed_norm",
    "output_norm": "model.norm",
    "output": "lm_head",
}
# Names behind `blk.N.`, which becomes `model.layers.N.`.
LLAMA_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
    "exp_probs_b": "mlp.gate.correction",
    "ffn_gate_exps": "mlp.experts.gate_proj",
    "ffn_up_exps": "mlp.experts.up_proj",
    "ffn_gate_up_exps": "mlp.experts.gate_up_proj",
    "ffn_down_exps": "mlp.experts.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "attn_sinks": "self_attn.sinks",
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "attn_k_b": "self_attn.k_b_proj",
    "attn_v_b": "self_attn.v_b_proj",
}
POST_NORM_PARTS = LLAMA_PARTS | {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
SANDWICH_PARTS = POST_NORM_PARTS | {"ffn_norm": "pre_feedforward_layernorm"}
SUM_NORM_PARTS = LLAMA_PARTS | {
    "attn_output_norm": "post_attention_layernorm",
    "layer_output_norm": "post_feedforward_layernorm",
}
GPT_OSS_PARTS = LLAMA_PARTS | {"post_attention_norm": "post_attention_layernorm"}
GLM4_MOE_PARTS = GPT_OSS_PARTS
FUSED_GATE = {"ffn_up": GATE_UP}
SECOND_NORM = "blk.0.attn_norm_2.weight"
FALCON_NORMS = {"attn_norm_2": "input_layernorm", "attn_norm": "post_attention_layernorm"}


class GgufArchitecture(msgspec.Struct, frozen=True):
    """How llama.cpp stores one architecture."""

    hf_name: str  # what config.json would call it
    layer_parts: Mapping[str, str] = msgspec.field(default_factory=lambda: LLAMA_PARTS)
    # Instead of those, in a file that has `attn_norm_2`: attention and MLP have a norm each.
    two_norms: Mapping[str, str] = msgspec.field(default_factory=dict)
    # Rows of q and k are in llama.cpp's rotary order, because its converter puts them there; other
    # than in `arrangement`, where they were trained like that.
    has_interleaved_heads: bool = False
    has_experts: bool = False  # some of its files do
    norm: NormKind = "rms"
    arrangement: Arrangement = msgspec.field(default_factory=Arrangement)


_PAIRS = Arrangement(rotary_pairs=True)
ARCHITECTURES = {
    "arcee": GgufArchitecture("ArceeForCausalLM", has_interleaved_heads=True),
    "bloom": GgufArchitecture("BloomForCausalLM", norm="layer"),
    "bert": GgufArchitecture("BertModel", SUM_NORM_PARTS, norm="layer"),
    "chatglm": GgufArchitecture("GlmForCausalLM", LLAMA_PARTS | FUSED_GATE, arrangement=_PAIRS),
    "cohere2": GgufArchitecture("Cohere2ForCausalLM", norm="layer", arrangement=_PAIRS),
    "command-r": GgufArchitecture("CohereForCausalLM", norm="layer", arrangement=_PAIRS),
    "deepseek2": GgufArchitecture("DeepseekV2ForCausalLM", has_experts=True),
    "ernie4_5": GgufArchitecture("Ernie4_5ForCausalLM", arrangement=_PAIRS),
    "falcon": GgufArchitecture("FalconForCausalLM", norm="layer", two_norms=FALCON_NORMS),
    "gemma": GgufArchitecture("GemmaForCausalLM"),
    "gemma2": GgufArchitecture("Gemma2ForCausalLM", SANDWICH_PARTS),
    "gemma3": GgufArchitecture("Gemma3ForCausalLM", SANDWICH_PARTS),
    "gemma-embedding": GgufArchitecture("Gemma3ForCausalLM", SANDWICH_PARTS),
    "glm4": GgufArchitecture("Glm4ForCausalLM", SANDWICH_PARTS | FUSED_GATE, arrangement=_PAIRS),
    "gpt2": GgufArchitecture("GPT2LMHeadModel", norm="layer"),
    "gptneox": GgufArchitecture("GPTNeoXForCausalLM", norm="layer"),
    "glm4moe": GgufArchitecture("Glm4MoeForCausalLM", GLM4_MOE_PARTS, has_experts=True),
    "gpt-oss": GgufArchitecture("GptOssForCausalLM", GPT_OSS_PARTS, has_experts=True),
    "granite": GgufArchitecture("GraniteForCausalLM", has_interleaved_heads=True),
    "granitemoe": GgufArchitecture(
        "GraniteMoeForCausalLM", has_interleaved_heads=True, has_experts=True
    ),
    "llama": GgufArchitecture("LlamaForCausalLM", has_interleaved_heads=True, has_experts=True),
    "llama4": GgufArchitecture("Llama4ForCausalLM", has_experts=True, arrangement=_PAIRS),
    "modern-bert": GgufArchitecture("ModernBertModel", LLAMA_PARTS | FUSED_GATE, norm="layer"),
    "mpt": GgufArchitecture("MptForCausalLM", norm="layer"),
    "nemotron": GgufArchitecture("NemotronForCausalLM", norm="layer"),
    "olmo": GgufArchitecture(
        "OlmoForCausalLM", has_interleaved_heads=True, norm="layer_without_weight"
    ),
    "olmo2": GgufArchitecture("Olmo2ForCausalLM", POST_NORM_PARTS),
    "olmoe": GgufArchitecture("OlmoeForCausalLM", has_experts=True),
    "phi2": GgufArchitecture("PhiForCausalLM", norm="layer"),
    "phi3": GgufArchitecture("Phi3ForCausalLM", LLAMA_PARTS | FUSED_GATE),
    "phimoe": GgufArchitecture("PhimoeForCausalLM", has_experts=True),
    "qwen2": GgufArchitecture("Qwen2ForCausalLM"),
    "qwen2moe": GgufArchitecture("Qwen2MoeForCausalLM", has_experts=True),
    "qwen3": GgufArchitecture("Qwen3ForCausalLM"),
    "qwen3moe": GgufArchitecture("Qwen3MoeForCausalLM", has_experts=True),
    "seed_oss": GgufArchitecture("SeedOssForCausalLM", POST_NORM_PARTS),
    "smollm3": GgufArchitecture("SmolLM3ForCausalLM", has_interleaved_heads=True),
    "stablelm": GgufArchitecture("StableLmForCausalLM", norm="layer"),
    "starcoder": GgufArchitecture("GPTBigCodeForCausalLM", norm="layer"),
    "starcoder2": GgufArchitecture("Starcoder2ForCausalLM", norm="layer"),
}


def as_stored(architecture: GgufArchitecture, names: Collection[str]) -> GgufArchitecture:
    """The architecture with the parts of a file that has tensors of these names."""
    if architecture.two_norms and SECOND_NORM in names:
        parts = {**architecture.layer_parts, **architecture.two_norms}
        return msgspec.structs.replace(architecture, layer_parts=parts)
    return architecture


def hf_tensor_name(name: str, architecture: GgufArchitecture) -> str:
    """`blk.3.attn_q.weight` -> `model.layers.3.self_attn.q_proj.weight`.

    A name that is not in the tables stays as it is: the loader lists what nobody asked for.
    """
    stem, _, ending = name.rpartition(".")
    if ending not in ("weight", "bias"):
        return name
    if stem in MODEL_PARTS:
        return f"{MODEL_PARTS[stem]}.{ending}"
    block, _, rest = stem.partition(".")
    layer, _, part = rest.partition(".")
    if block != "blk" or not layer.isdecimal() or part not in architecture.layer_parts:
        return name
    return f"model.layers.{int(layer)}.{architecture.layer_parts[part]}.{ending}"


def interleaved_heads(
    name: str, architecture: GgufArchitecture, num_heads: int, num_kv_heads: int
) -> int:
    """Heads of a tensor whose rows are in llama.cpp's rotary order, 0 for any other tensor.

    `name` is the file's; biases are permuted like weights.
    """
    if not architecture.has_interleaved_heads:
        return 0
    part = name.rpartition(".")[0].rpartition(".")[2]
    return {"attn_q": num_heads, "attn_k": num_kv_heads}.get(part, 0)
