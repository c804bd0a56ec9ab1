"""SentencePiece BPE straight from a stored vocabulary: nothing is built that the file has already.

Owns the way to the native merger, which ranks merges by score where the `tokenizers` library wants
a list of them: for Gemma 3 half a million, which takes seconds and hundreds of megabytes to make.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Collection

from octavo.foundation.registry import Registry
from octavo.text.spelling import SPACE_MARK
from octavo.text.stored_library import Decoder, Pieces

# An installation for torch alone may lack the extension; the `tokenizers` library steps in.
PIECES: Registry[Callable[..., Pieces]] = Registry(
    "SentencePiece merger", {"native": "octavo._native:SentencePiece"}
)


def open_pieces(
    stored: object,
    kinds: object,
    scores: Collection[float],
    *,
    adds_space: bool,
    unknown: int | None,
) -> Pieces | None:
    """The merger over tokens stored as (length u64, UTF-8 bytes) each; None where it is not built.

    `kinds` are a buffer of int32. Raises ValueError for a vocabulary that contradicts itself.
    """
    try:
        merger = PIECES.load("native")
    except ModuleNotFoundError:
        return None
    try:
        numbers = array("f", scores)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"scores are no numbers of 32 bits: {error}") from None
    missing = -1 if unknown is None else unknown
    return merger(stored, kinds, numbers, SPACE_MARK, adds_space, missing)


def decoder_of(*, adds_space: bool) -> Decoder:
    """How its tokens become text; a space that was added in front is taken off again."""
    parts: list[dict[str, object]] = [
        {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if adds_space:
        parts.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return Decoder(json.dumps({"type": "Sequence", "decoders": parts}).encode())
