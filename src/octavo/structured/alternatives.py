"""`oneOf` whose parts exclude each other is `anyOf`, which can be enforced.

Owns how that is seen: parts of different types, constants that differ, a property that one part
requires and the other gives no such value. References are followed, which the automaton library
does not do, and which unions with a discriminator need. What cannot be told apart stays `oneOf`,
and is refused by the library.
"""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

from octavo.structured.references import NoTargetError, Schema, sub_schemas, target_of

_MAX_PARTS = 200  # every two of them are compared
_MAX_REFERENCES = 20  # one after the other
_ALL_TYPES = frozenset(("null", "boolean", "number", "string", "array", "object"))


def tell_apart(root: Schema) -> None:
    """Write `oneOf` as `anyOf`, in place, where its parts exclude each other."""
    for _, schema in sub_schemas(root):
        parts = schema.get("oneOf")
        if not isinstance(parts, list) or "anyOf" in schema or len(parts) > _MAX_PARTS:
            continue
        resolved = [_resolved(root, part) for part in parts]
        if all(_exclude(root, *pair) for pair in combinations(resolved, 2)):
            # In its place, because the order of keywords is the order of properties in answers.
            items = list(schema.items())
            schema.clear()
            schema |= {("anyOf" if name == "oneOf" else name): value for name, value in items}


def _resolved(root: Schema, schema: Any) -> Any:
    """What a schema that is nothing but a reference stands for."""
    for _ in range(_MAX_REFERENCES):
        if not isinstance(schema, dict) or "$ref" not in schema:
            break
        try:
            target = target_of(root, schema["$ref"])
        except NoTargetError:
            break
        if isinstance(target, dict) and len(schema) == 1:
            schema = target
        else:
            break
    return schema


def _exclude(root: Schema, first: Any, second: Any) -> bool:
    """Whether no value can fit both. False where that is not seen."""
    if first is False or second is False:
        return True
    if not isinstance(first, dict) or not isinstance(second, dict):
        return False
    types = _types_of(first) & _types_of(second)
    if not types:
        return True
    values, others = _values_of(first), _values_of(second)
    if values is not None and others is not None and not values & others:
        return True
    return types == {"object"} and any(
        _excludes_property(root, name, one, other)
        for one, other in ((first, second), (second, first))
        for name in _required(one)
    )


def _excludes_property(root: Schema, name: str, one: Schema, other: Schema) -> bool:
    """Whether a property that `one` requires cannot be what `other` takes."""
    properties, theirs = _properties(one), _properties(other)
    if name in properties and name in theirs:
        return _exclude(root, _resolved(root, properties[name]), _resolved(root, theirs[name]))
    is_closed = other.get("additionalProperties") is False and "patternProperties" not in other
    return is_closed and name not in theirs


def _types_of(schema: Schema) -> frozenset[str]:
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(names, list):
        return _ALL_TYPES
    return frozenset("number" if name == "integer" else str(name) for name in names)


def _values_of(schema: Schema) -> set[str] | None:
    """The only values that there are, written out; None where they are not listed.

    Numbers are left alone: 1 and 1.0 are one value.
    """
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not isinstance(listed, list):
        return None
    if not all(value is None or isinstance(value, str | bool) for value in listed):
        return None
    return {json.dumps(value) for value in listed}


def _required(schema: Schema) -> list[str]:
    names = schema.get("required")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _properties(schema: Schema) -> Schema:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}
