"""A SentencePiece model file (`tokenizer.model`) -> the keys that a GGUF file would have.

Owns the reading of the file, a protocol buffer of `sentencepiece_model.proto`: pieces with score
and kind, and the few settings that decide how text is cut. GGUF took its lists from this format,
kinds included, so `gguf_tokenizer` builds the rest. Does not know any model.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from octavo.errors import CorruptFileError, UnsupportedModelError

KEY = "tokenizer.ggml."
# Numbers of fields of the messages.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # ModelProto
_TEXT, _SCORE, _KIND = 1, 2, 3  # SentencePiece
_MODEL_TYPE, _SUFFIX, _UNK, _BOS, _EOS, _PAD = 3, 24, 40, 41, 42, 43  # TrainerSpec
_CHARS_MAP, _DUMMY_PREFIX, _REMOVES_SPACES = 2, 3, 4  # NormalizerSpec
_MODEL_TYPES = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}
_BPE, _UNIGRAM = 2, 1
_NORMAL = 1
_FLOAT = struct.Struct("<f")

Value = int | bytes  # of a field: a number, or the bytes of a text, message or fixed number


def read_sentencepiece(path: Path) -> dict[str, object]:
    """`tokenizer.ggml.*` keys of a SentencePiece BPE model.

    Raises CorruptFileError for a malformed file, UnsupportedModelError for another kind of model,
    or one that changes texts before it cuts them.
    """
    where = str(path)
    tokens: list[str] = []
    scores: list[float] = []
    kinds: list[int] = []
    trainer: dict[int, Value] = {}
    normalizer: dict[int, Value] = {}
    for number, value in _fields(path.read_bytes(), where):
        if number == _PIECES:
            text, score, kind = _piece(_message(value, where), where)
            tokens.append(text)
            scores.append(score)
            kinds.append(kind)
        elif number == _TRAINER:
            trainer = dict(_fields(_message(value, where), where))
        elif number == _NORMALIZER:
            normalizer = dict(_fields(_message(value, where), where))
    if not tokens:
        raise CorruptFileError(f"{where} is no SentencePiece model: it has no pieces")
    _refuse_others(trainer, normalizer, where)
    metadata: dict[str, object] = {
        "model": "llama",
        "tokens": tokens,
        "scores": scores,
        "token_type": kinds,
        "add_space_prefix": bool(normalizer.get(_DUMMY_PREFIX, 1)),
    }
    defaults = {_UNK: ("unknown", 0), _BOS: ("bos", 1), _EOS: ("eos", 2), _PAD: ("padding", -1)}
    for number, (name, default) in defaults.items():
        metadata[f"{name}_token_id"] = _signed(trainer.get(number, default))
    return {KEY + name: value for name, value in metadata.items()}


def _piece(message: bytes, where: str) -> tuple[str, float, int]:
    fields = dict(_fields(message, where))
    text, score, kind = fields.get(_TEXT), fields.get(_SCORE, b"\0" * 4), fields.get(_KIND, _NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or not isinstance(kind, int):
        raise CorruptFileError(f"{where} has a piece without a text, a score or a kind")
    try:
        return text.decode(), _FLOAT.unpack(score)[0], kind
    except (UnicodeDecodeError, struct.error) as error:
        raise CorruptFileError(f"{where} has a malformed piece: {error}") from error


def _refuse_others(trainer: dict[int, Value], normalizer: dict[int, Value], where: str) -> None:
    """What the merger does not do would give other ids, silently."""
    kind = trainer.get(_MODEL_TYPE, _UNIGRAM)
    if kind != _BPE:
        name = _MODEL_TYPES.get(kind if isinstance(kind, int) else 0, "unknown")
        raise UnsupportedModelError(
            f"{where} is a SentencePiece model of the kind {name}. Supported: BPE; of others save "
            "tokenizer.json as well"
        )
    settings = {
        "a map of characters (precompiled_charsmap)": normalizer.get(_CHARS_MAP),
        "remove_extra_whitespaces": normalizer.get(_REMOVES_SPACES, 1),
        "treat_whitespace_as_suffix": trainer.get(_SUFFIX),
    }
    for name, value in settings.items():
        if value:
            raise UnsupportedModelError(
                f"{where} changes texts before they are cut: {name}. Save tokenizer.json as well"
            )


def _signed(value: Value) -> int:
    """A varint of type int32; -1, for no token, is stored as ten bytes."""
    number = value if isinstance(value, int) else -1
    return number - (1 << 64) if number >= 1 << 63 else number


def _message(value: Value, where: str) -> bytes:
    if not isinstance(value, bytes):
        raise CorruptFileError(f"{where} has a number where a message belongs")
    return value


def _fields(data: bytes, where: str) -> Iterator[tuple[int, Value]]:
    """(field number, value) of a message, in order."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position, where)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, position = _varint(data, position, where)
            yield number, value
            continue
        if wire == 2:
            size, position = _varint(data, position, where)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise CorruptFileError(f"{where} is no SentencePiece model: wire type {wire}")
        if number == 0 or position + size > len(data):
            raise CorruptFileError(f"{where} is no SentencePiece model, or it is cut short")
        yield number, data[position : position + size]
        position += size


def _varint(data: bytes, position: int, where: str) -> tuple[int, int]:
    """A number of seven bits a byte, lowest first, and the place behind it."""
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
    raise CorruptFileError(f"{where} is no SentencePiece model, or it is cut short")
