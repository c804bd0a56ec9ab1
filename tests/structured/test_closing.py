"""Closing a schema: no further properties where it names some, unless it says so itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from octavo.structured.closing import MAX_FORMS, closed

X = {"properties": {"x": {"type": "integer"}}, "required": ["x"]}
Y = {"properties": {"y": {"type": "string"}}, "required": ["y"]}


def names(schema: dict[str, Any]) -> tuple[list[str], Any]:
    """What a closed object may have, and what it says of the rest."""
    return list(schema["properties"]), schema.get("additionalProperties")


def test_an_object_that_names_its_properties_takes_no_others() -> None:
    assert closed(X) == {**X, "additionalProperties": False}


def test_so_does_every_object_inside() -> None:
    inner = {"type": "object", **X}
    found = closed(
        {
            "properties": {"a": inner, "b": {"items": inner}},
            "patternProperties": {"c": {"prefixItems": [inner]}},
        }
    )

    assert names(found["properties"]["a"]) == (["x"], False)
    assert names(found["properties"]["b"]["items"]) == (["x"], False)
    assert names(found["patternProperties"]["c"]["prefixItems"][0]) == (["x"], False)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object"},
        {"type": "object", "required": ["a"]},
        {**X, "additionalProperties": True},
        {**X, "additionalProperties": {"type": "string"}},
        {**X, "patternProperties": {"^a": {}}},
        {"enum": [{"properties": {"a": 1}}]},
        {"allOf": [X, {"additionalProperties": {"type": "string"}}]},
        {"allOf": [{"anyOf": [X, {"patternProperties": {}}]}]},
    ],
)
def test_what_speaks_of_further_properties_or_names_none_stays_as_it_is(schema: Any) -> None:
    assert closed({"items": schema}) == {"items": schema}


def test_parts_of_one_object_allow_the_names_of_each_other() -> None:
    """Otherwise no object would fit both."""
    first, second = closed({"allOf": [X, Y]})["allOf"]

    assert names(first) == (["x", "y"], False)
    assert first["properties"]["y"] is True
    assert names(second) == (["y", "x"], False)


def test_a_name_that_is_only_required_is_allowed() -> None:
    assert names(closed({**X, "allOf": [{"required": ["z"]}]})) == (["x", "z"], False)


def test_alternatives_allow_what_stands_beside_them_but_not_each_other() -> None:
    found = closed({**X, "anyOf": [Y, {"properties": {"z": {}}}]})

    assert names(found) == (["x", "y", "z"], False)
    assert [names(one)[0] for one in found["anyOf"]] == [["y", "x"], ["z", "x"]]


def test_a_definition_has_a_form_for_each_company_that_it_keeps() -> None:
    """Alone it takes its own names; beside others theirs as well."""
    found = closed(
        {
            "properties": {
                "alone": {"$ref": "#/$defs/x"},
                "beside": {"allOf": [{"$ref": "#/$defs/x"}, Y]},
                "again": {"$ref": "#/$defs/x"},
            },
            "$defs": {"x": X},
        }
    )
    parts = found["properties"]
    form = {name.rpartition("/")[2]: names(one)[0] for name, one in found["$defs"].items()}

    def form_at(schema: dict[str, Any]) -> list[str]:
        return form[schema["$ref"].rpartition("/")[2]]

    assert len(form) == 2
    assert form_at(parts["alone"]) == form_at(parts["again"]) == ["x"]
    assert form_at(parts["beside"]["allOf"][0]) == ["x", "y"]
    assert names(parts["beside"]["allOf"][1]) == (["y", "x"], False)


def test_a_schema_that_holds_itself_closes_at_every_depth() -> None:
    tree = {"properties": {"children": {"items": {"$ref": "#"}}}}
    found = closed(tree)
    [form] = found["$defs"].values()

    assert names(found) == (["children"], False)
    assert names(form) == (["children"], False)
    assert form["properties"]["children"]["items"] == found["properties"]["children"]["items"]


@pytest.mark.parametrize("path", ["#/$defs/a~1b%25", "#/definitions/list/1"])
def test_paths_are_read_as_the_standard_writes_them(path: str) -> None:
    schema = {"items": {"$ref": path}, "$defs": {"a/b%": X}, "definitions": {"list": [Y, X]}}

    assert list(closed(schema)["$defs"].values()) == [{**X, "additionalProperties": False}]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor", **X}}},
        {"$ref": "other.json"},
        {"$ref": "#/$defs/none"},
        {"$ref": 7},
        {"properties": {"a": {"$id": "inner", **X}}},
        {"$ref": "#/$defs/a/properties/x", "$defs": {"a": {"$id": "inner", **X}}},
        {"allOf": [{"$ref": "#"}]},
    ],
)
def test_what_cannot_be_followed_is_left_to_the_library(schema: dict[str, Any]) -> None:
    """An endless chain of references too: it has an end here, and means nothing."""
    found = closed(schema)

    assert found == schema or "additionalProperties" not in json.dumps(found)


def test_forms_are_bounded() -> None:
    """A schema in which definitions multiply stays open."""
    definitions: dict[str, Any] = {"0": X}
    for number in range(1, 40):
        reference = {"$ref": f"#/$defs/{number - 1}"}
        definitions[str(number)] = {
            "anyOf": [{**reference, "properties": {f"{side}{number}": {}}} for side in "ab"]
        }
    schema = {"$ref": "#/$defs/39", "$defs": definitions}

    assert closed(schema) is schema
    assert MAX_FORMS < 2**39
