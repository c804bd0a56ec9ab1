"""A subscriber to KV events, as a router has one: its records are those that vLLM documents.

They are declared apart from ours on purpose, without defaults where vLLM's have none, so that
another layout on the wire is an error here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import msgspec
import zmq

PATIENCE_MS = 60_000
END = (1 << 64) - 1


class Event(msgspec.Struct, array_like=True, tag=True, forbid_unknown_fields=True):
    pass


class BlockStored(Event):
    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None
    group_idx: int | None


class BlockRemoved(Event):
    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: int | None


class AllBlocksCleared(Event):
    pass


AnyEvent = BlockStored | BlockRemoved | AllBlocksCleared


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[AnyEvent]
    data_parallel_rank: int


class Subscriber:
    """A SUB socket; a context manager."""

    def __init__(self, endpoint: str, topic: bytes = b"") -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.SUB)
        self.socket.set_hwm(0)
        self.socket.connect(endpoint)
        self.socket.subscribe(topic)
        self.topics: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)

    def hears_something(self) -> bool:
        """Whether a message is there, or comes at once."""
        return bool(self.socket.poll(10))

    def next(self) -> tuple[int, Batch]:
        """Number and content of the next batch."""
        assert self.socket.poll(PATIENCE_MS), "nothing came"
        topic, number, payload = self.socket.recv_multipart()
        self.topics.append(topic)
        assert len(number) == 8
        return int.from_bytes(number, "big"), msgspec.msgpack.decode(payload, type=Batch)


class Mirror:
    """What a router believes to be findable: pairs of group and hash."""

    def __init__(self) -> None:
        self.found: set[tuple[int, bytes | int]] = set()
        self._next_number = 0

    def follow(self, batches: Sequence[tuple[int, Batch]]) -> int:
        """Apply batches that come without a gap; how many they were."""
        for number, batch in batches:
            assert number == self._next_number
            self._next_number += 1
            for event in batch.events:
                self.apply(event)
        return len(batches)

    def apply(self, event: AnyEvent) -> None:
        """Follow one event. A block is never stored twice, nor removed when it is not there."""
        if isinstance(event, AllBlocksCleared):
            self.found.clear()
            return
        pairs = {(event.group_idx or 0, block_hash) for block_hash in event.block_hashes}
        assert len(pairs) == len(event.block_hashes)
        if isinstance(event, BlockRemoved):
            assert pairs <= self.found
            self.found -= pairs
            return
        assert not pairs & self.found
        assert len(event.token_ids) == event.block_size * len(event.block_hashes)
        self.found |= pairs
