"""Byte-level BPE straight from stored vocabulary and merges, by native code.

Owns which rules for words are known there, and the way to it: a quarter of the time that the
`tokenizers` library takes to read the lists, and none of it holds up other threads. That library
does what is not covered, and refuses what is malformed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from octavo.foundation.registry import Registry
from octavo.text.pre_tokenizers import GPT2, LLAMA3, NUMBER, WordRule
from octavo.text.stored_library import Decoder, Pieces

NATIVE: Registry[Any] = Registry(
    "byte-pair merger",
    {"merger": "octavo._native:BytePairs", "words": "octavo._native:WordRule"},
)
# Expressions -> the rule in C++ that does the same.
_RULES: Mapping[tuple[str, ...], str] = MappingProxyType(
    {(GPT2,): "GPT2", (NUMBER, GPT2): "DIGITS_THEN_GPT2", (LLAMA3,): "LLAMA3"}
)
DECODER = Decoder(b'{"type":"ByteLevel"}')


def open_pairs(stored: object, kinds: object, merges: object, rule: WordRule) -> Pieces | None:
    """The merger over tokens and merges stored as (length u64, UTF-8 bytes) each.

    `kinds` are a buffer of int32. None where it is not built, for rules that it does not have, and
    for lists that contradict each other.
    """
    name = _RULES.get(rule.expressions)
    if name is None or rule.is_nfc:
        return None
    try:
        merger: Callable[..., Pieces] = NATIVE.load("merger")
    except ModuleNotFoundError:
        return None
    words = getattr(NATIVE.load("words"), name)
    try:
        return merger(stored, kinds, merges, words, rule.ignores_merges)
    except ValueError:
        return None
