"""Published vocabularies give the ids that their makers' own libraries give.

The ids in tests/golden/data/tokens.json are those of tiktoken and SentencePiece, which share no
code with `tokenizers` or with us (`tools/golden_tokens.py`). Strings are `hard_strings`.
"""

from __future__ import annotations

import base64
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.text.pre_tokenizers import word_rule
from octavo.text.sentencepiece_model import read_sentencepiece
from octavo.text.spelling import SPACE_MARK, Spelling
from octavo.text.tekken import read_tekken
from octavo.text.tiktoken_file import read_tiktoken
from octavo.text.tokenizer import Tokenizer
from octavo.text.tokenizer_folder import tokenizer_from_folder
from tests.support.hard_strings import hard_strings, ids_digest
from tests.support.vocabularies import vocabulary

GOLDEN: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "golden/data/tokens.json").read_text(encoding="utf-8")
)
# What each file is called in a model folder, and the name of its pre-tokenizer in a GGUF file.
FILES = {
    "gpt2": "gpt2.tiktoken",
    "gpt-oss": "o200k_base.tiktoken",
    "llama3": "tokenizer.model",
    "mistral-v1": "tokenizer.model",
    "mistral-v3": "tokenizer.model",
    "qwen": "qwen.tiktoken",
    "tekken": "tekken.json",
}
PRE = {
    "gpt2": "gpt-2",
    "gpt-oss": "gpt-4o",
    "llama3": "llama-bpe",
    "qwen": "qwen2",
    "tekken": "tekken",
}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Tokenizer]:
    """A family -> the tokenizer of a folder that holds the makers' file alone, made once."""
    made: dict[str, Tokenizer] = {}

    def tokenizer(name: str) -> Tokenizer:
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            shutil.copy(vocabulary(name), folder / FILES[name])
            made[name] = tokenizer_from_folder(folder)
        return made[name]

    return tokenizer


def plain_strings(special: set[str]) -> list[tuple[int, str]]:
    """(place, text) of those without special tokens: they are plain text to the makers."""
    return [
        (place, text)
        for place, text in enumerate(hard_strings())
        if not any(token in text for token in special)
    ]


@pytest.mark.parametrize("name", FILES)
def test_the_makers_file_alone_gives_the_makers_ids(
    name: str, opened: Callable[[str], Tokenizer]
) -> None:
    """tekken, tiktoken and SentencePiece, without a tokenizer.json."""
    tokenizer = opened(name)
    strings = plain_strings({tokenizer.token_of(id_) for id_ in tokenizer.special_ids})

    shown, digests = GOLDEN[name]["ids"], GOLDEN[name]["digests"]
    assert len(strings) > 1350
    for place, text in strings:
        ids = tokenizer.encode(text, add_special_tokens=False)
        if place < len(shown):
            assert ids == shown[place], text
        assert ids_digest(ids) == digests[place], text
        # SentencePiece writes spaces with a sign of their own, which then means a space.
        is_marked = tokenizer.spelling is Spelling.SENTENCEPIECE
        assert tokenizer.decode(ids) == (text.replace(SPACE_MARK, " ") if is_marked else text)


@pytest.mark.parametrize("name", PRE)
def test_the_name_of_the_rule_in_a_gguf_file_cuts_the_same_words(name: str) -> None:
    """The rest of a GGUF file is what the makers' file is read into, see the test above."""
    path = vocabulary(name)
    ranked = read_tekken(path) if name == "tekken" else read_tiktoken(path)
    named, own = (rule.pre_tokenizer() for rule in (word_rule(PRE[name]), ranked.rule))

    for text in hard_strings():
        assert named.pre_tokenize_str(text) == own.pre_tokenize_str(text), text


@pytest.mark.parametrize(
    ("name", "begin", "named"),
    [
        ("llama3", [128000], {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}),
        ("tekken", [1], {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}),
        ("mistral-v1", [1], {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}),
        ("qwen", [], {"eos_token": "<|endoftext|>"}),
        ("gpt-oss", [], {"eos_token": "<|return|>"}),
    ],
)
def test_special_tokens_are_known_without_other_files(
    name: str, begin: list[int], named: dict[str, str], opened: Callable[[str], Tokenizer]
) -> None:
    """And found where they are written out."""
    tokenizer = opened(name)

    assert tokenizer.encode("") == begin
    assert named.items() <= tokenizer.special_tokens.items()
    for token in named.values():
        assert tokenizer.encode(token, add_special_tokens=False) == [tokenizer.id_of(token)]


