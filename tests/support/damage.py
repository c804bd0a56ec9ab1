"""Damage to model files, by a seed: what a bad disk, a cut download or an attacker might leave.

Owns the ways of damaging bytes and JSON. Does not know what becomes of a damaged file.
"""

from __future__ import annotations

import copy
import json
import math
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from octavo.weights.checkpoint import WeightType
from octavo.weights.gguf_repack import REPACKED
from tests.support.gguf_bytes import (
    ARRAY,
    BOOL,
    F32,
    I32,
    STRING,
    U8,
    U32,
    U64,
    GgufBytes,
    TensorBytes,
    array,
    strings,
    text,
    value,
)

# Counts, lengths and offsets that a reader might add up, multiply or allocate.
_HOSTILE_WORDS = (
    *(0, 1, 2, 7, 255, 256, 4096, 65535),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**61, 2**62, 2**63 - 1, 2**63, 2**64 - 1),
)
_HOSTILE_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 5, 7, 4095, 4097, 65536, 2**31 - 1, 2**31, 2**63, 10**30),
    *(0.0, -0.5, 0.5, 1e-300, 1e30, 1e308, math.nan, math.inf, -math.inf),
    *("", "x", "\u0000", "\ud800", "../../x", "a" * 5000, [], {}, [[]], [{}], [None], {"a": {}}),
    *([0], [1, 2], [-1, 2**62], [2**62, 2**62], [0.5], ["x"], {"type": "x"}, list(range(300))),
)
_NUMBER_FORMATS = ("<f", "<d")
_NUMBERS = (math.nan, math.inf, -1.0, 0.0, 1e-30, 1e30)


class Damage:
    """A source of damage; the same seed does the same."""

    def __init__(self, seed: str) -> None:
        self._source = random.Random(seed)

    def to_bytes(self, content: bytes, head: int) -> bytes:
        """`content` damaged once or a few times, nearly always in its first `head` bytes."""
        damaged = bytearray(content)
        ways = self._source.choices(_WAYS, _WEIGHTS, k=self._source.choice((1, 1, 1, 2, 4)))
        for way in ways:
            end = len(damaged) if self._source.random() < 0.1 else min(head, len(damaged))
            way(self._source, damaged, max(end, 1))
            if not damaged:
                break
        return bytes(damaged)

    def to_object(self, value: Any) -> Any:
        """A JSON value with some of its parts exchanged, left out or doubled."""
        value = json.loads(json.dumps(value))
        for _ in range(self._source.choice((1, 1, 1, 2, 3))):
            self._exchange(value)
        return value

    def to_json(self, text: bytes) -> bytes:
        """A JSON file, damaged as bytes or as an object."""
        if self._source.random() < 0.3:
            return self.to_bytes(text, len(text))
        return json.dumps(self.to_object(json.loads(text))).encode("utf-8", "surrogatepass")

    def to_gguf(self, file: GgufBytes, head: int) -> bytes:
        """A GGUF file whose first `head` bytes are not weights: as bytes, or as its parts."""
        if self._source.random() < 0.5:
            return self.to_bytes(file.build(), head)
        file = copy.deepcopy(file)
        for _ in range(self._source.choice((1, 1, 1, 2, 3))):
            if self._source.random() < 0.6:
                self._exchange_key(file)
            else:
                self._exchange_tensor(file.tensors)
        return file.build()

    def to_safetensors(self, content: bytes) -> bytes:
        """A safetensors file: its header, as bytes or as an object, or its length."""
        size = int.from_bytes(content[:8], "little")
        if self._source.random() < 0.5:
            return self.to_bytes(content, 8 + size)
        head = self.to_json(content[8 : 8 + size])
        return struct.pack("<Q", len(head)) + head + content[8 + size :]

    def _exchange(self, value: Any) -> None:
        """Walk to some part, and put another in its place."""
        while isinstance(value, dict | list) and value:
            keys = list(value) if isinstance(value, dict) else range(len(value))
            key = self._source.choice(keys)
            inner = value[key]
            if isinstance(inner, dict | list) and inner and self._source.random() < 0.8:
                value = inner
                continue
            match self._source.randrange(5):
                case 0 if isinstance(value, dict):
                    value[str(self._source.choice(_HOSTILE_VALUES))] = value.pop(key)
                case 1:
                    del value[key]
                case 2:
                    value[key] = value[self._source.choice(keys)]
                case _:
                    value[key] = self._hostile(inner)
            return

    def _exchange_key(self, file: GgufBytes) -> None:
        """Another value for a key, or another key for a value."""
        keys, source = file.metadata, self._source
        place = source.randrange(len(keys))
        name, (_, raw) = keys[place]
        match source.randrange(8):
            case 0:
                del keys[place]
            case 1:
                keys[place] = (name, source.choice(keys)[1])
            case 2:
                keys[place] = (name, (source.randrange(14), raw))
            case 3:
                keys[place] = (name, self._hostile_list())
            case _:
                keys[place] = (name, self._hostile_scalar())

    def _hostile_scalar(self) -> tuple[int, bytes]:
        source, word = self._source, self._source.choice(_HOSTILE_WORDS)
        return source.choice(
            (
                value(U32, word % 2**32),
                value(U32, word % 2**32),
                value(U64, word),
                value(I32, word % 2**32 - 2**31),
                value(F32, source.choice(_NUMBERS)),
                value(BOOL, word % 2),
                value(U8, word % 256),
                text(source.choice(("", "x", "llama", "gemma3", "deepseek2", "gpt-oss", "linear"))),
            )
        )

    def _hostile_list(self) -> tuple[int, bytes]:
        word = self._source.choice(_HOSTILE_WORDS)
        lists = (
            strings(),
            strings("a", "a b", "\u2581"),
            strings(b"\xff"),
            (ARRAY, array(I32, [struct.pack("<i", -1)] * (word % 300))),
            (ARRAY, array(F32, [struct.pack("<f", math.nan)] * (word % 300))),
            (ARRAY, array(STRING, [], count=word)),
            (ARRAY, array(U8, [b"\1"], count=word)),
        )
        return self._source.choice(lists)

    def _exchange_tensor(self, tensors: list[TensorBytes]) -> None:
        """Another shape, type, place or name for a tensor; none, or the same twice."""
        source = self._source
        place = source.randrange(len(tensors))
        one, other = tensors[place], source.choice(tensors)
        sizes = list(one.dimensions)
        match source.randrange(9):
            case 0:
                del tensors[place]
                return
            case 1:
                tensors.insert(place, other)
                return
            case 2:
                one = replace(one, name=source.choice((other.name, "", "blk.9.x", "blk..weight")))
            case 3:
                one = replace(one, type=source.choice((*WeightType, *REPACKED, 41, 2**32 - 1)))
            case 4:
                one = replace(one, offset=source.choice(_HOSTILE_WORDS))
            case 5:
                one = replace(one, dimensions=other.dimensions, data=other.data)
            case 6:
                one = replace(one, dimensions=source.choice((one.dimensions[::-1], (), (1,) * 4)))
            case 7:
                one = replace(one, data=(one.data or b"")[: source.randrange(100)])
            case _:
                sizes[source.randrange(len(sizes))] = source.choice(_HOSTILE_WORDS)
                one = replace(one, dimensions=tuple(sizes))
        tensors[place] = one

    def _hostile(self, value: Any) -> Any:
        """Something else, or nearly the same."""
        if isinstance(value, int | float) and self._source.random() < 0.4:
            return self._source.choice((value + 1, value - 1, -value, 2 * value, str(value)))
        return self._source.choice(_HOSTILE_VALUES)


