"""TorchStates: what layers carry from token to token, in pieces that lie in blocks of the KV pool.

Owns where a layer's part of a request's state lies. Does not know what the numbers mean.

The parts of all layers follow one another, layer by layer, what its convolution keeps first. Cut
into pieces of a block's size they lie in the blocks of the request's table, the last one padded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
        first, places = self._span(layer, part)
        pieces = self._blocks[self._tables(rows, places)].flatten(1)
        size = _FLOAT_BYTES * math.prod(self._shapes[part])
        stored = pieces[:, first : first + size].contiguous().view(torch.float32)
        values = stored.reshape(len(rows), *self._shapes[part])
        is_new = torch.tensor([row.context_len == 0 for row in rows], device=values.device)
        values[is_new] = 0.0
        return values

    def write(self, layer: int, part: Part, rows: Sequence[BatchRow], values: Tensor) -> None:
        """Store the part after the last token of each row."""
        first, places = self._span(layer, part)
        tables = self._tables(rows, places)
        pieces = self._blocks[tables]
        stored = values.flatten(1).contiguous().view(torch.uint8)
        pieces.flatten(1)[:, first : first + stored.shape[1]] = stored
        self._blocks[tables] = pieces

    def _span(self, layer: int, part: Part) -> tuple[int, slice]:
        """Where a part begins, in bytes of the first of the pieces that it lies in; which these
        are."""
        sizes = {name: _FLOAT_BYTES * math.prod(shape) for name, shape in self._shapes.items()}
        begin = layer * sum(sizes.values()) + (sizes["conv"] if part == "state" else 0)
        size = self._blocks.shape[1]
        first_piece, end_piece = begin // size, -(-(begin + sizes[part]) // size)
        return begin - first_piece * size, slice(first_piece, end_piece)

    def _tables(self, rows: Sequence[BatchRow], places: slice) -> Tensor:
        return torch.tensor([row.block_ids[places] for row in rows], device=self._blocks.device)
