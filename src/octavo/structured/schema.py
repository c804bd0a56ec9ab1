"""JSON schemas and lists of choices -> grammars of the automaton library, or a refusal by name.

Owns what the library would let through: annotations that people believe to be enforced, options
inside a schema that would loosen it, whitespace without end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import llguidance

from octavo.errors import InvalidRequestError
from octavo.structured.limits import MAX_CHOICES

# Between two parts of a document. Models that have lost the thread would fill the answer with
# blanks.
_WHITESPACE = r"[\x20\x0A\x0D\x09]{1,16}"
_OPTIONS: llguidance._lib.JsonCompileOptions = {
    "whitespace_pattern": _WHITESPACE,
    "whitespace_flexible": True,
    "lenient": False,  # an unknown keyword of the standard is an error
}
# Assertions of the standard that the library takes for annotations.
_NOT_ENFORCED = ("contentEncoding", "contentMediaType", "contentSchema", "$recursiveRef")
_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_SCHEMAS = ("items", "additionalProperties")


def schema_grammar(source: str, param: str) -> str:
    """The grammar of the documents that fit the JSON schema in `source`.

    Raises InvalidRequestError that names what is wrong or would not be enforced.
    """
    schema = _parsed(source, param)
    if isinstance(schema, bool):
        schema = {} if schema else {"not": {}}
    if not isinstance(schema, dict):
        raise InvalidRequestError(
            f"{param} must be a JSON schema, which is an object, got {type(schema).__name__}",
            param=param,
        )
    for sub_schema in _sub_schemas(schema):
        for keyword in _NOT_ENFORCED:
            if keyword in sub_schema:
                raise InvalidRequestError(
                    f"{param}: the keyword {keyword!r} would not be enforced; leave it out",
                    param=param,
                )
    return _grammar_of(schema)


def object_grammar() -> str:
    """The grammar of any JSON object."""
    return _grammar_of({"type": "object"})


def choice_grammar(source: str, param: str) -> str:
    """The grammar of one out of some texts; `source` is a JSON list of strings."""
    choices = _parsed(source, param)
    is_list = isinstance(choices, list) and all(isinstance(choice, str) for choice in choices)
    if not is_list or not choices:
        raise InvalidRequestError(f"{param} must be a list of at least one text", param=param)
    if len(choices) > MAX_CHOICES:
        raise InvalidRequestError(
            f"{param} has {len(choices)} texts, at most {MAX_CHOICES} are allowed", param=param
        )
    if not all(choices):
        raise InvalidRequestError(f"{param} must not have an empty text", param=param)
    alternatives = " | ".join(_lark_text(choice) for choice in dict.fromkeys(choices))
    return llguidance.LLMatcher.grammar_from_lark(f"start: {alternatives}")


def json_rule(schema: Any) -> str:
    """A Lark rule body that stands for the documents of a schema."""
    options = {**_OPTIONS}
    return "%json " + json.dumps({**_without_options(schema), "x-guidance": options})


def _grammar_of(schema: dict[str, Any]) -> str:
    return llguidance.LLMatcher.grammar_from_json_schema(
        json.dumps(_without_options(schema)), overrides=_OPTIONS
    )


def _without_options(schema: dict[str, Any]) -> dict[str, Any]:
    """Requests do not set the library's own options."""
    return {name: value for name, value in schema.items() if name != "x-guidance"}


def _parsed(source: str, param: str) -> Any:
    try:
        return json.loads(source)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{param} is not valid JSON: {error}", param=param) from None


def _sub_schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and the schemas inside it. The caller has bounded the depth."""
    if not isinstance(schema, dict):
        return
    yield schema
    for name in _SCHEMAS:
        yield from _sub_schemas(schema.get(name))
    for name in _SCHEMA_LISTS:
        inner = schema.get(name)
        for one in inner if isinstance(inner, list) else ():
            yield from _sub_schemas(one)
    for name in _SCHEMA_MAPS:
        inner = schema.get(name)
        for one in inner.values() if isinstance(inner, dict) else ():
            yield from _sub_schemas(one)


def _lark_text(text: str) -> str:
    """A text as Lark writes it: JSON's escapes are a subset of its own."""
    return json.dumps(text)
