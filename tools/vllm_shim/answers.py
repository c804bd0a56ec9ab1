"""Answers of the pooling routes as typed objects, and vectors sent as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel

EMBED_DTYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
ENDIANNESS = ("native", "big", "little")
_WORDS = {4: "u4", 2: "u2"}


class Usage(BaseModel):
    """Tokens that were read."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int = 0


class Embedding(BaseModel):
    """One vector."""

    index: int
    object: str
    embedding: list[float] | str


class EmbeddingResponse(BaseModel):
    """The answer of /v1/embeddings."""

    id: str
    object: str
    created: int
    model: str
    data: list[Embedding]
    usage: Usage


class Pooled(BaseModel):
    """What one input gave."""

    index: int
    object: str
    data: Any


class PoolingResponse(BaseModel):
    """The answer of /pooling."""

    id: str
    object: str
    created: int
    model: str
    data: list[Pooled]
    usage: Usage


class Class(BaseModel):
    """The label of one input."""

    index: int
    label: str | None
    probs: list[float]
    num_classes: int


class ClassificationResponse(BaseModel):
    """The answer of /classify."""

    id: str
    object: str
    created: int
    model: str
    data: list[Class]
    usage: Usage


class Score(BaseModel):
    """How well one pair fits."""

    index: int
    object: str
    score: float


class ScoreResponse(BaseModel):
    """The answer of /score."""

    id: str
    object: str
    created: int
    model: str
    data: list[Score]
    usage: Usage


class Ranked(BaseModel):
    """One document and its score."""

    index: int
    document: Any
    relevance_score: float


class RerankResponse(BaseModel):
    """The answer of /rerank."""

    id: str
    model: str
    usage: Any
    results: list[Ranked]


def binary2tensor(
    binary: bytes, shape: Sequence[int], embed_dtype: str, endianness: str
) -> torch.Tensor:
    """The vector in these bytes."""
    dtype = EMBED_DTYPES[embed_dtype]
    order = {"native": "=", "big": ">", "little": "<"}[endianness]
    word = _WORDS[dtype.itemsize]
    words = np.frombuffer(binary, dtype=f"{order}{word}").astype(f"={word}")
    return torch.frombuffer(bytearray(words.tobytes()), dtype=dtype).reshape(tuple(shape))


class BatchResponse(BaseModel):
    """What a line of a batch was answered."""

    status_code: int = 200
    request_id: str
    body: Any = None


class BatchRequestOutput(BaseModel):
    """A line of a batch's output."""

    id: str
    custom_id: str
    response: BatchResponse | None
    error: Any


class MetadataItem(BaseModel):
    """Where one vector lies in an answer of bytes."""

    index: int
    embed_dtype: str
    endianness: str
    start: int
    end: int
    shape: tuple[int, ...]


def build_metadata_items(
    embed_dtype: str, endianness: str, shape: Sequence[int], n_request: int
) -> list[MetadataItem]:
    """The places of vectors of one shape, one after the other."""
    size = EMBED_DTYPES[embed_dtype].itemsize * int(np.prod(shape))
    return [
        MetadataItem(
            index=index,
            embed_dtype=embed_dtype,
            endianness=endianness,
            start=index * size,
            end=(index + 1) * size,
            shape=tuple(shape),
        )
        for index in range(n_request)
    ]


def decode_pooling_output(items: Sequence[MetadataItem], body: bytes) -> list[torch.Tensor]:
    """The vectors in an answer of bytes."""
    return [
        binary2tensor(body[item.start : item.end], item.shape, item.embed_dtype, item.endianness)
        for item in items
    ]
