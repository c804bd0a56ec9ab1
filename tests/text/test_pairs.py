"""Texts that are cut, and two texts in one sequence, with their special tokens in place."""

from __future__ import annotations

import pytest

from octavo.text.tokenizer import Tokenizer
from tests.support.tiny_encoders import SPECIALS, pair_library
from tests.support.tiny_tokenizer import tiny_id, tiny_tokenizer

FIRST, SECOND = "the quick brown fox", "Paris is the capital of France"


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(
        pair_library(), named_tokens={}, special_ids=list(range(len(SPECIALS))), frame=None
    )


def test_a_pair_is_what_the_library_makes_of_it(tokenizer: Tokenizer) -> None:
    """Special tokens between and around, and where the second text's segment begins."""
    encoding = pair_library().encode(FIRST, SECOND)

    ids, second = tokenizer.encode_pair(FIRST, SECOND)

    assert ids == encoding.ids
    assert second == encoding.type_ids.index(1)


def test_of_a_pair_that_is_too_long_the_second_text_is_cut_first(tokenizer: Tokenizer) -> None:
    """Then the first; the special tokens stay."""
    first, second = (tokenizer.encode(text, add_special_tokens=False) for text in (FIRST, SECOND))

    cut, _ = tokenizer.encode_pair(FIRST, SECOND, max_tokens=len(first) + 5)
    short, _ = tokenizer.encode_pair(FIRST, SECOND, max_tokens=5)

    assert cut == [0, *first, 2, *second[:2], 2]
    assert short == [0, *first[:2], 2, 2]


def test_a_pair_of_a_decoder_is_joined(tokenizer: Tokenizer) -> None:
    """Between its own begin and end tokens, without segments."""
    decoder = tiny_tokenizer(adds_bos=True)
    plain = [
        *decoder.encode(FIRST, add_special_tokens=False),
        *decoder.encode(SECOND, add_special_tokens=False),
    ]

    assert decoder.encode_pair(FIRST, SECOND) == ([tiny_id("<|start|>"), *plain], -1)


@pytest.mark.parametrize("length", [2, 3, 5, 100])
def test_a_cut_text_keeps_its_special_tokens(tokenizer: Tokenizer, length: int) -> None:
    """And its beginning."""
    inner = tokenizer.encode(FIRST, add_special_tokens=False)

    assert tokenizer.encode_cut(FIRST, length) == [0, *inner[: length - 2], 2]
    decoder = tiny_tokenizer(adds_bos=True)
    assert decoder.encode_cut(FIRST, length) == decoder.encode(FIRST)[:length]


def test_the_beginning_of_a_text_is_text(tokenizer: Tokenizer) -> None:
    """As many characters as so many tokens stand for."""
    ids = tokenizer.encode(SECOND, add_special_tokens=False)
    start = tokenizer.beginning(SECOND, 4)

    assert SECOND.startswith(start)
    assert tokenizer.encode(start, add_special_tokens=False) == ids[:4]
    assert tokenizer.beginning(SECOND, 99) == SECOND
