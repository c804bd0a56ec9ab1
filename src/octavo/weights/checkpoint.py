"""The contract between a model file and whoever packs its tensors.

Tensor names are Hugging Face's (`model.layers.0.self_attn.q_proj.weight`) whatever the file calls
them, shapes are `[out_features, in_features]` row-major, so the rest of Octavo sees one world.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Literal, Protocol, cast

from octavo.config.model_facts import ModelFacts, PoolingFacts
from octavo.errors import CorruptFileError
from octavo.text.tokenizer import Tokenizer

CONFIG = "config.json"  # what makes a folder a model of Hugging Face's


class WeightType(IntEnum):
    """How the elements of a tensor are stored. Values are GGML's type numbers (the GGUF format).

    Those from 300 on are our own: what tensors of quantised checkpoints become when they are read
    (`weights/quant`). The number behind such a name is how many elements share a scale, K a block
    of 256 with a scale for each 16. csrc/packing.hpp has the layouts.
    """

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    IQ4_NL = 20
    IQ4_XS = 23
    BF16 = 30
    MXFP4 = 39
    INT4_32 = 300
    INT4_128 = 301
    INT8_32 = 302
    INT8_128 = 303
    FP8_32 = 304
    FP8_128 = 305
    INT8_K = 306
    FP4_16 = 307
    NF4_32 = 308

    @property
    def block_elements(self) -> int:
        """Consecutive elements of a row that are stored together."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of such a group."""
        return _BLOCKS[self][1]

    @property
    def is_ggml(self) -> bool:
        """Whether a GGUF file may have it."""
        return self < WeightType.INT4_32

    @property
    def takes_int8(self) -> bool:
        """Whether products with int8 activations exist: scales times integers of a byte."""
        return self.block_elements > 1 and self not in _SCALED_FLOATS

    def takes(self, activation_dtype: str) -> bool:
        """Whether products with activations that are rounded to "int8" or "bfloat16" exist."""
        if activation_dtype == "bfloat16":
            return self is WeightType.BF16
        return activation_dtype == "int8" and self.takes_int8

    def num_bytes(self, num_elements: int) -> int:
        """Bytes of so many elements; the number must be a multiple of `block_elements`."""
        assert num_elements % self.block_elements == 0, (self, num_elements)
        return num_elements // self.block_elements * self.block_bytes


_BLOCKS = {
    WeightType.F32: (1, 4),
    WeightType.F16: (1, 2),
    WeightType.BF16: (1, 2),
    WeightType.Q4_0: (32, 18),
    WeightType.Q4_1: (32, 20),
    WeightType.Q5_0: (32, 22),
    WeightType.Q5_1: (32, 24),
    WeightType.Q8_0: (32, 34),
    WeightType.Q4_K: (256, 144),
    WeightType.Q5_K: (256, 176),
    WeightType.Q6_K: (256, 210),
    WeightType.Q2_K: (256, 84),
    WeightType.Q3_K: (256, 110),
    WeightType.IQ4_NL: (32, 18),
    WeightType.IQ4_XS: (256, 136),
    WeightType.MXFP4: (32, 17),
    WeightType.INT4_32: (32, 24),
    WeightType.INT4_128: (128, 72),
    WeightType.INT8_32: (32, 40),
    WeightType.INT8_128: (128, 136),
    WeightType.FP8_32: (32, 36),
    WeightType.FP8_128: (128, 132),
    WeightType.INT8_K: (256, 276),
    WeightType.FP4_16: (32, 24),
    WeightType.NF4_32: (32, 20),
}
_SCALED_FLOATS = (WeightType.FP8_32, WeightType.FP8_128, WeightType.NF4_32)
# Format of an element for memoryview, where elements stand alone.
_ELEMENTS: dict[WeightType, Literal["I", "H"]] = {
    WeightType.F32: "I",
    WeightType.F16: "H",
    WeightType.BF16: "H",
}


# Endings of buffers that some files carry and no model needs: they follow from the configuration.
DERIVED_ENDINGS = (
    ".rotary_emb.inv_freq",
    ".attn.bias",
    ".attn.masked_bias",
    ".attention.bias",
    ".attention.masked_bias",
    "embeddings.position_ids",
    "embeddings.token_type_ids",
)


class RowSource(Protocol):
    """Makes rows that no file has in this form, each time that they are asked for."""

    @property
    def data(self) -> Sequence[memoryview]:
        """What the rows are made of: all of it, and the same objects each time."""

    @property
    def recipe(self) -> tuple[object, ...]:
        """How they are made of it. Rows differ only where this, its text, or the data does."""

    def rows(self, first: int, end: int) -> bytes:
        """Rows first .. end - 1 of the last dimension, in the type of the view."""


