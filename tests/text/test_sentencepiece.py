"""SentencePiece over a stored vocabulary cuts as `tokenizers` does with a list of merges."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import CorruptFileError, InvalidRequestError
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.gguf_vocabulary import TokenKind
from octavo.text.stored_library import StoredLibrary
from octavo.text.tokenizer import Tokenizer
from octavo.weights.gguf_metadata import STRING, GgufMetadata, StoredArray

KEY = "tokenizer.ggml."
# With this token a file of this architecture needs a rule that only the other library has.
PHI3, PHI3_TOKEN = "phi3", "<|end|>"
LETTERS = "abc\u2581\u00e9\U0001f600"
words = st.text(LETTERS, min_size=1, max_size=4)
texts = st.text(LETTERS + " \nxz", max_size=40)


def metadata(tokens: list[tuple[str, float, TokenKind]], **more: Any) -> dict[str, object]:
    keys: dict[str, object] = {
        "model": "llama",
        "tokens": [token for token, _, _ in tokens],
        "scores": [score for _, score, _ in tokens],
        "token_type": [int(kind) for _, _, kind in tokens],
        "unknown_token_id": 0,
        "add_bos_token": False,
    }
    keys.update(more)
    return {KEY + key: value for key, value in keys.items() if value is not None}


def vocabulary(
    ordinary: dict[str, float], whole: list[str], *, has_bytes: bool = False
) -> list[tuple[str, float, TokenKind]]:
    tokens = [("<unk>", 0.0, TokenKind.UNKNOWN), (PHI3_TOKEN, 0.0, TokenKind.CONTROL)]
    if has_bytes:
        tokens += [(f"<0x{byte:02X}>", 0.0, TokenKind.BYTE) for byte in range(256)]
    tokens += [(token, 0.0, TokenKind.USER_DEFINED) for token in whole]
    return tokens + [(token, score, TokenKind.NORMAL) for token, score in ordinary.items()]


def both_ways(keys: dict[str, object]) -> tuple[Tokenizer, Tokenizer]:
    """Ours, and the one that a list of merges makes."""
    ours = tokenizer_from_gguf(keys)
    listed = tokenizer_from_gguf({**keys, "general.architecture": PHI3})
    assert isinstance(ours.library, StoredLibrary)
    assert not isinstance(listed.library, StoredLibrary)
    return ours, listed


@settings(max_examples=300, deadline=None)
@given(
    ordinary=st.dictionaries(words, st.integers(-5, 0).map(float), max_size=25),
    whole=st.sets(words, max_size=3),
    has_bytes=st.booleans(),
    adds_space=st.booleans(),
    has_unknown=st.booleans(),
    text=texts,
)
def test_any_vocabulary_cuts_any_text_as_a_list_of_merges_does(
    ordinary: dict[str, float],
    whole: set[str],
    has_bytes: bool,
    adds_space: bool,
    has_unknown: bool,
    text: str,
) -> None:
    """Equal scores, ways of one token, unknown characters, whole tokens in each other."""
    kept = {token: score for token, score in ordinary.items() if token not in whole}
    keys = metadata(
        vocabulary(kept, sorted(whole), has_bytes=has_bytes),
        add_space_prefix=adds_space,
        unknown_token_id=0 if has_unknown else None,
    )
    ours, listed = both_ways(keys)
    ids = listed.encode(text)
    assert ids == ours.encode(text)
    assert listed.decode(ids, skip_special_tokens=False) == ours.decode(
        ids, skip_special_tokens=False
    )
    for id_ in range(ours.vocab_size):
        assert listed.token_of(id_) == ours.token_of(id_)
        assert listed.id_of(ours.library.id_to_token(id_) or "") == id_


def test_a_long_text_without_spaces_is_cut_as_by_the_other_library() -> None:
    """Merges that make others impossible, thousands of them in one stretch."""
    ordinary = {"a": 0.0, "b": 0.0, "aa": -1.0, "ab": -2.0, "aab": -3.0, "ba": -2.0, "aaaa": -4.0}
    ours, listed = both_ways(metadata(vocabulary(ordinary, ["bbb"])))
    text = "aabab" * 3000 + "a" * 5001 + "abbba" * 2000
    assert listed.encode(text) == ours.encode(text)


def test_half_of_a_surrogate_pair_is_refused_with_its_place() -> None:
    ours, _ = both_ways(metadata(vocabulary({"a": 0.0}, [])))
    with pytest.raises(InvalidRequestError, match=r"U\+D800.*character 1"):
        ours.encode("a\ud800")


def stored(tokens: list[bytes], count: int | None = None) -> StoredArray:
    data = b"".join(struct.pack("<Q", len(token)) + token for token in tokens)
    return StoredArray(STRING, len(tokens) if count is None else count, memoryview(data))


def in_file(tokens: StoredArray, num_kinds: int = 3) -> GgufMetadata:
    """Metadata whose tokens lie in a file."""
    values: dict[str, object] = dict(metadata([("a", 0.0, TokenKind.NORMAL)] * num_kinds))
    values[KEY + "tokens"] = tokens
    for key, format_, item in (("scores", "f", 6), ("token_type", "i", 5)):
        numbers = struct.pack(f"<{num_kinds}{format_}", *[1] * num_kinds)
        values[KEY + key] = StoredArray(item, num_kinds, memoryview(numbers))
    return GgufMetadata(values, "some.gguf")


def test_tokens_are_read_where_they_lie() -> None:
    """A token without a text has a name of its own; nothing spells it."""
    tokenizer = tokenizer_from_gguf(in_file(stored([b"a", b"", "\u2581".encode()])))
    assert isinstance(tokenizer.library, StoredLibrary)
    assert [2, 0, 0] == tokenizer.encode("aa")
    assert "[EMPTY_1]" == tokenizer.library.id_to_token(1)
    assert tokenizer.library.id_to_token(3) is None
    assert tokenizer.id_of("nothing") is None


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        (stored([b"a", b"b", b"\xff"]), "token 2 is not valid UTF-8"),
        (stored([b"a", b"b", b"\xed\xa0\x80"]), "token 2 is not valid UTF-8"),
        (stored([b"a", b"b", b"a"]), "'a' is there twice"),
        (stored([b"a", b"b"], count=3), "fewer tokens"),
    ],
)
def test_a_stored_vocabulary_that_contradicts_itself_is_refused(
    tokens: StoredArray, reason: str
) -> None:
    with pytest.raises(CorruptFileError, match=reason):
        tokenizer_from_gguf(in_file(tokens))