def _cut(source: random.Random, content: bytearray, end: int) -> None:
    del content[source.randrange(end) :]


def _cut_end(source: random.Random, content: bytearray, end: int) -> None:
    del content[source.randrange(len(content)) :]


def _flip(source: random.Random, content: bytearray, end: int) -> None:
    for _ in range(source.choice((1, 1, 1, 2, 8, 64))):
        content[source.randrange(end)] ^= 1 << source.randrange(8)


def _word(source: random.Random, content: bytearray, end: int) -> None:
    """A whole number of four or eight bytes, at any place."""
    size = source.choice((4, 8))
    word = source.choice((*_HOSTILE_WORDS, len(content), len(content) - 1, len(content) + 1))
    place = source.randrange(end)
    content[place : place + size] = (word % 2 ** (8 * size)).to_bytes(size, "little")


def _number(source: random.Random, content: bytearray, end: int) -> None:
    raw = struct.pack(source.choice(_NUMBER_FORMATS), source.choice(_NUMBERS))
    place = source.randrange(end)
    content[place : place + len(raw)] = raw


def _leave_out(source: random.Random, content: bytearray, end: int) -> None:
    place = source.randrange(end)
    del content[place : place + source.choice((1, 4, 8, 32, 300))]


def _double(source: random.Random, content: bytearray, end: int) -> None:
    place = source.randrange(end)
    content[place:place] = content[place : place + source.choice((1, 4, 8, 32, 300))]


def _fill(source: random.Random, content: bytearray, end: int) -> None:
    place, size = source.randrange(end), source.choice((1, 2, 8, 100))
    content[place : place + size] = bytes([source.choice((0, 0x7F, 0x80, 0xFF))]) * size


_WAYS: tuple[Callable[[random.Random, bytearray, int], None], ...] = (
    *(_flip, _word, _number, _fill, _cut, _cut_end, _leave_out, _double),
)
_WEIGHTS = (5, 6, 1, 2, 1, 1, 1, 1)
