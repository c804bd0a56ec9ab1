"""Tokens are spelled in two conventions, which are recognised by the decoder."""

from __future__ import annotations

import pytest
from tokenizers import decoders

from octavo.text.spelling import (
    BYTE_OF_CHARACTER,
    CHARACTER_OF_BYTE,
    Spelling,
    byte_level_bytes,
    sentencepiece_bytes,
    spelling_of_decoder,
)

LLAMA_PARTS = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]


def test_every_byte_has_one_printable_character() -> None:
    """And back."""
    assert len(set(CHARACTER_OF_BYTE)) == 256
    assert all(character.isprintable() for character in CHARACTER_OF_BYTE)
    assert list(range(256)) == [BYTE_OF_CHARACTER[character] for character in CHARACTER_OF_BYTE]


def test_the_alphabet_is_the_librarys() -> None:
    """Its decoder turns each character into the byte."""
    library = decoders.ByteLevel()
    for byte in range(128):
        assert chr(byte) == library.decode([CHARACTER_OF_BYTE[byte]])


@pytest.mark.parametrize(
    ("token", "raw"),
    [("Ġhi", b" hi"), ("Ċ", b"\n"), ("Ã©", "é".encode()), ("a b", b"a b"), ("", b"")],
)
def test_byte_level_tokens(token: str, raw: bytes) -> None:
    """A token with a foreign character, such as a space, stands for itself."""
    assert raw == byte_level_bytes(token)


@pytest.mark.parametrize(
    ("token", "raw"),
    [
        ("\u2581hi", b" hi"),
        ("<0x0A>", b"\n"),
        ("<0xFF>", b"\xff"),
        ("<0xff>", b"<0xff>"),
        ("<0x0A>x", b"<0x0A>x"),
    ],
)
def test_sentencepiece_tokens(token: str, raw: bytes) -> None:
    """Byte tokens are written in capitals, alone."""
    assert raw == sentencepiece_bytes(token)


@pytest.mark.parametrize(
    ("decoder", "expected"),
    [
        (decoders.ByteLevel(), (Spelling.BYTE_LEVEL, False)),
        (decoders.Sequence(LLAMA_PARTS), (Spelling.SENTENCEPIECE, False)),
        (
            decoders.Sequence([*LLAMA_PARTS, decoders.Strip(" ", 1, 0)]),
            (Spelling.SENTENCEPIECE, True),
        ),
        (decoders.Sequence([*LLAMA_PARTS, decoders.Strip(" ", 2, 0)]), (Spelling.OTHER, False)),
        (
            decoders.Sequence([decoders.Replace("_", " "), *LLAMA_PARTS[1:]]),
            (Spelling.OTHER, False),
        ),
        (decoders.WordPiece(), (Spelling.OTHER, False)),
        (decoders.Metaspace(), (Spelling.OTHER, False)),
    ],
)
def test_the_spelling_is_recognised_by_the_decoder(
    decoder: decoders.Decoder, expected: tuple[Spelling, bool]
) -> None:
    """What is not known for certain is left to the library."""
    assert expected == spelling_of_decoder(decoder.__getstate__())
