"""Long texts, stretch by stretch: the ids of the whole, whatever the text and the tokenizer."""

from __future__ import annotations

import random

import pytest

from octavo.text.stretches import STRETCH, stretches
from octavo.text.tokenizer import Tokenizer
from octavo.text.tokenizer_folder import tokenizer_from_folder
from tests.support.data import minilm_folder
from tests.support.hard_strings import hard_strings

_LENGTH = 3_000  # characters of a stretch, so that texts of a test have many
_WORDS = [
    "The",
    "quick",
    "brown",
    "fox,",
    "it's",
    "12",
    "jumps;",
    "über",
    "die",
    "Straße.",
    "中文没有空格",
    "👩\u200d👩\u200d👧",
    "é",
    "<|im_start|>",
]


def _mixed() -> str:
    draw = random.Random(5)
    return "".join(draw.choice(_WORDS) + draw.choice(["", " ", "  ", "\n\n"]) for _ in range(6_000))


TEXTS = {
    "prose": "The quick brown fox, it jumps. " * 1_000,
    "mixed": _mixed(),
    "hard strings": "".join(hard_strings(2_000)),
    "no spaces": "没有空格的文字" * 4_000,
    "one letter": "a" * 30_000,
    "digits": "1234567" * 4_000,
    "spaces": " " * 30_000,
    "lines": "\n" * 20_000 + " x\n" * 4_000,
    "marks": "e\u0301" * 15_000,
}


@pytest.fixture(params=["smollm2", "gemma3", "minilm"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """Byte-level merges, merges of SentencePiece, pieces of words."""
    if request.param == "minilm":
        return tokenizer_from_folder(minilm_folder())
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Tokenizer)
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_the_ids_of_the_stretches_are_those_of_the_text(tokenizer: Tokenizer, name: str) -> None:
    text = TEXTS[name]

    def encode(part: str) -> list[int]:
        [encoding] = tokenizer.library.encode_batch_fast([part], add_special_tokens=False)
        return encoding.ids

    parts = [*stretches(text, encode, _LENGTH)]

    assert [id_ for ids, _ in parts for id_ in ids] == encode(text)
    assert parts[-1][1] == len(text)


@pytest.mark.parametrize("name", ["prose", "mixed", "no spaces"])
def test_texts_that_can_be_cut_are_cut(smollm2: Tokenizer, name: str) -> None:
    """So that no list of ids is much longer than a stretch."""
    text = TEXTS[name]
    parts = [*stretches(text, lambda part: smollm2.encode(part, add_special_tokens=False), _LENGTH)]

    assert len(parts) >= len(text) // (2 * _LENGTH)


def test_a_long_text_has_its_special_tokens_once(tokenizer: Tokenizer) -> None:
    """Before and after it, whoever puts them there."""
    text = "The quick brown fox. " * (STRETCH // 10)
    inner = tokenizer.encode(text, add_special_tokens=False)
    short = tokenizer.encode("fox", add_special_tokens=True)
    bare = tokenizer.encode("fox", add_special_tokens=False)
    begin = short.index(bare[0])

    whole = tokenizer.encode(text)

    assert whole == [*short[:begin], *inner, *short[begin + len(bare) :]]
    assert tokenizer.encode_last(text, 9) == whole[-9:]
    assert (
        tokenizer.encode_cut(text, 9)[: 9 - len(short) + begin + 1]
        == whole[: 9 - len(short) + begin + 1]
    )


def test_a_long_text_is_left_off_once_there_is_enough(smollm2: Tokenizer) -> None:
    text = "The quick brown fox. " * (STRETCH // 5)
    some = smollm2.encode(text, enough=100)

    assert 100 < len(some) < STRETCH // 3
    assert some == smollm2.encode(text)[: len(some)]


def test_the_beginning_of_a_long_text_is_that_of_all_its_tokens(smollm2: Tokenizer) -> None:
    text = "The quick brown fox. " * (STRETCH // 10)
    assert smollm2.beginning(text, 7) == smollm2.beginning(text[:1_000], 7)
    assert smollm2.beginning(text, 10**6) == text
