"""Every assertion of the standard is enforced, or refused by its name and place."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from octavo.errors import InvalidRequestError
from octavo.structured.keywords import keep_enforced

REFUSED: list[dict[str, Any]] = [
    {"$dynamicRef": "#a"},
    {"$recursiveRef": "#"},
    {"contains": {"type": "string"}},
    {"contains": {}, "minContains": 0, "maxContains": 2},
    {"contentEncoding": "base64"},
    {"contentMediaType": "a/b"},
    {"contentSchema": {}},
    {"dependencies": {"a": ["b"]}},
    {"dependentRequired": {"a": ["b"]}},
    {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"disallow": "string"},
    {"divisibleBy": 2},
    {"extends": {}},
    {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
    {"if": {"required": ["a"]}, "else": {"required": ["b"]}},
    {"not": {"type": "string"}},
    {"propertyNames": {"maxLength": 3}},
    {"unevaluatedItems": False},
    {"unevaluatedProperties": False},
    {"uniqueItems": True},
    {"minProperties": 2},
    {"minProperties": 3, "required": ["a"], "patternProperties": {"b": {}}},
    {"const": 2**53 + 1},
    {"enum": ["a", {"b": [-(2**60) - 1]}]},
    {"minimum": 2**63 + 1},
    {"maximum": 10**400},
]


@pytest.mark.parametrize("schema", REFUSED, ids=" ".join)
@pytest.mark.parametrize("draft", ["", "http://json-schema.org/draft-04/schema#"])
def test_what_would_not_be_enforced_is_refused_by_name_wherever_it_stands(
    schema: dict[str, Any], draft: str
) -> None:
    """In whatever draft the schema claims to be written, which may not know the keyword."""
    keyword = next(iter(schema))
    for place, whole in {
        "#": copy.deepcopy(schema),
        "#/properties/a": {"properties": {"a": schema}},
        "#/items": {"items": schema},
        "#/items/0": {"items": [schema]},
        "#/anyOf/1/additionalProperties": {"anyOf": [True, {"additionalProperties": schema}]},
        "#/$defs/a": {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": schema}},
        "#/parts/0": {"$ref": "#/parts/0", "parts": [schema]},
        "#/definitions/a": {"$ref": "#anchor", "definitions": {"a": schema}},
    }.items():
        with pytest.raises(
            InvalidRequestError, match=f"'\\{keyword}'" if keyword[0] == "$" else f"'{keyword}'"
        ) as refusal:
            keep_enforced({"$schema": draft, **whole} if draft else whole, "response_format")
        assert f"in {place} " in str(refusal.value)
        assert refusal.value.param == "response_format"


NEUTRAL: list[dict[str, Any]] = [
    {"$dynamicAnchor": "a"},
    {"$recursiveAnchor": True},
    {"$vocabulary": {"a": True}},
    {"contains": {"type": "string"}, "minContains": 0},
    {"dependentRequired": {}},
    {"deprecated": True},
    {"else": {"required": ["a"]}},
    {"if": {"required": ["a"]}},
    {"maxContains": 3},
    {"not": False},
    {"propertyNames": True},
    {"then": {"required": ["a"]}},
    {"unevaluatedItems": {}},
    {"unevaluatedProperties": True},
    {"uniqueItems": False},
]


@pytest.mark.parametrize("schema", NEUTRAL, ids=" ".join)
def test_what_asserts_nothing_is_taken_out(schema: dict[str, Any]) -> None:
    whole = {"items": {"type": "string", **schema}}
    keep_enforced(whole, "response_format")

    assert whole == {"items": {"type": "string"}}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"not": {"type": "string"}, "contains": {}}},
        {"enum": [{"not": 1}], "const": {"if": 2}, "default": {"contains": 3}},
        {"minProperties": 2, "required": ["a"]},
        {"minProperties": 9, "additionalProperties": False},
        {"const": 2**53, "minimum": 0.1, "maximum": 1e300, "enum": [True, 2**60]},
        {"$defs": {"never used": {"not": {}}}, "properties": {"a": {"$ref": "#"}}},
    ],
)
def test_names_and_values_are_no_keywords_and_what_nothing_leads_to_does_not_count(
    schema: dict[str, Any],
) -> None:
    whole = copy.deepcopy(schema)
    keep_enforced(whole, "response_format")

    assert whole == schema