@dataclass(frozen=True, slots=True)
class TensorView:
    """One tensor in a memory-mapped file. `data` stays valid as long as the view is referenced."""

    name: str
    type: WeightType
    shape: tuple[int, ...]  # [out_features, in_features], or [size] for a vector
    data: memoryview  # bytes, row-major, `type.num_bytes(elements)` long; empty with a `source`
    # Rows stored in the rotary order of llama.cpp (x0 x1 | x2 x3 ...) instead of halves: number of
    # heads whose rows the packer must put back, 0 for none. Stored row h*d + 2*i + j is wanted row
    # h*d + j*d/2 + i (d = rows / heads).
    interleaved_heads: int = 0
    # Which rows of the stored matrix these are, in this order; None: all as they lie. With
    # `transposed` the stored matrix is [in_features, rows], so they are columns of what is stored.
    row_order: Sequence[int] | None = None
    transposed: bool = False
    source: RowSource | None = None
    # The column of the model's matrix that each stored column is, where that is not the same
    # (GPTQ's act-order): the input is put into this order before it is multiplied. Empty: the same.
    columns: tuple[int, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.type.num_bytes(math.prod(self.shape[1:]))

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows."""
        return self.type.num_bytes(math.prod(self.shape))

    @property
    def parts(self) -> Sequence[memoryview]:
        """The pieces of files that rows are read from."""
        return (self.data,) if self.source is None else self.source.data

    @property
    def recipe(self) -> tuple[object, ...]:
        """How the rows are made of `parts`: see `RowSource`."""
        source = None if self.source is None else self.source.recipe
        order = (self.interleaved_heads, self.transposed, self.row_order, self.columns)
        return (int(self.type), tuple(self.shape), *order, source)

    def rows_in_order(self) -> memoryview:
        """The bytes of the rows as `shape` promises them; a copy unless they lie like that."""
        return self.rows(0, self.shape[0])

    def rows(self, first: int, end: int) -> memoryview:
        """Rows first .. end - 1 of `rows_in_order`."""
        if self.row_order is None:
            return self._stored(first, end)
        order, size = self.row_order[first:end], self.row_bytes
        if not self.transposed:
            lowest = min(order)
            stored = self._stored(lowest, max(order) + 1)
            pieces = (stored[(row - lowest) * size : (row - lowest + 1) * size] for row in order)
            return memoryview(b"".join(pieces))
        elements = self.data.cast(_ELEMENTS[self.type])
        stride = len(elements) // self.shape[1]
        return memoryview(b"".join(elements[row::stride].tobytes() for row in order))

    def _stored(self, first: int, end: int) -> memoryview:
        if self.source is not None:
            inner = math.prod(self.shape[1:-1])
            try:
                return memoryview(self.source.rows(first * inner, end * inner))
            except ValueError as error:
                raise CorruptFileError(f"tensor {self.name} cannot be used: {error}") from error
        return self.data[first * self.row_bytes : end * self.row_bytes]


class Checkpoint(Protocol):
    """A model that was found and understood, its weights not yet read."""

    @property
    def name(self) -> str:
        """What the start banner calls it."""

    @property
    def where(self) -> str:
        """The path of its file or folder, for errors."""

    @property
    def facts(self) -> ModelFacts: ...

    @property
    def tensors(self) -> Mapping[str, TensorView]:
        """All tensors by Hugging Face name."""

    @property
    def chat_template(self) -> str | None: ...

    @property
    def quantisation(self) -> str | None:
        """The method by which it is quantised; None for floats."""

    def load_tokenizer(self) -> Tokenizer:
        """Build the tokenizer; may take a moment, is done once."""


# Parts of a checkpoint that belong to what it was trained for, and not to its vectors.
_OTHER_HEADS = ("pooler.", "cls.", "lm_head.", "head.", "decoder.", "classifier.", "score.")


def understood_as(checkpoint: Checkpoint, facts: ModelFacts) -> Checkpoint:
    """The same checkpoint, otherwise understood. Every kind of checkpoint is a dataclass.

    Tensors of heads that a model of vectors does not use are left out.
    """
    changes: dict[str, Any] = {"facts": facts}
    needed = _needed_tensors(checkpoint.tensors, facts.pooling)
    if len(needed) < len(checkpoint.tensors):
        changes["tensors"] = needed
    return cast(Checkpoint, replace(cast(Any, checkpoint), **changes))


def _needed_tensors(
    tensors: Mapping[str, TensorView], pooling: PoolingFacts | None
) -> Mapping[str, TensorView]:
    if pooling is None:
        return tensors
    own = tuple(part for layer in pooling.layers for part in (layer.name, layer.norm) if part)
    return {
        name: view
        for name, view in tensors.items()
        if not name.startswith(_OTHER_HEADS) or name.rpartition(".")[0] in own
    }
