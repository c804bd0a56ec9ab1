"""What makes the weights of two models the same: every name, type, shape and byte of their tensors.

Owns one hash. Does not know files, nor what else decides about the bits of a KV entry (type and
layout of the cache, kernels): whoever makes a tier puts those beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from typing import Protocol

from octavo.foundation.machine import cpu_count


class Tensor(Protocol):
    """The part of a checkpoint's tensor that its entries depend on."""

    @property
    def parts(self) -> Sequence[memoryview]:
        """All bytes that its numbers are made of: codes, scales, zero points."""

    @property
    def recipe(self) -> tuple[object, ...]:
        """How they are made of them: type, shape, order of rows and columns, factors."""


def weights_fingerprint(tensors: Mapping[str, Tensor]) -> bytes:
    """32 bytes that stand for all tensors, in whatever order they come.

    Reads all data, once, on all cores: a sample would take two fine-tunings of one model for one.
    SHA-256 runs at 1.9 GB/s a core here, so 93 MB take 0.05 s, and the pages are needed anyway.
    What several tensors are made of, as experts that lie in one stack, is read once as well.
    """
    names = sorted(tensors)
    parts = {name: list(tensors[name].parts) for name in names}
    distinct = {id(part): part for own in parts.values() for part in own}
    with ThreadPoolExecutor(cpu_count(), "octavo-fingerprint") as pool:
        digests = dict(zip(distinct, pool.map(_digest, distinct.values()), strict=True))
    whole = sha256(b"octavo weights 2")
    for name in names:
        described = repr((name, tensors[name].recipe, len(parts[name]))).encode()
        whole.update(len(described).to_bytes(8, "little") + described)
        whole.update(b"".join(digests[id(part)] for part in parts[name]))
    return whole.digest()


def _digest(data: memoryview) -> bytes:
    return sha256(data).digest()
