"""Snapshot: what the pool looks like, for people and for meters.

Owns: the record behind `/debug/kv`, the count of slots that hold nothing yet.
Does not know: HTTP, time.
Used by: kvcache.manager.

An allocated slot is live when it holds the entry of a computed token. The rest is waste: the end of
each request's last block, and blocks reserved for the part of a prompt that is not computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from octavo.contracts.kv_plan import KVGroup
from octavo.kvcache.block_pool import BlockPool
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.host_slots import HostSlots
from octavo.kvcache.prefix_index import PrefixIndex

_HASH_CHARACTERS = 12  # enough to tell blocks apart by eye


class Occupancy(NamedTuple):
    """Slots of the pool, over all groups. A block counts once, however many share it."""

    num_allocated: int
    num_live: int


def measure_occupancy(
    num_used_blocks: int,
    groups: Sequence[KVGroup],
    block_size: int,
    holdings: Iterable[tuple[BlockTable, int]],
) -> Occupancy:
    """Allocated and live slots; `holdings` are all open tables, each with its computed tokens.

    Costs a few operations for each table, not for each block: all blocks that are not the end of a
    table are full, and those of a state from the first token on.
    """
    num_filled: dict[int, int] = {}  # of the blocks that may not be full
    for table, num_computed in holdings:
        place = num_computed // block_size
        for kind, ids in zip(groups, table.block_ids, strict=True):
            is_full = kind.num_state_blocks and num_computed
            for idx in range(len(ids) if is_full else place, len(ids)):
                if ids[idx] < 0:
                    continue
                here = num_computed % block_size if idx == place else 0
                num_filled[ids[idx]] = max(here, num_filled.get(ids[idx], 0))
    num_full = num_used_blocks - len(num_filled)
    num_live = num_full * block_size + sum(num_filled.values())
    return Occupancy(num_used_blocks * block_size, num_live)


class TableView(msgspec.Struct, frozen=True, kw_only=True):
    """One request in a snapshot."""

    num_computed_tokens: int
    block_ids: list[list[int]]  # for each group; -1 where a window has passed
    host_slots: list[list[int]]  # while swapped out
    is_forked: bool


class KVSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The pool between two steps."""

    num_blocks: int
    block_size: int  # tokens
    windows: list[int]  # for each group, in tokens; 0: none
    state_blocks: list[int]  # for each group, of a request; 0: keys and values
    num_used_blocks: int  # held by a request or a move
    num_cached_blocks: int  # held by nobody, findable
    num_blank_blocks: int  # held by nobody, not findable
    num_host_slots: int
    num_used_host_slots: int
    num_allocated_slots: int
    num_live_slots: int  # with the entry of a computed token
    tables: dict[str, TableView]  # by request
    shared_blocks: dict[int, int]  # block id -> holders, where there are several
    findable_blocks: dict[int, str]  # block id -> beginning of its hash, in hex; "partial": no hash


def take_snapshot(
    pool: BlockPool,
    index: PrefixIndex,
    slots: HostSlots,
    groups: Sequence[KVGroup],
    block_size: int,
    holdings: Mapping[str, tuple[BlockTable, int]],
) -> KVSnapshot:
    """Describe the pool. `holdings`: the open table of each request and its computed tokens."""
    used = measure_occupancy(pool.num_used, groups, block_size, holdings.values())
    return KVSnapshot(
        num_blocks=pool.num_blocks,
        block_size=block_size,
        windows=[group.window for group in groups],
        state_blocks=[group.num_state_blocks for group in groups],
        num_used_blocks=pool.num_used,
        num_cached_blocks=pool.num_cached,
        num_blank_blocks=pool.num_free - pool.num_cached,
        num_host_slots=slots.num_slots,
        num_used_host_slots=slots.num_used,
        num_allocated_slots=used.num_allocated,
        num_live_slots=used.num_live,
        tables={
            name: TableView(
                num_computed_tokens=num_computed,
                block_ids=[list(ids) for ids in table.block_ids],
                host_slots=[list(held) for held in table.slots],
                is_forked=table.is_forked,
            )
            for name, (table, num_computed) in holdings.items()
        },
        shared_blocks={
            block_id: pool.ref_count(block_id)
            for block_id in range(pool.num_blocks)
            if pool.ref_count(block_id) > 1
        },
        findable_blocks={
            block_id: content.block_hash.hex()[:_HASH_CHARACTERS]
            if content.block_hash
            else "partial"
            for block_id, content in index
        },
    )
