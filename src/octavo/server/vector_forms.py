"""How vectors are sent: as numbers, as base64 texts in JSON, or as plain bytes. Names are vLLM's.

Owns the forms, and the answer in bytes: all vectors, one after the other; with "bytes" the header
`metadata` tells as JSON where each of them lies.
"""

from __future__ import annotations

import base64
import struct
import sys
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.server.schemas.pooling import EmbeddingRequest

BYTE_ENCODINGS = ("bytes", "bytes_only")
ENCODINGS = ("float", "base64", *BYTE_ENCODINGS)
_ORDERS = {"native": "<" if sys.byteorder == "little" else ">", "little": "<", "big": ">"}
_HALF = 1 << 15  # of the last place that a bfloat16 keeps, in a float32
_NOT_A_NUMBER = 0x7FC0

Vector = list[float]
Vectors = Vector | list[Vector]  # of one input, or of each of its tokens


@dataclass(frozen=True, slots=True)
class VectorForm:
    """One request's form."""

    encoding: str
    number: str
    order: str

    @classmethod
    def of(cls, body: EmbeddingRequest) -> VectorForm:
        """Raises InvalidRequestError for a form that is not served."""
        return cls(
            _known("encoding_format", body.encoding_format or "float", ENCODINGS),
            _known("embed_dtype", body.embed_dtype or "float32", tuple(_PACKERS)),
            _known("endianness", body.endianness or "native", tuple(_ORDERS)),
        )

    @property
    def is_bytes(self) -> bool:
        """Whether the answer is no JSON."""
        return self.encoding in BYTE_ENCODINGS

    def written(self, vector: Vector) -> bytes:
        """A vector as JSON."""
        if self.encoding == "float":
            return msgspec.json.encode(vector)
        return b'"%b"' % base64.b64encode(self.packed(vector))

    def written_all(self, vectors: Vectors) -> list[bytes]:
        """The vector of an input, or the list of those of its tokens, as JSON in pieces."""
        rows = _rows_of(vectors)
        if vectors is rows[0]:
            return [self.written(rows[0])]
        pieces = [b"[" + self.written(rows[0])]
        return [*pieces, *(b"," + self.written(row) for row in rows[1:]), b"]"]

    def packed(self, vector: Vector) -> bytes:
        """A vector in bytes."""
        return _PACKERS[self.number](_ORDERS[self.order], vector)

    def answer(self, found: Sequence[Vectors], head: dict[str, Any]) -> Response:
        """The answer in bytes; `head` has what the metadata tell besides."""
        items, pieces, place = [], list[bytes](), 0
        for index, vectors in enumerate(found):
            rows = _rows_of(vectors)
            piece = b"".join(map(self.packed, rows))
            width = len(rows[0]) if rows else 0
            shape = [width] if vectors is rows[0] else [len(rows), width]
            items.append(
                {
                    "index": index,
                    "embed_dtype": self.number,
                    "endianness": self.order,
                    "start": place,
                    "end": place + len(piece),
                    "shape": shape,
                }
            )
            place += len(piece)
            pieces.append(piece)
        metadata = msgspec.json.encode(head | {"data": items}).decode("ascii", "backslashreplace")
        headers = {} if self.encoding == "bytes_only" else {"metadata": metadata}
        return Response(b"".join(pieces), headers=headers, media_type="application/octet-stream")


def _rows_of(vectors: Vectors) -> list[Vector]:
    if vectors and isinstance(vectors[0], list):
        return vectors
    return [cast("Vector", vectors)]


def _known(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        # The rule has pydantic's name, as in vLLM's errors.
        message = f"{name} must be one of {', '.join(known)}, got {value[:60]!r} (literal_error)"
        raise InvalidRequestError(message, param=name)
    return value


def _packer(letter: str) -> Callable[[str, Vector], bytes]:
    return lambda order, vector: struct.pack(f"{order}{len(vector)}{letter}", *vector)


def _bfloat16(order: str, vector: Vector) -> bytes:
    """The upper halves of float32, rounded to nearest, ties to even."""
    words = array("I", array("f", vector).tobytes())
    halves = [
        (word + _HALF - 1 + (word >> 16 & 1)) >> 16 & 0xFFFF
        if word & 0x7FFFFFFF <= 0x7F800000
        else _NOT_A_NUMBER
        for word in words
    ]
    return struct.pack(f"{order}{len(halves)}H", *halves)


_PACKERS: dict[str, Callable[[str, Vector], bytes]] = {
    "float32": _packer("f"),
    "float16": _packer("e"),
    "bfloat16": _bfloat16,
}
