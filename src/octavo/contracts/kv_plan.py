"""How KV memory is divided. Exists only after the model's shape is known."""

from __future__ import annotations

import msgspec


class KVPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The pool of one engine. Block ids run from 0 to `num_blocks - 1`."""

    num_blocks: int
    block_size: int  # tokens in a block
    bytes_per_block: int  # over all layers

    @property
    def num_tokens(self) -> int:
        """Tokens that fit in the pool."""
        return self.num_blocks * self.block_size


class MemoryNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a model takes besides the KV pool. All sizes in bytes."""

    weights_bytes: int
    workspace_bytes: int  # activations, logits, scratch at the largest step
    bytes_per_block: int  # one KV block over all layers


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The sum that the start banner prints. All sizes in bytes."""

    limit_bytes: int  # what this machine or container lets us have
    usable_bytes: int  # limit times --gpu-memory-utilization
    weights_bytes: int
    workspace_bytes: int  # activations, logits, scratch
    kv: KVPlan
    max_model_len: int

    @property
    def max_concurrency(self) -> float:
        """Requests of full context length that fit in the pool at once."""
        return self.kv.num_tokens / self.max_model_len