def test_tokens_that_other_files_add_follow_a_sentencepiece_vocabulary(tmp_path: Path) -> None:
    """tokenizer_config.json lists them, and says whether there is a BOS."""
    shutil.copy(vocabulary("mistral-v1"), tmp_path / "tokenizer.model")
    listed = {"32000": {"content": "<|im_end|>", "special": True}}
    config = {"added_tokens_decoder": listed, "add_bos_token": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = tokenizer_from_folder(tmp_path)

    assert tokenizer.encode("<|im_end|>") == [32000]
    assert 32000 in tokenizer.special_ids
    listed["32005"] = {"content": "<far>", "special": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(CorruptFileError, match=r"<far>.*32005"):
        tokenizer_from_folder(tmp_path)


def message(*fields: tuple[int, int | float | bytes]) -> bytes:
    """A protocol buffer of (field number, value)."""
    parts = []
    for number, value in fields:
        if isinstance(value, bytes):
            parts += [varint(number << 3 | 2), varint(len(value)), value]
        elif isinstance(value, float):
            parts += [varint(number << 3 | 5), struct.pack("<f", value)]
        else:
            parts += [varint(number << 3), varint(value)]
    return b"".join(parts)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


PIECES = [(1, message((1, text), (2, 0.0), (3, kind))) for text, kind in ((b"<unk>", 2), (b"a", 1))]
IDENTITY = (3, message((4, 0)))


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (message(*PIECES, (2, message((3, 1))), IDENTITY), UnsupportedModelError, "unigram"),
        (message(*PIECES, (2, message((3, 2)))), UnsupportedModelError, "remove_extra_whitespaces"),
        (
            message(*PIECES, (2, message((3, 2))), (3, message((2, b"map"), (4, 0)))),
            UnsupportedModelError,
            "precompiled_charsmap",
        ),
        (b"", CorruptFileError, "no pieces"),
        (b"\x0a\xff\xff", CorruptFileError, "cut short"),
        (b"\xff" * 20, CorruptFileError, "cut short"),
        (b"\x0b", CorruptFileError, "wire type 3"),
        (message((1, 5)), CorruptFileError, "a number where a message"),
        (message((1, message((2, 0.0)))), CorruptFileError, "without a text"),
        (message((1, message((1, b"\xff")))), CorruptFileError, "malformed piece"),
    ],
)
def test_a_sentencepiece_file_that_cannot_be_right_is_refused(
    content: bytes, error: type[Exception], said: str, tmp_path: Path
) -> None:
    """Model files come from strangers; a rule that we lack would give other ids, silently."""
    path = tmp_path / "tokenizer.model"
    path.write_bytes(content)
    with pytest.raises(error, match=said):
        read_sentencepiece(path)


@pytest.mark.parametrize(
    ("lines", "error", "said"),
    [
        (["YQ== 0", "Yg== 2"], CorruptFileError, "each rank from 0 on"),
        (["YQ== 0", "YQ== 1"], CorruptFileError, "each token once"),
        (["YQ== 0", "=== 1"], CorruptFileError, "line 2"),
        (["YQ== 0", "YQ== x"], CorruptFileError, "line 2"),
        (["YQ== 0"], UnsupportedModelError, r"1 ranks.*Llama 3 \(128000\)"),
    ],
)
def test_a_tiktoken_file_that_cannot_be_right_is_refused(
    lines: list[str], error: type[Exception], said: str, tmp_path: Path
) -> None:
    """A file of a size that nobody published says neither its words nor its special tokens."""
    (tmp_path / "some.tiktoken").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(error, match=said):
        tokenizer_from_folder(tmp_path)


def tekken(**changes: Any) -> dict[str, Any]:
    tokens = [bytes([byte]) for byte in range(256)]
    config = {
        "pattern": r"\S+|\s+",
        "default_vocab_size": 259,
        "default_num_special_tokens": 3,
        "version": "v3",
    }
    vocab = [
        {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": None}
        for rank, token in enumerate(tokens)
    ]
    return {"config": config | changes.pop("config", {}), "vocab": vocab} | changes


def test_a_tekken_file_names_its_special_tokens(tmp_path: Path) -> None:
    """Newer files list them; ids without a name get one."""
    listed = [{"rank": 1, "token_str": "<s>", "is_control": True}]
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(tekken(special_tokens=listed)), encoding="utf-8")
    tokenizer = tokenizer_from_folder(tmp_path)

    assert tokenizer.encode("<s>a<SPECIAL_2>") == [1, 1, 3 + ord("a"), 2]


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"config": {}},
        tekken(config={"pattern": 3}),
        tekken(config={"pattern": "("}),
        tekken(config={"default_vocab_size": "x"}),
        tekken(vocab=[{"rank": 0, "token_bytes": "*"}]),
        tekken(special_tokens=[{"rank": 9, "token_str": "<s>"}]),
    ],
)
def test_a_malformed_tekken_file_is_corrupt_and_named(document: Any, tmp_path: Path) -> None:
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(CorruptFileError, match=r"tekken\.json"):
        tokenizer_from_folder(tmp_path)
