"""TorchKvCache: keys and values of all layers in blocks, and host slots, as plain tensors.

Owns the memory and the way from a token's place to its slot. Does not know requests or models.
Block `b` of a sequence holds its tokens `b * block_size` to `(b + 1) * block_size - 1`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from octavo.backends.torch.kv_codec import decode, encode
from octavo.ops.batch import BatchRow
from octavo.ops.kv_types import KvType


class TorchKvCache:
    """One tensor per lane, [keys and values, num_blocks, block_size, num_kv_heads, row bytes].

    Layer i of a group lies in lane i. Numbers are rounded to `type` when they are stored and come
    back as float32. Host slots are in the memory of the CPU.
    """

    def __init__(
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
    ) -> None:
        self.block_size = block_size
        self._places = {  # layer -> group, lane
            layer: (group, lane)
            for group, layers in enumerate(groups)
            for lane, layer in enumerate(layers)
        }
        num_lanes = 1 + max(lane for _, lane in self._places.values())
        self.type = type
        row = (block_size, num_kv_heads, type.row_bytes(head_dim))
        self._lanes = [
            torch.zeros(2, num_blocks, *row, dtype=torch.uint8, device=device)
            for _ in range(num_lanes)
        ]
        self._host = torch.zeros(num_host_slots, num_lanes, 2, *row, dtype=torch.uint8)

    def group_of(self, layer: int) -> int:
        """The KV group of a layer, whose block tables lead to its entries."""
        return self._places[layer][0]

    def write(self, layer: int, row: BatchRow, keys: Tensor, values: Tensor) -> None:
        """Store the new tokens of a row; keys, values: [num_tokens, num_kv_heads, head_dim]."""
        blocks, offsets = self._slots(row, row.context_len, row.context_len + row.num_tokens)
        stored = self._lane(layer)
        stored[0, blocks, offsets] = encode(keys, self.type)
        stored[1, blocks, offsets] = encode(values, self.type)

    def read(self, layer: int, row: BatchRow, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values of tokens [first, end): [end - first, num_kv_heads, head_dim] each."""
        blocks, offsets = self._slots(row, first, end)
        stored = self._lane(layer)
        keys, values = stored[:, blocks, offsets]
        return decode(keys, self.type), decode(values, self.type)

    def copy_blocks(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy whole blocks in all lanes, one pair after the other."""
        for stored in self._lanes:
            for source, target in zip(sources, targets, strict=True):
                stored[:, target] = stored[:, source]

    def swap_out(self, blocks: Sequence[int], slots: Sequence[int]) -> None:
        """Copy whole blocks to host slots, one pair after the other."""
        for block, slot in zip(blocks, slots, strict=True):
            for lane, stored in enumerate(self._lanes):
                self._host[slot, lane] = stored[:, block]

    def swap_in(self, slots: Sequence[int], blocks: Sequence[int]) -> None:
        """Copy host slots to whole blocks, one pair after the other."""
        for slot, block in zip(slots, blocks, strict=True):
            for lane, stored in enumerate(self._lanes):
                stored[:, block] = self._host[slot, lane]

    def host_slot(self, slot: int) -> memoryview:
        """The bytes of a host slot."""
        slot_bytes: memoryview = self._host[slot].flatten().numpy().data
        return slot_bytes

    def _lane(self, layer: int) -> Tensor:
        return self._lanes[self._places[layer][1]]

    def _slots(self, row: BatchRow, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Block id and offset within the block of tokens [first, end) of a row."""
        device = self._lanes[0].device
        places = torch.arange(first, end, device=device)
        table = torch.tensor(row.block_ids, device=device)
        return table[places // self.block_size], places % self.block_size
