"""vLLM's spellings of flags become the one that the parser knows."""

from __future__ import annotations

import json

import pytest

from octavo.config.words import plain_words
from octavo.errors import ConfigError

OBJECTS = {"--pooler-config": "--pooler-config", "-cc": "--compilation-config"}


def joined(*words: str) -> dict[str, object]:
    """The object that the words make for one flag; nothing else may be left of them."""
    [flag, text] = plain_words(words, OBJECTS)
    assert flag in OBJECTS.values()
    value: dict[str, object] = json.loads(text)
    return value


@pytest.mark.parametrize(
    ("words", "plain"),
    [
        (["--max_num_seqs", "8"], ["--max-num-seqs", "8"]),
        (["--max_num_seqs=a_b"], ["--max-num-seqs=a_b"]),
        (["my_model", "--api-key", "a_b"], ["my_model", "--api-key", "a_b"]),
        (["--help=ModelConfig"], ["--help"]),
        (["-i./in_put.jsonl", "-1.5", "-"], ["-i./in_put.jsonl", "-1.5", "-"]),
        (["--", "--max_num_seqs"], ["--", "--max_num_seqs"]),
    ],
)
def test_only_names_of_flags_are_rewritten(words: list[str], plain: list[str]) -> None:
    """Values, models and what follows `--` stay as they are."""
    assert plain_words(words, OBJECTS) == plain


def test_parts_become_one_object() -> None:
    """A value is JSON, a count, or a text; the names of parts stay as they are."""
    assert joined(
        *("--pooler_config.a_b.c", "true", "--pooler-config.size=8k"),
        *("--pooler-config.kind", "MEAN", "--pooler-config.list", "[1]"),
    ) == {"a_b": {"c": True}, "size": 8000, "kind": "MEAN", "list": [1]}


def test_a_short_name_takes_parts_too() -> None:
    """As vLLM's `-cc.mode 3`."""
    assert joined("-cc.mode", "3") == {"mode": 3}


@pytest.mark.parametrize("whole", [("--pooler-config", '{"a": 1}'), ('--pooler-config={"a": 1}',)])
def test_parts_are_set_in_the_whole_object_in_whatever_order(whole: tuple[str, ...]) -> None:
    """Neither takes the other's place in silence."""
    parts = ("--pooler-config.b", "2")
    assert joined(*whole, *parts) == joined(*parts, *whole) == {"a": 1, "b": 2}


def test_a_plus_goes_on_with_a_list() -> None:
    """Texts, apart or with commas."""
    words = ("--pooler-config.l+", "a,b", "--pooler-config.l+=c")
    assert joined(*words) == {"l": ["a", "b", "c"]}


def test_words_around_an_object_keep_their_order() -> None:
    """The model first, say."""
    plain = plain_words(["m", "--pooler-config.a", "1", "--port", "1"], OBJECTS)
    assert plain == ["m", "--port", "1", "--pooler-config", '{"a": 1}']


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--pooler-config.a"], "--pooler-config.a needs a value"),
        (["--pooler-config.a", "--port"], "--pooler-config.a needs a value"),
        (["--pooler-config.a", "1", "--pooler-config.a.b", "2"], "a has a value and can have no"),
        (["--pooler-config.a", "1", "--pooler-config.a+", "2"], "a is no list to go on with"),
        (["--pooler-config", "[1]", "--pooler-config.a", "1"], "must be a JSON object, got [1]"),
    ],
)
def test_a_part_that_cannot_be_set_is_refused(words: list[str], told: str) -> None:
    """By its name."""
    with pytest.raises(ConfigError) as error:
        plain_words(words, OBJECTS)

    assert told in str(error.value)
