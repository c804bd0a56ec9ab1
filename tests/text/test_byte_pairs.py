"""Byte pairs by native code are cut as the `tokenizers` library cuts them."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import CorruptFileError, InvalidRequestError
from octavo.text.gguf_library import byte_level
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.gguf_vocabulary import KEY, GgufVocabulary, TokenKind
from octavo.text.pre_tokenizers import word_rule
from octavo.text.spelling import CHARACTER_OF_BYTE
from octavo.text.stored_library import StoredLibrary
from octavo.text.tokenizer import Tokenizer
from tests.support.hard_strings import hard_strings

RULES = ("gpt-2", "smollm", "llama-bpe", "dbrx")  # the last: Llama 3's words, always merged
WORDS = "abÄĠ1"
words = st.text(WORDS, min_size=1, max_size=3)
texts = st.text("ab1 \n'sSé\u0301x\U0001f600", max_size=40)


def metadata(
    tokens: list[str], merges: list[str], whole: list[str], pre: str = "gpt-2", **more: Any
) -> dict[str, object]:
    """Keys of a vocabulary whose `whole` tokens are never cut."""
    kinds = [TokenKind.NORMAL] * len(tokens) + [TokenKind.CONTROL] * len(whole)
    keys = {
        "model": "gpt2",
        "pre": pre,
        "tokens": tokens + whole,
        "token_type": list(map(int, kinds)),
        "merges": merges,
        "add_bos_token": False,
    }
    return {KEY + key: value for key, value in (keys | more).items()}


def both_ways(keys: Mapping[str, object]) -> tuple[Tokenizer, Any]:
    """Ours, and the library."""
    ours = tokenizer_from_gguf(keys)
    assert isinstance(ours.library, StoredLibrary)
    return ours, byte_level(GgufVocabulary(keys), word_rule(str(keys[KEY + "pre"])))


@settings(max_examples=300, deadline=None)
@given(
    letters=st.sets(st.sampled_from(CHARACTER_OF_BYTE), max_size=20),
    halves=st.lists(st.tuples(words, words), max_size=20),
    whole=st.sets(st.sampled_from(["<a>", "<a><b>", "ab", " ", "\n"]), max_size=3),
    pre=st.sampled_from(RULES),
    text=texts,
)
def test_any_vocabulary_cuts_any_text_as_the_library_does(
    letters: set[str], halves: list[tuple[str, str]], whole: set[str], pre: str, text: str
) -> None:
    """Bytes without a token, merges listed twice and in any order, whole tokens in each other."""
    tokens = dict.fromkeys([*sorted(letters), *WORDS])
    for left, right in halves:
        tokens |= dict.fromkeys((left, right, left + right))
    named = [token for token in sorted(whole) if token not in tokens]
    merges = [f"{left} {right}" for left, right in halves]
    ours, library = both_ways(metadata(list(tokens), merges, named, pre))

    ids = library.encode(text, add_special_tokens=False).ids

    assert ids == ours.encode(text)
    for id_ in range(ours.vocab_size):
        assert library.id_to_token(id_) == ours.library.id_to_token(id_)
        assert library.token_to_id(library.id_to_token(id_)) == id_


@pytest.mark.parametrize("pre", RULES)
def test_hard_strings_have_the_ids_of_the_library_by_every_rule(
    pre: str, smollm2_metadata: Mapping[str, object]
) -> None:
    ours, library = both_ways({**smollm2_metadata, KEY + "pre": pre})
    for text in hard_strings(1500, ["<|im_start|>", "<|im_end|>", "<repo_name>"]):
        expected = library.encode(text, add_special_tokens=False).ids
        assert expected == ours.encode(text, add_special_tokens=False), text


@pytest.mark.parametrize("pre", RULES)
def test_every_character_counts_as_what_the_library_takes_it_for(pre: str) -> None:
    """Beside letters, digits and spaces; those that this Python's Unicode knows, at least.

    Bytes alone are tokens, and all ways to join the words of a test: what is cut is seen.
    """
    around = "a{0}a1{0}1 {0} {0}"
    tokens = [*CHARACTER_OF_BYTE]
    pairs = [(left, right) for left in CHARACTER_OF_BYTE for right in "a1Ġ"]
    tokens += [left + right for left, right in pairs]
    merges = [f"{left} {right}" for left, right in pairs]
    ours, library = both_ways(metadata(tokens, merges, [], pre))
    known = [chr(code) for code in range(sys.maxunicode + 1)]
    known = [one for one in known if unicodedata.category(one) not in ("Cn", "Cs")]
    many = [*map(around.format, known)]

    expected = library.encode_batch_fast(many, add_special_tokens=False)

    for text, one in zip(many, expected, strict=True):
        assert one.ids == ours.encode(text), ascii(text)


def test_a_long_word_is_cut_as_by_the_library() -> None:
    """Merges that make others impossible, thousands of them in one word."""
    tokens = [*CHARACTER_OF_BYTE, "aa", "ab", "aab", "ba", "aaaa"]
    merges = ["a a", "b a", "a b", "aa b", "a ab", "aa aa"]
    ours, library = both_ways(metadata(tokens, merges, ["bbb"]))
    text = "aabab" * 3000 + "a" * 5001 + "abbba" * 2000

    assert library.encode(text, add_special_tokens=False).ids == ours.encode(text)


def test_half_of_a_surrogate_pair_is_refused_with_its_place() -> None:
    ours, _ = both_ways(metadata(["a"], [], []))
    with pytest.raises(InvalidRequestError, match=r"U\+D800.*character 1"):
        ours.encode("a\ud800")


@pytest.mark.parametrize(
    ("tokens", "merges", "reason"),
    [
        (["a", "b"], ["a b"], "do not fit"),
        (["a", "ab"], ["a b"], "do not fit"),
        (["a", "b", "ab"], ["ab"], "no pair"),
        (["a", "b", "a"], [], "'a' twice"),
    ],
)
def test_lists_that_contradict_each_other_are_refused(
    tokens: list[str], merges: list[str], reason: str
) -> None:
    with pytest.raises(CorruptFileError, match=reason):
        tokenizer_from_gguf(metadata(tokens, merges, []))
