"""How the vocabulary of a model spells bytes: two conventions, and the recognition of them.

Owns the maps between the written form of a token and the bytes it stands for.
Does not know: ids, special tokens, how text is cut into tokens.
Used by: vocabulary, gguf_tokenizer.
"""

from __future__ import annotations

import json
import re
from enum import Enum

SPACE_MARK = "\u2581"  # the lower one eighth block, SentencePiece's sign for a space
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


class Spelling(Enum):
    """What the text of an ordinary token means."""

    BYTE_LEVEL = "byte level"  # one printable character for each byte (GPT-2's table)
    SENTENCEPIECE = "sentencepiece"  # UTF-8 text, a mark for the space, `<0x0A>` for a single byte
    OTHER = "other"  # the decoder of the `tokenizers` library has to be asked


def _characters_of_bytes() -> list[str]:
    """GPT-2's table: printable Latin-1 stands for itself, the others are moved to 256 and up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in printable)
    moved = {byte: 256 + place for place, byte in enumerate(others)}
    return [chr(moved.get(byte, byte)) for byte in range(256)]


CHARACTER_OF_BYTE = _characters_of_bytes()
BYTE_OF_CHARACTER = {character: byte for byte, character in enumerate(CHARACTER_OF_BYTE)}


def byte_level_bytes(token: str) -> bytes:
    """The bytes of a byte-level token; one with a foreign character stands for its own UTF-8."""
    try:
        return bytes(map(BYTE_OF_CHARACTER.__getitem__, token))
    except KeyError:
        return token.encode()


def sentencepiece_bytes(token: str) -> bytes:
    """The bytes of a SentencePiece token."""
    match = BYTE_TOKEN.fullmatch(token)
    if match is not None:
        return bytes([int(match[1], 16)])
    return token.replace(SPACE_MARK, " ").encode()


SPELLED = {Spelling.BYTE_LEVEL: byte_level_bytes, Spelling.SENTENCEPIECE: sentencepiece_bytes}


def spelling_of_decoder(state: bytes) -> tuple[Spelling, bool]:
    """The spelling behind a decoder of the `tokenizers` library, and whether it strips a first
    space.

    state: the decoder as JSON, which is what the library pickles.
    """
    decoder = json.loads(state)
    parts = decoder.get("decoders", [decoder])
    kinds = [part["type"] for part in parts]
    if kinds == ["ByteLevel"]:
        return Spelling.BYTE_LEVEL, False
    if kinds[:3] != ["Replace", "ByteFallback", "Fuse"]:
        return Spelling.OTHER, False
    if parts[0].get("pattern") != {"String": SPACE_MARK} or parts[0].get("content") != " ":
        return Spelling.OTHER, False
    if len(parts) == 3:
        return Spelling.SENTENCEPIECE, False
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    return (Spelling.SENTENCEPIECE, True) if parts[3:] == [strip] else (Spelling.OTHER, False)
