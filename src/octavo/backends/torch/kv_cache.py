"""TorchKvCache: keys, values and states of all layers in blocks, and host slots, as plain tensors.

Owns the memory and the way from a token's place to its slot. Does not know requests or models.
Block `b` of a sequence holds its tokens `b * block_size` to `(b + 1) * block_size - 1`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from octavo.backends.torch.kv_codec import decode, encode
from octavo.backends.torch.states import TorchStates
from octavo.config.model_facts import StateFacts
from octavo.ops.batch import BatchRow
from octavo.ops.kv_types import KvType


class TorchKvCache:
    """Blocks of bytes. One of an attention group is, for each of its layers,
    [keys and values, block_size, num_kv_heads, row bytes].

    Layer i of a group lies in lane i. Numbers are rounded to `type` when they are stored and come
    back as float32. Host slots are in the memory of the CPU. One more group after `groups` has the
    pieces of states, where the model has states.
    """

    def __init__(  # noqa: PLR0913 - one keyword per property
        self,
        *,
        groups: Sequence[Sequence[int]],
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        type: KvType,
        device: torch.device,
        num_host_slots: int = 0,
        state: StateFacts | None = None,
    ) -> None:
        self.block_size = block_size
        self._places = {  # layer -> group, lane
            layer: (group, lane)
            for group, layers in enumerate(groups)
            for lane, layer in enumerate(layers)
        }
        num_lanes = max(map(len, groups), default=0)
        self.type = type
        shape = (num_lanes, 2, block_size, num_kv_heads, type.row_bytes(head_dim))
        num_bytes = math.prod(shape) or (state.num_bytes if state is not None else 0)
        self._blocks = torch.zeros(num_blocks, num_bytes, dtype=torch.uint8, device=device)
        self._host = torch.zeros(num_host_slots, num_bytes, dtype=torch.uint8)
        self._lanes = self._blocks.view(num_blocks, *shape).unbind(1) if num_lanes else ()
        self.states = None if state is None else TorchStates(self._blocks, len(groups), state)

    def group_of(self, layer: int) -> int:
        """The KV group of a layer, whose block tables lead to its entries."""
        return self._places[layer][0]

    def write(self, layer: int, row: BatchRow, keys: Tensor, values: Tensor) -> None:
        """Store the new tokens of a row; keys, values: [num_tokens, num_kv_heads, head_dim]."""
        blocks, offsets = self._slots(row, row.context_len, row.context_len + row.num_tokens)
        stored = self._lane(layer)
        stored[blocks, 0, offsets] = encode(keys, self.type)
        stored[blocks, 1, offsets] = encode(values, self.type)

    def read(self, layer: int, row: BatchRow, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values of tokens [first, end): [end - first, num_kv_heads, head_dim] each."""
        blocks, offsets = self._slots(row, first, end)
        stored = self._lane(layer)
        keys, values = stored[blocks, 0, offsets], stored[blocks, 1, offsets]
        return decode(keys, self.type), decode(values, self.type)

    def copy_blocks(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy whole blocks, one pair after the other."""
        for source, target in zip(sources, targets, strict=True):
            self._blocks[target] = self._blocks[source]

    def swap_out(self, blocks: Sequence[int], slots: Sequence[int]) -> None:
        """Copy whole blocks to host slots, one pair after the other."""
        for block, slot in zip(blocks, slots, strict=True):
            self._host[slot] = self._blocks[block]

    def swap_in(self, slots: Sequence[int], blocks: Sequence[int]) -> None:
        """Copy host slots to whole blocks, one pair after the other."""
        for slot, block in zip(slots, blocks, strict=True):
            self._blocks[block] = self._host[slot]

    def host_slot(self, slot: int) -> memoryview:
        """The bytes of a host slot."""
        slot_bytes: memoryview = self._host[slot].numpy().data
        return slot_bytes

    def _lane(self, layer: int) -> Tensor:
        return self._lanes[self._places[layer][1]]

    def _slots(self, row: BatchRow, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Block id and offset within the block of tokens [first, end) of a row."""
        device = self._blocks.device
        places = torch.arange(first, end, device=device)
        table = torch.tensor(row.block_ids, device=device)
        return table[places // self.block_size], places % self.block_size
