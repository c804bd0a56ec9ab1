"""GPT-NeoX (Black et al. 2022) and Pythia: attention and MLP side by side on the layer's input.

Two norms, or one for both where the facts say so (Phi, Cohere, Falcon). Checkpoints without the
parallel residual are wired like Llama.
"""

from __future__ import annotations

from typing import TypeVar

from octavo.config.model_facts import ModelFacts
from octavo.models.decoder import Decoder, Layer
from octavo.models.layers import Attention, Norm
from octavo.models.llama import PreNormLayer
from octavo.models.moe import feed_forward
from octavo.ops.ops import Ops
from octavo.ops.rope import RopeTable
from octavo.ops.weights import Weights

T = TypeVar("T")


class ParallelLayer:
    """`x + attention(norm(x)) + mlp(norm(x))`."""

    def __init__(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> None:
        name = f"model.layers.{index}"
        self._attention_norm = Norm(facts, weights, f"{name}.input_layernorm")
        self._attention = Attention(facts, weights, index, f"{name}.self_attn", rope)
        self._mlp_norm = (
            None if facts.shared_norm else Norm(facts, weights, f"{name}.post_attention_layernorm")
        )
        self._mlp = feed_forward(facts, weights, index)

    def __call__(self, ops: Ops[T], x: T) -> T:
        """x: [rows, hidden_size], result alike."""
        normed = self._attention_norm(ops, x)
        for_mlp = normed if self._mlp_norm is None else self._mlp_norm(ops, x)
        changes = ops.add(self._attention(ops, normed), self._mlp(ops, for_mlp))
        return ops.add(x, changes)


class GptNeoX(Decoder):
    """GPTNeoXForCausalLM, and others that may run attention and MLP side by side."""

    def make_layer(
        self, facts: ModelFacts, weights: Weights, index: int, rope: RopeTable | None
    ) -> Layer:
        """See `Decoder`."""
        kind = ParallelLayer if facts.parallel_residual else PreNormLayer
        return kind(facts, weights, index, rope)
