"""ModelShape: how many parameters of which kind a model has, and what it keeps for each token.

Owns the counts and how many bytes the kinds take in the types that weights come in. Does not know
files (`config_shape.py`, `gguf_shape.py`) or devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from octavo.ops.kv_types import KvType


@dataclass(frozen=True, slots=True)
class KvEntry:
    """What one attention layer keeps for one token."""

    num_heads: int  # keys (and values) of so many heads
    head_dim: int
    is_latent: bool = False  # keys are vectors that all heads share (multi-head latent attention)

    def num_bytes(self, type: KvType, tensor_parallel_size: int = 1) -> int:
        """Bytes on each of so many devices; heads that are fewer than devices are kept by several.

        A latent vector serves all heads, so every device keeps it.
        """
        heads = self.num_heads if self.is_latent else -(-self.num_heads // tensor_parallel_size)
        return 2 * heads * type.row_bytes(self.head_dim)


@dataclass(frozen=True, slots=True)
class Parameters:
    """How many numbers there are of each kind."""

    embedding: int = 0  # token, position and segment tables
    head: int = 0  # the output matrix; 0 where it is the embedding
    attention: int = 0  # and what layers have instead that carry a state
    mlp: int = 0  # dense layers and shared experts
    experts: int = 0
    router: int = 0
    vectors: int = 0  # norms and biases

    @property
    def total(self) -> int:
        """All of them."""
        layers = self.attention + self.mlp + self.experts + self.router
        return self.embedding + self.head + layers + self.vectors


@dataclass(frozen=True, slots=True)
class Storage:
    """How a checkpoint stores its weights."""

    name: str  # "bfloat16", "fp8", "gptq 4 bit"
    vector_bits: float  # of norms, biases and routers
    table_bits: float  # of the embedding and the output matrix
    matrix_bits: float  # of attention and MLP matrices, their scales included
    expert_bits: float


@dataclass(frozen=True, slots=True)
class ModelShape:
    """One model."""

    name: str
    architecture: str
    parameters: Parameters
    weight_bytes: int
    storage: str  # in words
    num_heads: int  # query heads, which tensor parallelism divides
    hidden_size: int
    intermediate_size: int  # of the widest MLP that a token passes
    vocab_size: int
    max_position: int
    entries: tuple[KvEntry, ...]  # of each attention layer; without states an encoder has none
    windows: tuple[int, ...]  # of each attention layer, in tokens; 0: none
    state_bytes: int  # that a request keeps however long it is, over all layers with a state
    is_served: bool  # whether Octavo computes this architecture, in this storage

    @property
    def keeps_nothing(self) -> bool:
        """Whether it is an encoder: nothing outlasts a step."""
        return not (self.entries or self.state_bytes)

    def state_bytes_per_device(self, tensor_parallel_size: int) -> int:
        """Of a request on each of so many devices, which share the heads."""
        return -(-self.state_bytes // tensor_parallel_size)

    def kv_bytes_per_token(self, type: KvType, tensor_parallel_size: int = 1) -> int:
        """Bytes of a token that every layer still sees, on each device."""
        return sum(entry.num_bytes(type, tensor_parallel_size) for entry in self.entries)


FLOAT_BYTES: Mapping[str, int] = MappingProxyType({"float32": 4, "float16": 2, "bfloat16": 2})


def weight_bytes(parameters: Parameters, storage: Storage) -> int:
    """Bytes of all parameters."""
    bits = (parameters.vectors + parameters.router) * storage.vector_bits
    bits += (parameters.embedding + parameters.head) * storage.table_bits
    bits += (parameters.attention + parameters.mlp) * storage.matrix_bits
    bits += parameters.experts * storage.expert_bits
    return round(bits / 8)
