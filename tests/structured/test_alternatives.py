"""`oneOf` is served where its parts exclude each other, and refused where that cannot be seen."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from octavo.structured.alternatives import tell_apart


def kind(name: str, **more: Any) -> dict[str, Any]:
    properties = {"kind": {"const": name}, "size": {"type": "integer"}}
    return {"type": "object", "properties": properties, "required": ["kind"], **more}


CAT, DOG = kind("cat"), kind("dog")
DEFINITIONS = {"cat": CAT, "dog": DOG, "pet": {"$ref": "#/$defs/cat"}}
APART: dict[str, list[Any]] = {
    "types": [{"type": "string"}, {"type": ["integer", "null"]}, {"type": "array"}],
    "constants": [{"const": "a"}, {"enum": ["b", None]}],
    "kinds": [CAT, DOG],
    "kinds behind references": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
    "a reference to a reference": [{"$ref": "#/$defs/pet"}, DOG],
    "a kind that one of them requires": [CAT, {**DOG, "required": []}],
    "a property that the other cannot have": [
        {"type": "object", "required": ["a"]},
        {"type": "object", "properties": {"b": {}}, "additionalProperties": False},
    ],
    "nothing": [CAT, False],
}
TOGETHER: dict[str, list[Any]] = {
    "whole numbers are numbers": [{"type": "integer"}, {"type": "number"}],
    "one number in two forms": [{"const": 1}, {"const": 1.0}],
    "a value of both": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}],
    "kinds that need not be there": [{**CAT, "required": []}, {**DOG, "required": []}],
    "kinds of what need be no object": [
        {name: value for name, value in one.items() if name != "type"} for one in (CAT, DOG)
    ],
    "an open object": [{"type": "object", "required": ["a"]}, {"type": "object"}],
    "names by a pattern": [
        {"type": "object", "required": ["a"]},
        {"type": "object", "patternProperties": {"a": {}}, "additionalProperties": False},
    ],
    "a reference with company": [{"$ref": "#/$defs/cat", "title": "Cat"}, DOG],
    "a reference to nothing": [{"$ref": "#/$defs/none"}, DOG],
    "a reference to itself": [{"$ref": "#/oneOf/0"}, DOG],
    "anything": [True, {"type": "string"}],
}


@pytest.mark.parametrize("name", APART)
def test_parts_that_exclude_each_other_are_alternatives(name: str) -> None:
    """In their place among the keywords, wherever they stand."""
    inner = {"title": "a", "oneOf": APART[name], "description": "b"}
    schema = {"items": inner, "$defs": copy.deepcopy(DEFINITIONS)}
    tell_apart(schema)

    assert list(schema["items"].items())[1] == ("anyOf", APART[name])
    assert list(schema["items"]) == ["title", "anyOf", "description"]


@pytest.mark.parametrize("name", TOGETHER)
def test_parts_that_may_hold_together_stay_what_they_are(name: str) -> None:
    schema = {"oneOf": copy.deepcopy(TOGETHER[name]), "$defs": DEFINITIONS}
    before = copy.deepcopy(schema)
    tell_apart(schema)

    assert schema == before


def test_beside_other_alternatives_it_stays_as_well() -> None:
    """A schema has one `anyOf`."""
    schema = {"oneOf": [CAT, DOG], "anyOf": [{}]}
    tell_apart(schema)

    assert schema == {"oneOf": [CAT, DOG], "anyOf": [{}]}
