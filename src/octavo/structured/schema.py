"""JSON schemas and lists of choices -> grammars of the automaton library, or a refusal by name.

Owns the options of the library: nothing in a request loosens them, and whitespace has an end. Which
keywords are enforced is `keywords.py`'s to know, what they mean `dialect.py`'s; further properties
are `closing.py`'s.
"""

from __future__ import annotations

import json
from typing import Any

import llguidance

from octavo.errors import InvalidRequestError
from octavo.structured.alternatives import tell_apart
from octavo.structured.closing import closed
from octavo.structured.dialect import rewrite
from octavo.structured.keywords import keep_enforced
from octavo.structured.limits import check_choices

# Between two parts of a document. Models that have lost the thread would fill the answer with
# blanks.
_WHITESPACE = r"[\x20\x0A\x0D\x09]{1,16}"
_OPTIONS: llguidance._lib.JsonCompileOptions = {
    "whitespace_pattern": _WHITESPACE,
    "whitespace_flexible": True,
    "lenient": False,  # an unknown keyword of the standard is an error
}


def schema_grammar(source: str, param: str, *, closes: bool) -> str:
    """The grammar of the documents that fit the JSON schema in `source`.

    With `closes`, of those without properties that the schema does not name; see `closing.py`.
    Raises InvalidRequestError that names what is wrong or would not be enforced.
    """
    return _grammar_of(checked_schema(_parsed(source, param), param, closes=closes))


def checked_schema(schema: Any, param: str, *, closes: bool) -> dict[str, Any]:
    """A schema that the library enforces, made of a JSON value, which is used up.

    Raises as `schema_grammar`.
    """
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        raise InvalidRequestError(
            f"{param} must be a JSON schema, which is an object, got {type(schema).__name__}",
            param=param,
        )
    schema.pop("x-guidance", None)  # requests do not set the library's own options
    keep_enforced(schema, param)
    rewrite(schema)
    tell_apart(schema)
    return closed(schema) if closes else schema


def object_grammar() -> str:
    """The grammar of any JSON object."""
    return _grammar_of({"type": "object"})


def choice_grammar(source: str, param: str) -> str:
    """The grammar of one out of some texts; `source` is a JSON list of strings."""
    choices = _parsed(source, param)
    is_list = isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)
    if not is_list or not choices:
        raise InvalidRequestError(f"{param} must be a list of at least one text", param=param)
    check_choices(choices, param)
    if not all(choices):
        raise InvalidRequestError(f"{param} must not have an empty text", param=param)
    alternatives = " | ".join(_lark_text(choice) for choice in dict.fromkeys(choices))
    return llguidance.LLMatcher.grammar_from_lark(f"start: {alternatives}")


def json_rule(schema: dict[str, Any]) -> str:
    """A Lark rule body that stands for the documents of a checked schema."""
    return "%json " + json.dumps({**schema, "x-guidance": _OPTIONS})


def _grammar_of(schema: dict[str, Any]) -> str:
    return llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=_OPTIONS)


def _parsed(source: str, param: str) -> Any:
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{param} is not valid JSON: {error}", param=param) from None


def _lark_text(text: str) -> str:
    """A text as Lark writes it: JSON's escapes are a subset of its own."""
    return json.dumps(text)
