"""TorchKvCache: keys and values of all layers in blocks, as plain tensors.

Owns the memory and the way from a token's place to its slot. Does not know requests or models.
Block `b` of a sequence holds its tokens `b * block_size` to `(b + 1) * block_size - 1`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from octavo.ops.batch import BatchRow


class TorchKvCache:
    """One tensor per layer, [keys and values, num_blocks, block_size, num_kv_heads, head_dim].

    Numbers are rounded to `dtype` when they are stored and come back as float32.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_size = block_size
        shape = (2, num_blocks, block_size, num_kv_heads, head_dim)
        self._layers = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_layers)]

    def write(self, layer: int, row: BatchRow, keys: Tensor, values: Tensor) -> None:
        """Store the new tokens of a row; keys, values: [num_tokens, num_kv_heads, head_dim]."""
        blocks, offsets = self._slots(row, row.context_len, row.context_len + row.num_tokens)
        stored = self._layers[layer]
        stored[0, blocks, offsets] = keys.to(stored.dtype)
        stored[1, blocks, offsets] = values.to(stored.dtype)

    def read(self, layer: int, row: BatchRow, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Keys and values of tokens [first, end): [end - first, num_kv_heads, head_dim] each."""
        blocks, offsets = self._slots(row, first, end)
        stored = self._layers[layer]
        return stored[0, blocks, offsets].float(), stored[1, blocks, offsets].float()

    def copy_blocks(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copy whole blocks in all layers, one pair after the other."""
        for stored in self._layers:
            for source, target in zip(sources, targets, strict=True):
                stored[:, target] = stored[:, source]

    def _slots(self, row: BatchRow, first: int, end: int) -> tuple[Tensor, Tensor]:
        """Block id and offset within the block of tokens [first, end) of a row."""
        device = self._layers[0].device
        places = torch.arange(first, end, device=device)
        table = torch.tensor(row.block_ids, device=device)
        return table[places // self.block_size], places % self.block_size
