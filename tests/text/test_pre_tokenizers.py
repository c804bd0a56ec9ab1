"""Words are cut as the pre-tokenizer named in a GGUF file cuts them."""

from __future__ import annotations

import pytest
from tokenizers import pre_tokenizers

from octavo.errors import UnsupportedModelError
from octavo.text.pre_tokenizers import WORD_RULES, word_rule
from octavo.text.spelling import byte_level_bytes
from tests.support.hard_strings import hard_strings


def words(name: str, text: str) -> list[str]:
    """The words of a text, spelled in ordinary characters."""
    pieces = word_rule(name).pre_tokenizer().pre_tokenize_str(text)
    return [byte_level_bytes(piece).decode("utf-8", "replace") for piece, _ in pieces]


@pytest.mark.parametrize("name", list(WORD_RULES))
def test_no_rule_loses_or_adds_a_byte(name: str) -> None:
    """Every expression compiles, and the words join to the text."""
    cut = word_rule(name).pre_tokenizer()
    for text in hard_strings(200):
        spelled = "".join(piece for piece, _ in cut.pre_tokenize_str(text))
        assert text.encode() == byte_level_bytes(spelled)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", ["I", "'m", " 1234", "  ", " DON", "'", "T", "\n", "\n", "x"]),
        ("smollm", ["I", "'m", " ", "1", "2", "3", "4", "  ", " DON", "'", "T", "\n", "\n", "x"]),
        ("llama-bpe", ["I", "'m", " ", "123", "4", "  ", " DON", "'T", "\n\n", "x"]),
        ("qwen2", ["I", "'m", " ", "1", "2", "3", "4", "  ", " DON", "'T", "\n\n", "x"]),
        ("tekken", ["I", "'m", " ", "1", "2", "3", "4", "  ", " DON", "'T", "\n\n", "x"]),
        ("gpt-4o", ["I'm", " ", "123", "4", "  ", " DON'T", "\n\n", "x"]),
        ("deepseek-v3", ["I", "'m", " ", "123", "4", "  ", " DON", "'T", "\n\n", "x"]),
        ("default", ["I", "'", "m", " ", "123", "4", "  ", " DON", "'", "T", "\n", "\n", "x"]),
        ("falcon", ["I", "'", "m", " ", "123", "4", "  ", " DON", "'", "T", "\n", "\n", "x"]),
        ("bloom", ["I'm", " 1234", "  ", " DON'T", "\n\n", "x"]),
    ],
)
def test_rules_differ_in_contractions_digits_and_white_space(
    name: str, expected: list[str]
) -> None:
    """One sentence that shows most of it."""
    assert expected == words(name, "I'm 1234   DON'T\n\nx")


def test_gpt2_cuts_as_the_library_does() -> None:
    """The library has GPT-2's expression built in."""
    oracle = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    ours = word_rule("gpt-2").pre_tokenizer()
    for text in hard_strings(1500):
        expected = [piece for piece, _ in oracle.pre_tokenize_str(text)]
        assert expected == [piece for piece, _ in ours.pre_tokenize_str(text)]


def test_single_digits_cut_as_the_library_does() -> None:
    """StarCoder, SmolLM and Command R: digits first, then GPT-2."""
    oracle = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    ours = word_rule("smollm").pre_tokenizer()
    for text in hard_strings(1500):
        expected = [piece for piece, _ in oracle.pre_tokenize_str(text)]
        assert expected == [piece for piece, _ in ours.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("llama-bpe", "d'ſ", ["d", "'ſ"]),
        ("deepseek-v3", "漢字かなabc,x", ["漢字かな", "abc", ",x"]),
        ("deepseek-coder", "a\r\nb 12漢", ["a", "\r", "\n", "b", " ", "1", "2", "漢"]),
        ("deepseek-llm", "Ωμέγα漢字 한글!! a", ["Ωμέγα", "漢字", " ", "한글", "!!", " a"]),
        ("qwen35", "नमस्ते", ["नमस्ते"]),
        ("qwen2", "नमस्ते", ["नमस", "्त", "े"]),
        ("seed-coder", "!!\n", ["!!", "\n"]),
        ("llama-bpe", "!!\n", ["!!\n"]),
        ("gpt-4o", "a/\n/", ["a", "/\n/"]),
        ("viking", "ab12, c", ["ab", "1", "2", ",", " c"]),
    ],
)
def test_rules_know_their_scripts_and_signs(name: str, text: str, expected: list[str]) -> None:
    """The corner in which a rule differs from its neighbours."""
    assert expected == words(name, text)


def test_an_unknown_name_lists_the_known_ones() -> None:
    """So that somebody can tell whether a relative would do."""
    with pytest.raises(UnsupportedModelError, match=r"llama-bpe, .*smollm"):
        word_rule("zzz")
