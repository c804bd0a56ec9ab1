"""TorchStates: what layers carry from token to token, in pieces that lie in blocks of the KV pool.

Owns where a layer's part of a request's state lies. Does not know what the numbers mean.

The parts of all layers follow one another, layer by layer, what its convolution keeps first. Cut
into pieces of a block's size they lie in the blocks of the request's table, the last one padded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor

from octavo.config.model_facts import StateFacts
from octavo.ops.batch import BatchRow

Part = Literal["conv", "state"]
_FLOAT_BYTES = 4


class TorchStates:
    """float32 tensors over the bytes of `blocks`, [num_blocks, bytes_per_block]."""

    def __init__(self, blocks: Tensor, group: int, facts: StateFacts) -> None:
        """`group`: whose block tables lead to the pieces."""
        self.group = group
        self._blocks = blocks
        self._shapes: dict[Part, tuple[int, ...]] = {
            "conv": facts.conv_shape,
            "state": facts.state_shape,
        }

    def read(self, layer: int, part: Part, rows: Sequence[BatchRow]) -> Tensor:
        """Of each row the part before its first token of this step: [rows, *shape]."""
        shape = (len(rows), *self._shapes[part])
        values = torch.zeros(shape, device=self._blocks.device)
        for row, stored in zip(rows, _as_bytes(values), strict=True):
            if row.context_len:
                for block, span in self._pieces(layer, part, row):
                    stored[span] = block
        return values

    def write(self, layer: int, part: Part, rows: Sequence[BatchRow], values: Tensor) -> None:
        """Store the part after the last token of each row."""
        for row, stored in zip(rows, _as_bytes(values.contiguous()), strict=True):
            for block, span in self._pieces(layer, part, row):
                block.copy_(stored[span])

    def _pieces(self, layer: int, part: Part, row: BatchRow) -> Iterator[tuple[Tensor, slice]]:
        """Where a part lies: bytes of a block, and which bytes of the part they are."""
        sizes = {name: _FLOAT_BYTES * math.prod(shape) for name, shape in self._shapes.items()}
        begin = layer * sum(sizes.values()) + (sizes["conv"] if part == "state" else 0)
        end, size = begin + sizes[part], self._blocks.shape[1]
        for place in range(begin // size, -(-end // size)):
            first, last = max(begin, place * size), min(end, (place + 1) * size)
            block = self._blocks[row.block_ids[place]]
            yield (
                block[first - place * size : last - place * size],
                slice(first - begin, last - begin),
            )


def _as_bytes(values: Tensor) -> Tensor:
    """[rows, ...] of floats as [rows, bytes], the same memory."""
    return values.flatten(1).view(torch.uint8)
