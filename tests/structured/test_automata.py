"""The two ways to llguidance, its C interface and its Python module, are one to their users."""

from __future__ import annotations

import gc
import json
import random

import pytest

from octavo.structured.automata import (
    MAX_GRAMMAR_SIZE,
    Automata,
    PythonAutomata,
    TokenTable,
    automata_over,
)
from octavo.structured.llguidance_c import CAutomata
from octavo.text.tokenizer import Tokenizer
from octavo.weights.source import open_checkpoint
from tests.structured.source_calls import SourceCalls
from tests.support.data import smollm2_path

NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
SCHEMA = json.dumps({"grammars": [{"json_schema": NAMED}]})
LARK = 'start: "yes" | /[0-9]{1,3}/'
SCHEMAS = [
    NAMED,
    {"type": "string"},
    {"type": "string", "maxLength": 3},
    {"type": "string", "pattern": "^a+b*$"},
    {"type": "string", "format": "uuid"},
    {"type": "number"},
    {"type": "integer", "minimum": -5, "maximum": 1000},
    {"enum": ["alpha", "alphabet", 7, None]},
    {"const": "a long constant text with spaces"},
    {"type": "array", "items": {"type": "string"}, "minItems": 2},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"anyOf": [{"type": "string", "format": "date"}, {"type": "boolean"}]},
    {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "ab": {}}, "required": ["ab"]},
]
GRAMMARS = [
    *(json.dumps({"grammars": [{"json_schema": schema}]}) for schema in SCHEMAS),
    LARK,
    'start: "x" /[0-9]{2}/ | "xy" start',
    'start: "a" ("b" | "c") "d" start | "end"',
    r"start: /(\n|.)*/",
    "start: /(ab)*/",
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_checkpoint(str(smollm2_path())).load_tokenizer()


def table(tokenizer: Tokenizer, *eos_token_ids: int) -> TokenTable:
    return TokenTable(
        tokenizer.vocabulary.bytes_of_all(tokenizer.vocab_size),
        tokenizer.special_ids,
        eos_token_ids,
        lambda text: tokenizer.encode(text, add_special_tokens=False),
    )


@pytest.fixture(scope="module")
def both(tokenizer: Tokenizer) -> list[Automata]:
    tokens = table(tokenizer, 2, 0)
    return [CAutomata(tokens, MAX_GRAMMAR_SIZE), PythonAutomata(tokens)]


def test_the_c_interface_is_the_one_that_is_used(tokenizer: Tokenizer) -> None:
    """With the installed version; with another one the Python module steps in."""
    assert isinstance(automata_over(table(tokenizer, 2)), CAutomata)


@pytest.mark.parametrize(
    ("grammar", "text"),
    [
        (SCHEMA, '{"name": "Ünal \\"the\\" tall \U0001f600"}'),
        (SCHEMA, '{\n "name":\t"a"\n}'),
        (LARK, "yes"),
        (LARK, "17"),
    ],
)
def test_masks_and_ends_are_the_same_at_every_token(
    both: list[Automata], tokenizer: Tokenizer, grammar: str, text: str
) -> None:
    ways = [automata.matcher(grammar) for automata in both]
    for token in [*tokenizer.encode(text, add_special_tokens=False), 2]:
        first, second = (way.compute_bitmask()[: tokenizer.vocab_size // 8] for way in ways)
        assert first == second
        assert [True, True] == [way.consume_token(token) for way in ways]
        assert ways[0].is_stopped() == ways[1].is_stopped()
    assert [True, True] == [way.is_stopped() for way in ways]
    assert [True, True] == [way.consume_token(2) for way in ways]  # the end may come again


def test_a_token_that_does_not_fit_is_refused_with_the_same_words(
    both: list[Automata], tokenizer: Tokenizer
) -> None:
    wrong = tokenizer.encode("no", add_special_tokens=False)[0]
    messages = []
    for automata in both:
        matcher = automata.matcher(LARK)
        assert not matcher.consume_token(wrong)
        assert matcher.is_error()
        messages.append(matcher.get_error())
    assert messages[0]
    assert messages[0] == messages[1]


def test_a_grammar_that_is_none_gives_the_same_error(both: list[Automata]) -> None:
    for grammar in ("start: (", '{"grammars": [{"json_schema": {"type": "thing"}}]}', "start: \0"):
        first, second = (automata.matcher(grammar) for automata in both)
        assert first.is_error()
        assert second.is_error()
        if "\0" not in grammar:
            assert first.get_error() == second.get_error()


def test_what_would_not_be_enforced_is_told_by_both(both: list[Automata]) -> None:
    loose = json.dumps({"grammars": [{"json_schema": {"type": "string", "format": "unheard-of"}}]})
    first, second = (automata.matcher(loose) for automata in both)
    assert bool(first.get_grammar_warnings()) == bool(second.get_grammar_warnings())
    assert first.is_error() == second.is_error()


def test_copies_go_their_own_ways_and_outlive_what_they_came_from(tokenizer: Tokenizer) -> None:
    """The vocabulary stays while a matcher needs it."""
    tokens = table(tokenizer, 2)
    one = CAutomata(tokens, MAX_GRAMMAR_SIZE).matcher(LARK)
    other = one.deep_copy()
    before = other.compute_bitmask()
    [digit] = tokenizer.encode("1", add_special_tokens=False)
    assert one.consume_token(digit)
    assert one.compute_bitmask() != before
    del one
    gc.collect()
    assert before == other.compute_bitmask()
    assert other.consume_token(tokenizer.encode("yes", add_special_tokens=False)[0])


def test_a_vocabulary_that_the_library_refuses_is_a_value_error(tokenizer: Tokenizer) -> None:
    """The end must be one of its tokens."""
    with pytest.raises(ValueError, match="out of range"):
        CAutomata(table(tokenizer, tokenizer.vocab_size), MAX_GRAMMAR_SIZE)


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_single_tokens_are_judged_as_the_mask_judges_them(
    tokenizer: Tokenizer, grammar: str
) -> None:
    """In every state that a text at random comes to, ends and special tokens included."""
    dice = random.Random(grammar)
    automata = CAutomata(table(tokenizer, 2, 0), MAX_GRAMMAR_SIZE)
    special, num_states = sorted(tokenizer.special_ids), 0
    for _ in range(4):
        matcher = automata.matcher(grammar)
        while not matcher.is_stopped() and num_states % 20 < 19:
            num_states += 1
            asked, source = matcher.deep_copy(), SourceCalls(matcher.deep_copy())
            mask = matcher.compute_bitmask()
            allowed = [i for i in range(tokenizer.vocab_size) if mask[i // 8] >> i % 8 & 1]
            some = dice.sample(allowed, min(100, len(allowed)))
            for token in [*special, *some, *dice.sample(range(tokenizer.vocab_size), 200)]:
                assert source.allows(token) == bool(mask[token // 8] >> token % 8 & 1), token
            if source.only >= 0:
                assert allowed == [source.only]
            token = next((token for token in some if token not in (0, 2)), 2)
            assert matcher.consume_token(token)
            assert asked.consume_token(token)
            source.tell(token)
            assert source.matcher.consume_token(token)
            assert source.matcher.is_stopped() == matcher.is_stopped() == asked.is_stopped()
            if not matcher.is_stopped():
                after = matcher.compute_bitmask()
                assert asked.compute_bitmask() == source.matcher.compute_bitmask() == after
        num_states += 1
    assert num_states > 4


def test_a_token_that_is_told_and_refused_is_refused_when_it_is_consumed(
    tokenizer: Tokenizer,
) -> None:
    """Whoever told it: nothing that a form does not allow becomes part of an answer."""
    source = SourceCalls(CAutomata(table(tokenizer, 2), MAX_GRAMMAR_SIZE).matcher(LARK))
    [wrong] = tokenizer.encode("no", add_special_tokens=False)[:1]
    assert not source.allows(wrong)
    source.tell(wrong)
    assert not source.matcher.consume_token(wrong)
    assert source.matcher.is_error()


def test_an_id_without_a_token_is_no_part_of_any_form(tokenizer: Tokenizer) -> None:
    """Though nothing in it could be wrong."""
    tokens = table(tokenizer, 2)
    padded = TokenTable(
        [*tokens.token_bytes, b"", b""], tokens.special_ids, tokens.eos_token_ids, tokens.encode
    )
    matcher = CAutomata(padded, MAX_GRAMMAR_SIZE).matcher(r"start: /(\n|.)*/")
    source = SourceCalls(matcher)
    for token in (tokenizer.vocab_size, tokenizer.vocab_size + 1):
        assert not source.allows(token)
        assert not matcher.compute_bitmask()[token // 8] >> token % 8 & 1
