"""Tensor names of Hugging Face's older and stranger architectures -> those that Llama has.

Owns the tables. Does not know what a tensor is for (`arrangement.py` takes fused ones apart).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from octavo.contracts.own_models import registered_class
from octavo.errors import ConfigError, CorruptFileError
from octavo.weights.arrangement import Arrangement
from octavo.weights.checkpoint import TensorView
from octavo.weights.expert_stacks import StackLayout

OUR_LAYERS = "model.layers"


@dataclass(frozen=True, slots=True)
class HfLayout:
    """Where the tensors of one architecture are. Names are without `.weight` or `.bias`."""

    prefixes: tuple[str, ...] = ()  # one of them stands before names, or none in older files
    layers: str = OUR_LAYERS
    model_parts: Mapping[str, str] = field(default_factory=dict)
    # Behind the layer's number; a star stands for the number of an expert.
    layer_parts: Mapping[str, str] = field(default_factory=dict)
    # Instead of those, in a model without experts.
    dense_parts: Mapping[str, str] = field(default_factory=dict)
    # The same of tensors that end neither in `.weight` nor in `.bias`; ours do.
    bare_parts: Mapping[str, str] = field(default_factory=dict)
    arrangement: Arrangement = field(default_factory=Arrangement)


_EXPERT = re.compile(r"\.(\d+)\.")
_FUSED_MLP = {
    "mlp.dense_h_to_4h": "mlp.up_proj",
    "mlp.dense_4h_to_h": "mlp.down_proj",
}
_GPT2_PARTS = {
    "ln_1": "input_layernorm",
    "attn.c_attn": "self_attn.qkv_proj",
    "attn.c_proj": "self_attn.o_proj",
    "ln_2": "post_attention_layernorm",
    "mlp.c_fc": "mlp.up_proj",
    "mlp.c_proj": "mlp.down_proj",
}
_GPT2 = HfLayout(
    prefixes=("transformer.",),
    layers="h",
    model_parts={
        "wte": "model.embed_tokens",
        "wpe": "model.embed_positions",
        "ln_f": "model.norm",
    },
    layer_parts=_GPT2_PARTS,
    arrangement=Arrangement(transposed=tuple(p for p in _GPT2_PARTS.values() if "proj" in p)),
)
# Endings of norms in files that were made of TensorFlow's.
_OLD_ENDINGS = {"gamma": "weight", "beta": "bias"}
_BERT = HfLayout(
    prefixes=("bert.", "roberta."),
    layers="encoder.layer",
    model_parts={
        "embeddings.word_embeddings": "model.embed_tokens",
        "embeddings.position_embeddings": "model.embed_positions",
        "embeddings.token_type_embeddings": "model.embed_segments",
        "embeddings.LayerNorm": "model.embed_norm",
        "pooler.dense": "pooler.dense",
    },
    layer_parts={
        "attention.self.query": "self_attn.q_proj",
        "attention.self.key": "self_attn.k_proj",
        "attention.self.value": "self_attn.v_proj",
        "attention.output.dense": "self_attn.o_proj",
        "attention.output.LayerNorm": "post_attention_layernorm",
        "intermediate.dense": "mlp.up_proj",
        "output.dense": "mlp.down_proj",
        "output.LayerNorm": "post_feedforward_layernorm",
    },
)
_MIXTRAL = HfLayout(
    layer_parts={
        "block_sparse_moe.gate": "mlp.gate",
        "block_sparse_moe.experts.*.w1": "mlp.experts.*.gate_proj",
        "block_sparse_moe.experts.*.w2": "mlp.experts.*.down_proj",
        "block_sparse_moe.experts.*.w3": "mlp.experts.*.up_proj",
    }
)
_LLAMA4 = HfLayout(
    layer_parts={
        "feed_forward.router": "mlp.gate",
        **{
            f"feed_forward.{kind}{part}": f"mlp.{kind}{part}"
            for kind in ("", "shared_expert.")
            for part in ("gate_proj", "up_proj", "down_proj")
        },
    },
    bare_parts={
        f"feed_forward.experts.{part}": f"mlp.experts.{part}.weight"
        for part in ("gate_up_proj", "down_proj")
    },
    arrangement=Arrangement(rotary_pairs=True, experts=StackLayout(transposed=True)),
)
_DEEPSEEK = HfLayout(
    layer_parts={
        f"mlp.shared_experts.{part}": f"mlp.shared_expert.{part}"
        for part in ("gate_proj", "up_proj", "down_proj")
    },
    bare_parts={"mlp.gate.e_score_correction_bias": "mlp.gate.correction.bias"},
)
_MLP_PARTS = ("gate_proj", "up_proj", "down_proj")


def _mixer_layout(mixer: str, **options: Any) -> HfLayout:
    """A layout whose layers carry a state in a part of this name."""
    parts = {
        "in_proj": "in_proj",
        "conv1d": "conv",
        "norm": "norm",
        "out_proj": "out_proj",
        "x_proj": "x_proj",
        "dt_proj": "step_proj",
        "dt_layernorm": "step_norm",
        "b_layernorm": "input_norm",
        "c_layernorm": "output_norm",
        "in_proj_qkvz": "qkvz_proj",
        "in_proj_ba": "ba_proj",
        "in_proj_qkv": "qkv_proj",
        "in_proj_z": "z_proj",
        "in_proj_b": "b_proj",
        "in_proj_a": "a_proj",
    }
    bare = {"A_log": "log_decay.weight", "D": "skip.weight", "dt_bias": "step.bias"}
    layer_parts = {f"{mixer}.{part}": f"mixer.{ours}" for part, ours in parts.items()}
    return HfLayout(
        layer_parts=layer_parts | options.pop("layer_parts", {}),
        bare_parts={f"{mixer}.{part}": f"mixer.{ours}" for part, ours in bare.items()}
        | options.pop("bare_parts", {}),
        **options,
    )


_BACKBONE = {"backbone.embeddings": "model.embed_tokens", "backbone.norm_f": "model.norm"}
_JAMBA = _mixer_layout(
    "mamba",
    model_parts={"model.final_layernorm": "model.norm"},
    layer_parts={
        "pre_ff_layernorm": "post_attention_layernorm",
        "feed_forward.router": "mlp.gate",
        **{f"feed_forward.{part}": f"mlp.{part}" for part in _MLP_PARTS},
        **{f"feed_forward.experts.*.{part}": f"mlp.experts.*.{part}" for part in _MLP_PARTS},
    },
)
_QWEN3_NEXT = _mixer_layout("linear_attn")
_PAIRS = HfLayout(arrangement=Arrangement(rotary_pairs=True))
_LAYOUTS = {
    "BambaForCausalLM": _JAMBA,
    "BertModel": _BERT,
    "BloomForCausalLM": HfLayout(
        prefixes=("transformer.",),
        layers="h",
        model_parts={
            "word_embeddings": "model.embed_tokens",
            "word_embeddings_layernorm": "model.embed_norm",
            "ln_f": "model.norm",
        },
        layer_parts={
            "input_layernorm": "input_layernorm",
            "post_attention_layernorm": "post_attention_layernorm",
            "self_attention.query_key_value": "self_attn.qkv_proj",
            "self_attention.dense": "self_attn.o_proj",
        }
        | _FUSED_MLP,
        arrangement=Arrangement(grouped_qkv=True),
    ),
    "Cohere2ForCausalLM": _PAIRS,
    "CohereForCausalLM": _PAIRS,
    "Ernie4_5ForCausalLM": _PAIRS,
    "DeepseekV2ForCausalLM": _DEEPSEEK,
    "DeepseekV3ForCausalLM": _DEEPSEEK,
    "FalconH1ForCausalLM": _JAMBA,
    "FalconForCausalLM": HfLayout(
        prefixes=("transformer.",),
        layers="h",
        model_parts={"word_embeddings": "model.embed_tokens", "ln_f": "model.norm"},
        layer_parts={
            "input_layernorm": "input_layernorm",
            "post_attention_layernorm": "post_attention_layernorm",
            "ln_attn": "input_layernorm",
            "ln_mlp": "post_attention_layernorm",
            "self_attention.query_key_value": "self_attn.qkv_proj",
            "self_attention.dense": "self_attn.o_proj",
        }
        | _FUSED_MLP,
        arrangement=Arrangement(grouped_qkv=True),
    ),
    "GPT2LMHeadModel": _GPT2,
    "GPTBigCodeForCausalLM": replace(_GPT2, arrangement=Arrangement(grouped_qkv=True)),
    "GPTNeoXForCausalLM": HfLayout(
        prefixes=("gpt_neox.",),
        layers="layers",
        model_parts={
            "embed_in": "model.embed_tokens",
            "final_layer_norm": "model.norm",
            "embed_out": "lm_head",
        },
        layer_parts={
            "input_layernorm": "input_layernorm",
            "post_attention_layernorm": "post_attention_layernorm",
            "attention.query_key_value": "self_attn.qkv_proj",
            "attention.dense": "self_attn.o_proj",
        }
        | _FUSED_MLP,
        arrangement=Arrangement(grouped_qkv=True),
    ),
    "Glm4ForCausalLM": replace(
        _PAIRS,
        layer_parts={
            "post_self_attn_layernorm": "post_attention_layernorm",
            "post_attention_layernorm": "pre_feedforward_layernorm",
            "post_mlp_layernorm": "post_feedforward_layernorm",
        },
    ),
    "Glm4MoeForCausalLM": _DEEPSEEK,
    "GlmForCausalLM": _PAIRS,
    "GptOssForCausalLM": HfLayout(
        layer_parts={"mlp.router": "mlp.gate"},
        bare_parts={
            "self_attn.sinks": "self_attn.sinks.weight",
            "mlp.experts.gate_up_proj": "mlp.experts.gate_up_proj.weight",
            "mlp.experts.gate_up_proj_bias": "mlp.experts.gate_up_proj.bias",
            "mlp.experts.down_proj": "mlp.experts.down_proj.weight",
            "mlp.experts.down_proj_bias": "mlp.experts.down_proj.bias",
        },
        arrangement=Arrangement(experts=StackLayout(transposed=True, alternating=True)),
    ),
    "GraniteMoeForCausalLM": HfLayout(
        layer_parts={
            "block_sparse_moe.router.layer": "mlp.gate",
            "block_sparse_moe.input_linear": "mlp.experts.gate_up_proj",
            "block_sparse_moe.output_linear": "mlp.experts.down_proj",
        }
    ),
    "GraniteMoeHybridForCausalLM": _mixer_layout(
        "mamba",
        layer_parts={
            "block_sparse_moe.router.layer": "mlp.gate",
            "block_sparse_moe.input_linear": "mlp.experts.gate_up_proj",
            "block_sparse_moe.output_linear": "mlp.experts.down_proj",
            "shared_mlp.input_linear": "mlp.shared_expert.gate_up_proj",
            "shared_mlp.output_linear": "mlp.shared_expert.down_proj",
        },
        dense_parts={
            "shared_mlp.input_linear": "mlp.gate_up_proj",
            "shared_mlp.output_linear": "mlp.down_proj",
        },
    ),
    "HeliumForCausalLM": _PAIRS,
    "JambaForCausalLM": _JAMBA,
    "Llama4ForCausalLM": _LLAMA4,
    "Llama4ForConditionalGeneration": _LLAMA4,
    "Mamba2ForCausalLM": _mixer_layout(
        "mixer",
        layers="backbone.layers",
        model_parts=_BACKBONE,
        layer_parts={"norm": "input_layernorm"},
    ),
    "MixtralForCausalLM": _MIXTRAL,
    "ModernBertModel": HfLayout(
        prefixes=("model.",),
        layers="layers",
        model_parts={
            "embeddings.tok_embeddings": "model.embed_tokens",
            "embeddings.norm": "model.embed_norm",
            "final_norm": "model.norm",
        },
        layer_parts={
            "attn_norm": "input_layernorm",
            "attn.Wqkv": "self_attn.qkv_proj",
            "attn.Wo": "self_attn.o_proj",
            "mlp_norm": "post_attention_layernorm",
            "mlp.Wi": "mlp.gate_up_proj",
            "mlp.Wo": "mlp.down_proj",
        },
    ),
    "MptForCausalLM": HfLayout(
        prefixes=("transformer.",),
        layers="blocks",
        model_parts={"wte": "model.embed_tokens", "norm_f": "model.norm"},
        layer_parts={
            "norm_1": "input_layernorm",
            "attn.Wqkv": "self_attn.qkv_proj",
            "attn.out_proj": "self_attn.o_proj",
            "norm_2": "post_attention_layernorm",
            "ffn.up_proj": "mlp.up_proj",
            "ffn.down_proj": "mlp.down_proj",
        },
    ),
    "NemotronHForCausalLM": _mixer_layout(
        "mixer",
        layers="backbone.layers",
        model_parts=_BACKBONE,
        layer_parts={
            "norm": "input_layernorm",
            **{f"mixer.{part}_proj": f"self_attn.{part}_proj" for part in "qkvo"},
            **{
                f"mixer.{stored}{part}": f"mlp.{ours}{part}"
                for stored, ours in (
                    ("", ""),
                    ("experts.*.", "experts.*."),
                    ("shared_experts.", "shared_expert."),
                )
                for part in ("up_proj", "down_proj")
            },
            "mixer.gate": "mlp.gate",
        },
        bare_parts={"mixer.gate.e_score_correction_bias": "mlp.gate.correction.bias"},
    ),
    "OPTForCausalLM": HfLayout(
        prefixes=("model.decoder.", "decoder."),
        layers="layers",
        model_parts={
            "embed_tokens": "model.embed_tokens",
            "embed_positions": "model.embed_positions",
            "final_layer_norm": "model.norm",
        },
        layer_parts={
            "self_attn_layer_norm": "input_layernorm",
            "self_attn.q_proj": "self_attn.q_proj",
            "self_attn.k_proj": "self_attn.k_proj",
            "self_attn.v_proj": "self_attn.v_proj",
            "self_attn.out_proj": "self_attn.o_proj",
            "final_layer_norm": "post_attention_layernorm",
            "fc1": "mlp.up_proj",
            "fc2": "mlp.down_proj",
        },
        arrangement=Arrangement(skipped_positions=2),
    ),
    "PhiForCausalLM": HfLayout(
        model_parts={"model.final_layernorm": "model.norm"},
        layer_parts={
            "self_attn.dense": "self_attn.o_proj",
            "mlp.fc1": "mlp.up_proj",
            "mlp.fc2": "mlp.down_proj",
        },
    ),
    "PhimoeForCausalLM": _MIXTRAL,
    "Qwen3NextForCausalLM": _QWEN3_NEXT,
    "Qwen3_5ForCausalLM": _QWEN3_NEXT,
    "Qwen3_5ForConditionalGeneration": _QWEN3_NEXT,
    "Qwen3_5MoeForCausalLM": _QWEN3_NEXT,
    "Qwen3_5MoeForConditionalGeneration": _QWEN3_NEXT,
    "Starcoder2ForCausalLM": HfLayout(
        layer_parts={"mlp.c_fc": "mlp.up_proj", "mlp.c_proj": "mlp.down_proj"}
    ),
    "XLMRobertaModel": replace(_BERT, arrangement=Arrangement(skipped_positions=2)),
}


def layout_of(architecture: str, *, has_experts: bool = True) -> HfLayout:
    """The layout of an architecture: Llama's unless the table, or a registered class, has another.

    Raises ConfigError for a registered class whose `layout` is none.
    """
    registered = registered_class(architecture)
    layout = getattr(registered, "layout", _LAYOUTS.get(architecture, HfLayout()))
    if not isinstance(layout, HfLayout):
        raise ConfigError(
            f"the model {architecture}: layout must be an HfLayout of octavo.weights.hf_names, got "
            f"{layout!r}"
        )
    if has_experts or not layout.dense_parts:
        return layout
    return replace(layout, layer_parts={**layout.layer_parts, **layout.dense_parts})


def renamed(tensors: Mapping[str, TensorView], layout: HfLayout) -> dict[str, TensorView]:
    """Tensors by our names. One that is not in the tables keeps its own.

    Raises CorruptFileError when two tensors would have one name.
    """
    result: dict[str, TensorView] = {}
    is_bare = not layout.layer_parts and not any(name.startswith("model.") for name in tensors)
    for name, view in tensors.items():
        is_part = is_bare and name.startswith(("layers.", "embed_tokens.", "norm."))
        ours = f"model.{name}" if is_part else _our_name(name, layout)
        if ours in result:
            raise CorruptFileError(f"{name} and another tensor would both be {ours}")
        result[ours] = view if ours == name else replace(view, name=ours)
    return result


def _our_name(name: str, layout: HfLayout) -> str:
    stem, _, ending = name.rpartition(".")
    ending = _OLD_ENDINGS.get(ending, ending)
    if ending not in ("weight", "bias"):
        number, _, part = name.removeprefix(f"{layout.layers}.").partition(".")
        if not name.startswith(f"{layout.layers}.") or part not in layout.bare_parts:
            return name
        return f"{OUR_LAYERS}.{number}.{layout.bare_parts[part]}"
    prefix = next((prefix for prefix in layout.prefixes if stem.startswith(prefix)), "")
    stem = stem.removeprefix(prefix)
    if stem in layout.model_parts:
        return f"{layout.model_parts[stem]}.{ending}"
    number, _, part = stem.removeprefix(f"{layout.layers}.").partition(".")
    expert = _EXPERT.search(part)
    if expert is not None:
        part = _EXPERT.sub(".*.", part)
    if not stem.startswith(f"{layout.layers}.") or part not in layout.layer_parts:
        return name
    ours = layout.layer_parts[part].replace("*", expert[1] if expert is not None else "")
    return f"{OUR_LAYERS}.{number}.{ours}.{ending}"
