"""A unigram vocabulary in GGUF metadata gives the ids of SentencePiece, in XLM-RoBERTa's frame."""

from __future__ import annotations

import base64
import contextlib
import importlib
import io
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken

from octavo.errors import CorruptFileError
from octavo.text.gguf_tokenizer import KEY, TokenKind, tokenizer_from_gguf
from octavo.text.tokenizer import Tokenizer
from tests.support.hard_strings import SENTENCES, hard_strings

sentencepiece: Any = pytest.importorskip("sentencepiece", reason="needs sentencepiece")
PLAIN = (
    "Hello, world! It's 2024 -- they'll've been 12,345.67 years old.",
    "Z\u00fcrich, fa\u00e7ade, na\u00efve, \u00c5ngstr\u00f6m",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043a\u0430\u043a \u0434\u0435\u043b\u0430?",
    "\u4f60\u597d\uff0c\u4e16\u754c\uff01\uff11\uff12\uff13",
    "camelCase snake_case HTTPServer v1.2.3-rc1\nnext line ",
)
# Ids that fairseq put before the pieces, and how many of SentencePiece's they replace.
SPECIALS, NUM_REPLACED = ("<s>", "<pad>", "</s>", "<unk>"), 3
UNKNOWN = SPECIALS.index("<unk>")


@pytest.fixture(scope="module")
def model() -> bytes:
    """A small model with XLM-RoBERTa's settings: NFKC, runs of white space joined."""
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 4),
        model_writer=trained,
        model_type="unigram",
        vocab_size=600,
        hard_vocab_limit=False,
        character_coverage=0.99,
        minloglevel=2,
    )
    return trained.getvalue()


Keys = Callable[..., dict[str, object]]


@pytest.fixture(scope="module")
def keys(model: bytes) -> Keys:
    """What a converter writes, with changes."""
    proto: Any = importlib.import_module("sentencepiece.sentencepiece_model_pb2").ModelProto()
    proto.ParseFromString(model)
    pieces = proto.pieces[NUM_REPLACED:]
    kinds = [TokenKind.CONTROL] * 3 + [TokenKind.UNKNOWN] + [TokenKind.NORMAL] * len(pieces)
    known: dict[str, object] = {
        "model": "t5",
        "pre": "default",
        "tokens": [*SPECIALS, *(piece.piece for piece in pieces)],
        "scores": [0.0] * len(SPECIALS) + [piece.score for piece in pieces],
        "token_type": [int(kind) for kind in kinds],
        "add_space_prefix": True,
        "remove_extra_whitespaces": True,
        "precompiled_charsmap": [
            byte - 256 if byte > 127 else byte  # a list of i8
            for byte in proto.normalizer_spec.precompiled_charsmap
        ],
        "bos_token_id": 0,
        "eos_token_id": 2,
        "unknown_token_id": UNKNOWN,
    }

    def with_changes(**changes: object) -> dict[str, object]:
        return {KEY + name: value for name, value in (known | changes).items() if value is not None}

    return with_changes


@pytest.fixture(scope="module")
def tokenizer(keys: Keys) -> Tokenizer:
    return tokenizer_from_gguf(keys())


PUBLISHED = {  # the steps of xlm-roberta-base's tokenizer.json but for its table and its pieces
    "pre_tokenizer": {
        "type": "Sequence",
        "pretokenizers": [
            {"type": "WhitespaceSplit"},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
        ],
    },
    "decoder": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
}


def published(known: dict[str, Any]) -> tokenizers.Tokenizer:
    """A tokenizer.json of the published form with the same pieces."""
    table = bytes(byte & 0xFF for byte in known[KEY + "precompiled_charsmap"])
    pieces = list(zip(known[KEY + "tokens"], known[KEY + "scores"], strict=True))
    document = PUBLISHED | {
        "model": {"type": "Unigram", "unk_id": UNKNOWN, "vocab": pieces},
        "normalizer": {
            "type": "Precompiled",
            "precompiled_charsmap": base64.b64encode(table).decode(),
        },
    }
    library = tokenizers.Tokenizer.from_str(json.dumps(document))
    library.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in SPECIALS]
    )
    return library


def test_ids_are_those_of_the_published_form_of_tokenizer_json(
    keys: Keys, tokenizer: Tokenizer
) -> None:
    """On 1,500 hard strings, special tokens written out in some; decoded they read the same."""
    oracle = published(keys())

    for text in hard_strings(special=SPECIALS):
        expected = oracle.encode(text).ids
        assert tokenizer.encode(text, add_special_tokens=False) == expected, text
        assert tokenizer.decode(expected) == oracle.decode(expected)


def test_ids_of_plain_text_are_those_of_sentencepiece(model: bytes, tokenizer: Tokenizer) -> None:
    """One further on, as fairseq numbers them. They differ in what is no text: control characters,
    and characters of which SentencePiece rewrites a part."""
    oracle = sentencepiece.SentencePieceProcessor(model_proto=model)

    for text in (f"{first}  {second}" for first in PLAIN for second in PLAIN):
        theirs = [UNKNOWN if id_ == 0 else id_ + 1 for id_ in oracle.encode(text)]
        assert tokenizer.encode(text, add_special_tokens=False) == theirs, text


def test_one_text_and_two_stand_in_roberta_s_frame(keys: Keys, tokenizer: Tokenizer) -> None:
    """Unless the file says that it has none."""
    first, second = (tokenizer.encode(t, add_special_tokens=False) for t in ("Hello", "world"))
    assert tokenizer.encode("Hello") == [0, *first, 2]
    assert tokenizer.encode_pair("Hello", "world")[0] == [0, *first, 2, 2, *second, 2]

    bare = tokenizer_from_gguf(keys(add_bos_token=False, add_eos_token=False))

    assert bare.encode("Hello") == first


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_table_is_refused_or_harmless(keys: Keys, seed: int) -> None:
    """The library would end the process at some text."""
    rng, known = random.Random(seed), keys()
    table: Any = known[KEY + "precompiled_charsmap"]
    root = int.from_bytes(bytes(byte & 0xFF for byte in table[4:8]), "little")
    first = 4 + 4 * (root >> 10)  # the units that every text begins with
    for place in rng.choices(range(first, first + 1024), k=20 * (1 + seed)):
        table[place] = rng.randrange(-128, 128)

    with contextlib.suppress(CorruptFileError):
        damaged = tokenizer_from_gguf(known)
        for text in hard_strings(100):
            damaged.encode(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"unknown_token_id": None}, "unknown_token_id is missing"),
        ({"precompiled_charsmap": [1, 2]}, "make no vocabulary"),
        ({"precompiled_charsmap": [4, 0, 0, 0, 0, 4, 0, 0]}, "leads outside of itself"),
        ({"scores": [0.0]}, "scores has 1 entries"),
    ],
)
def test_what_makes_no_vocabulary_is_refused(
    changes: dict[str, object], message: str, keys: Keys
) -> None:
    """With what is wrong."""
    with pytest.raises(CorruptFileError, match=message):
        tokenizer_from_gguf(keys(**changes))
