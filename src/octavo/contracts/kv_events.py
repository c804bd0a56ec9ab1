"""What changed in the prefix cache, for routers that mirror it: vLLM's KV events, in its layout.

The wire form is msgpack of `KVEventBatch`, an array; events are arrays tagged with their class
name. Source: vLLM's documented KV-event stream (`--kv-events-config`).
"""

from __future__ import annotations

import msgspec

from octavo.contracts.block_hash import BlockHash


class KVEvent(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, tag=True):
    """Any event."""


class BlockStored(KVEvent):
    """Blocks became findable; they follow one another in one chain."""

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None  # None: the first of them begins a prompt
    token_ids: list[int]  # of all these blocks, in order
    block_size: int
    lora_id: int | None = None
    medium: str | None = None  # "CPU" or "DISK" for lower tiers, None for the pool itself
    lora_name: str | None = None
    extra_keys: list[tuple[str, ...] | None] | None = None  # for each block
    group_idx: int | None = None


class BlockRemoved(KVEvent):
    """Blocks cannot be found any more."""

    block_hashes: list[BlockHash]
    medium: str | None = None
    group_idx: int | None = None


class AllBlocksCleared(KVEvent):
    """The cache was reset."""


class KVEventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    """The events of one step."""

    ts: float  # seconds since 1970
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None
