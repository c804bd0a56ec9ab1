"""A tiny random Llama as a checkpoint in memory: enough to drive a runner, quick to make."""

from __future__ import annotations

import random
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo.config.model_facts import ModelFacts, RopeFacts
from octavo.text.tokenizer import Tokenizer
from octavo.weights.checkpoint import TensorView, WeightType

VOCAB_SIZE = 70


def tiny_facts(**changes: Any) -> ModelFacts:
    """Two layers, two KV heads for four query heads, widths that no register divides."""
    sizes: dict[str, Any] = {
        "architecture": "LlamaForCausalLM",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 36,
        "intermediate_size": 44,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 12,
        "max_position": 256,
        "norm_eps": 1e-5,
        "hidden_act": "silu",
        "rope": RopeFacts(rotary_dim=12),
        "attention_scale": 12**-0.5,
    }
    return ModelFacts(**{**sizes, **changes})


@dataclass
class RandomCheckpoint:
    """A `Checkpoint` whose tensors are made from a seed. Tests may change `tensors`."""

    facts: ModelFacts = field(default_factory=tiny_facts)
    seed: int = 1
    name: str = "random"
    where: str = "random numbers"
    chat_template: str | None = None
    quantisation: str | None = None
    tensors: Mapping[str, TensorView] = field(default_factory=dict)  # made where none are given

    def __post_init__(self) -> None:
        if self.tensors:
            return
        source = random.Random(self.seed)
        self.tensors = {
            name: random_tensor(name, shape, source) for name, shape in _shapes(self.facts).items()
        }

    def load_tokenizer(self) -> Tokenizer:
        raise NotImplementedError


def random_tensor(name: str, shape: tuple[int, ...], source: random.Random) -> TensorView:
    """float32 numbers with the spread that keeps activations near one."""
    count = shape[0] * (shape[1] if len(shape) > 1 else 1)
    if len(shape) == 1:
        values = [1.0 + 0.2 * source.gauss(0, 1) for _ in range(count)]
    else:
        values = [1.5 * source.gauss(0, 1) / shape[-1] ** 0.5 for _ in range(count)]
    return tensor_of(name, shape, values)


def tensor_of(name: str, shape: tuple[int, ...], values: list[float]) -> TensorView:
    """A float32 tensor of these numbers."""
    return TensorView(name, WeightType.F32, shape, memoryview(array("f", values)).cast("B"))


def _shapes(facts: ModelFacts) -> dict[str, tuple[int, ...]]:
    hidden, inner = facts.hidden_size, facts.intermediate_size
    q_width, kv_width = facts.num_heads * facts.head_dim, facts.num_kv_heads * facts.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (facts.vocab_size, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (facts.vocab_size, hidden),
    }
    for layer in range(facts.num_layers):
        name = f"model.layers.{layer}"
        shapes |= {
            f"{name}.input_layernorm.weight": (hidden,),
            f"{name}.post_attention_layernorm.weight": (hidden,),
            f"{name}.self_attn.q_proj.weight": (q_width, hidden),
            f"{name}.self_attn.k_proj.weight": (kv_width, hidden),
            f"{name}.self_attn.v_proj.weight": (kv_width, hidden),
            f"{name}.self_attn.o_proj.weight": (hidden, q_width),
            f"{name}.mlp.gate_proj.weight": (inner, hidden),
            f"{name}.mlp.up_proj.weight": (inner, hidden),
            f"{name}.mlp.down_proj.weight": (hidden, inner),
        }
    return shapes
