"""Parameters of mixtures of experts, from the keys of their config.json.

Owns what each of these architectures calls its keys and which of its layers have experts. Other
models are counted by asking their model file (`counting_weights.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from octavo.sizing.model_shape import KvEntry, Parameters
from octavo.weights.fields import Fields


@dataclass(frozen=True, slots=True)
class ExpertFamily:
    """One architecture. Keys are those of its config.json."""

    num_experts: str
    expert_size: str  # width of one expert
    shared_size: Callable[[Fields], int] = lambda keys: 0  # width of what every token passes
    is_sparse: Callable[[Fields, int], bool] = lambda keys, layer: True
    attention_bias: bool | None = False  # of q, k and v; None: the file says it
    output_bias: bool = False  # where q, k and v have one, so has the output
    qk_norm: Callable[[Fields], bool] = lambda keys: False
    norm_spans_heads: bool = False
    shared_gate: bool = False  # the shared expert has a gate of its own
    sinks: bool = False  # a logit of each head that takes weight from all keys
    expert_bias: bool = False  # biases of the experts and the router


def _sparse_step(keys: Fields, layer: int) -> bool:
    step = keys.integer("decoder_sparse_step", 1, at_least=1)
    return layer not in keys.items("mlp_only_layers") and (layer + 1) % step == 0


def _after_dense_layers(keys: Fields, layer: int) -> bool:
    frequency = keys.integer("moe_layer_freq", 1, at_least=1)
    return layer >= keys.integer("first_k_dense_replace", 0) and layer % frequency == 0


def _shared_experts(keys: Fields) -> int:
    return keys.integer("n_shared_experts", 0) * keys.integer("moe_intermediate_size")


_DEEPSEEK = ExpertFamily(
    "n_routed_experts",
    "moe_intermediate_size",
    shared_size=_shared_experts,
    is_sparse=_after_dense_layers,
)
EXPERT_FAMILIES: Mapping[str, ExpertFamily] = MappingProxyType(
    {
        "DeepseekV2ForCausalLM": _DEEPSEEK,
        "DeepseekV3ForCausalLM": _DEEPSEEK,
        "Glm4MoeForCausalLM": ExpertFamily(
            "n_routed_experts",
            "moe_intermediate_size",
            shared_size=_shared_experts,
            is_sparse=_after_dense_layers,
            attention_bias=None,
            qk_norm=lambda keys: keys.flag("use_qk_norm", False),
        ),
        "GptOssForCausalLM": ExpertFamily(
            "num_local_experts",
            "intermediate_size",
            attention_bias=True,
            output_bias=True,
            sinks=True,
            expert_bias=True,
        ),
        "MixtralForCausalLM": ExpertFamily("num_local_experts", "intermediate_size"),
        "OlmoeForCausalLM": ExpertFamily(
            "num_experts",
            "intermediate_size",
            qk_norm=lambda keys: True,
            norm_spans_heads=True,
        ),
        "Qwen2MoeForCausalLM": ExpertFamily(
            "num_experts",
            "moe_intermediate_size",
            shared_size=lambda keys: keys.integer("shared_expert_intermediate_size", 0),
            is_sparse=_sparse_step,
            attention_bias=True,
            shared_gate=True,
        ),
        "Qwen3MoeForCausalLM": ExpertFamily(
            "num_experts",
            "moe_intermediate_size",
            is_sparse=_sparse_step,
            attention_bias=None,
            output_bias=True,
            qk_norm=lambda keys: True,
        ),
    }
)


def expert_parameters(keys: Fields, architecture: str) -> Parameters:
    """All parameters of a mixture of experts. Raises CorruptFileError that names a key."""
    family = EXPERT_FAMILIES[architecture]
    hidden = keys.integer("hidden_size", at_least=1)
    table = keys.integer("vocab_size", at_least=1) * hidden
    num_layers = keys.integer("num_hidden_layers", at_least=1)
    attention, vectors = (
        _latent_attention(keys) if "kv_lora_rank" in keys else _grouped_attention(keys, family)
    )
    num_experts = keys.integer(family.num_experts, at_least=1)
    size, shared = keys.integer(family.expert_size, at_least=1), family.shared_size(keys)
    num_sparse = sum(family.is_sparse(keys, layer) for layer in range(num_layers))
    experts = num_sparse * num_experts * 3 * hidden * size
    mlp = num_sparse * (3 * shared + family.shared_gate) * hidden
    router = num_sparse * num_experts * hidden
    if num_sparse < num_layers:
        dense = keys.integer("intermediate_size", at_least=1)
        mlp += (num_layers - num_sparse) * 3 * hidden * dense
    biases = num_sparse * num_experts * (2 * size + hidden + 1) if family.expert_bias else 0
    return Parameters(
        embedding=table,
        head=0 if keys.flag("tie_word_embeddings", False) else table,
        attention=num_layers * attention,
        mlp=mlp,
        experts=experts,
        router=router,
        vectors=num_layers * (vectors + 2 * hidden) + hidden + biases,
    )


def kv_entry(keys: Fields) -> KvEntry:
    """What a layer keeps for a token."""
    if "kv_lora_rank" in keys:
        rank = keys.integer("kv_lora_rank", at_least=1)
        return KvEntry(1, rank + keys.integer("qk_rope_head_dim", at_least=1), is_latent=True)
    _, num_kv_heads, head_dim = _heads(keys)
    return KvEntry(num_kv_heads, head_dim)


def mlp_width(keys: Fields, architecture: str) -> int:
    """Numbers between the two products of the widest MLP that one token passes."""
    family = EXPERT_FAMILIES[architecture]
    chosen = keys.integer("num_experts_per_tok", 1, at_least=1) * keys.integer(family.expert_size)
    return max(chosen + family.shared_size(keys), keys.integer("intermediate_size", 0))


def _heads(keys: Fields) -> tuple[int, int, int]:
    """Query heads, KV heads, numbers of one."""
    num_heads = keys.integer("num_attention_heads", at_least=1)
    num_kv_heads = keys.integer("num_key_value_heads", num_heads, at_least=1)
    head_dim = keys.integer("hidden_size", at_least=1) // num_heads
    return num_heads, num_kv_heads, keys.integer("head_dim", max(1, head_dim), at_least=1)


def _grouped_attention(keys: Fields, family: ExpertFamily) -> tuple[int, int]:
    """Numbers in matrices and in vectors of one layer (Ainslie et al. 2023)."""
    num_heads, num_kv_heads, head_dim = _heads(keys)
    hidden = keys.integer("hidden_size")
    queries, sides = num_heads * head_dim, num_kv_heads * head_dim
    vectors = 0
    has_bias = family.attention_bias
    if keys.flag("attention_bias", False) if has_bias is None else has_bias:
        vectors += queries + 2 * sides + (hidden if family.output_bias else 0)
    if family.sinks:
        vectors += num_heads
    if family.qk_norm(keys):
        vectors += queries + sides if family.norm_spans_heads else 2 * head_dim
    return hidden * (2 * queries + 2 * sides), vectors


def _latent_attention(keys: Fields) -> tuple[int, int]:
    """The same for keys and values that come from one small vector (DeepSeek-AI 2024)."""
    hidden, num_heads = keys.integer("hidden_size", at_least=1), keys.integer("num_attention_heads")
    rank, rope = keys.integer("kv_lora_rank", at_least=1), keys.integer("qk_rope_head_dim")
    plain, value = keys.integer("qk_nope_head_dim"), keys.integer("v_head_dim")
    query_rank = keys.optional_integer("q_lora_rank")
    matrices = hidden * (rank + rope) + rank * num_heads * (plain + value)
    matrices += num_heads * value * hidden
    queries = num_heads * (plain + rope)
    if query_rank is None:
        return matrices + hidden * queries, rank
    return matrices + query_rank * (hidden + queries), rank + query_rank
