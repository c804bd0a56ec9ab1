"""Grammars: what users ask for becomes a constraint, or a refusal that says what to do."""

from __future__ import annotations

import sys

import pytest

from octavo.contracts.grammar import GrammarSpec, ThinkingSpec
from octavo.engine.grammars import Grammars, grammar_spec
from octavo.errors import InvalidRequestError
from octavo.sampling_params import StructuredOutputsParams
from tests.support.imports import forget_modules
from tests.support.tiny_tokenizer import END, tiny_id, tiny_tokenizer

DIGITS = StructuredOutputsParams(regex="[0-9]")


def make_grammars() -> Grammars:
    tokenizer = tiny_tokenizer()
    return Grammars(tokenizer, tokenizer.vocab_size, (tiny_id(END),))


@pytest.mark.parametrize(
    ("wanted", "spec"),
    [
        (DIGITS, GrammarSpec(kind="regex", source="[0-9]")),
        (
            StructuredOutputsParams(json={"a": 1}),
            GrammarSpec(kind="json_schema", source='{"a": 1}'),
        ),
        (StructuredOutputsParams(json="{}"), GrammarSpec(kind="json_schema", source="{}")),
        (StructuredOutputsParams(choice=["a"]), GrammarSpec(kind="choice", source='["a"]')),
        (StructuredOutputsParams(json_object=True), GrammarSpec(kind="json_object")),
    ],
)
def test_objects_travel_as_text(wanted: StructuredOutputsParams, spec: GrammarSpec) -> None:
    assert grammar_spec(wanted) == spec


def test_what_is_no_json_is_refused() -> None:
    wanted = StructuredOutputsParams(json={"a": object()})
    with pytest.raises(InvalidRequestError, match=r"structured_outputs\.json is no JSON value"):
        grammar_spec(wanted)


def test_two_constraints_of_one_grammar_share_no_state() -> None:
    grammars = make_grammars()
    grammars.check(DIGITS)
    first = grammars.constraint(grammar_spec(DIGITS), None)
    second = grammars.constraint(grammar_spec(DIGITS), None)
    assert first is not None
    assert second is not None
    mask = second.mask()
    [seven] = tiny_tokenizer().encode("7")

    assert first.accept(seven)
    assert second.mask() == mask


def test_a_request_without_a_form_needs_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do thoughts; a form does, and the refusal says what to install."""
    forget_modules(monkeypatch, "octavo.structured.")
    monkeypatch.setitem(sys.modules, "llguidance", None)
    grammars = make_grammars()

    assert grammars.constraint(None, None) is None
    assert grammars.constraint(None, ThinkingSpec(end_token_id=4)) is not None
    with pytest.raises(InvalidRequestError, match="pip install llguidance"):
        grammars.check(DIGITS)
