"""Keywords of JSON Schema: what the automaton library enforces, what it would let through.

Owns the list of the standard's assertions, of any draft, that an answer would not be held to. They
are refused by name wherever they stand, whatever draft the schema says it is written in; where they
assert nothing they are taken out, because the library refuses what it does not know. Does not know
what the other keywords mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.structured.references import sub_schemas

Schema = dict[str, Any]
_Test = Callable[[Schema], bool]  # whether a schema's keyword asserts nothing

_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_SHOWN_PATH = 100  # characters


def _never(_: Schema) -> bool:
    return False


def _always(_: Schema) -> bool:
    return True


def _is(name: str, *values: Any) -> _Test:
    return lambda schema: any(schema[name] is value or schema[name] == value for value in values)


def _lacks(*names: str) -> _Test:
    return lambda schema: not any(name in schema for name in names)


# Keyword -> when it asserts nothing.
_NOT_ENFORCED: Mapping[str, _Test] = {
    "$dynamicRef": _never,
    "$recursiveRef": _never,
    "contentEncoding": _never,
    "contentMediaType": _never,
    "contentSchema": _never,
    "contains": lambda schema: schema.get("minContains") == 0 and "maxContains" not in schema,
    "dependencies": _is("dependencies", {}),
    "dependentRequired": _is("dependentRequired", {}),
    "dependentSchemas": _is("dependentSchemas", {}),
    "disallow": _never,
    "divisibleBy": _never,
    "else": _lacks("if"),
    "extends": _never,
    "if": _lacks("then", "else"),
    "not": _is("not", False),
    "propertyNames": _is("propertyNames", True, {}),
    "then": _lacks("if"),
    "unevaluatedItems": _is("unevaluatedItems", True, {}),
    "unevaluatedProperties": _is("unevaluatedProperties", True, {}),
    "uniqueItems": _is("uniqueItems", False),
    # Only beside others
    "maxContains": _lacks("contains"),
    "minContains": _always,
    # For readers of schemas
    "$dynamicAnchor": _always,
    "$recursiveAnchor": _always,
    "$vocabulary": _always,
    "deprecated": _always,
}


def keep_enforced(root: Schema, param: str) -> None:
    """Take out of a schema, in place, what asserts nothing. The caller has bounded its depth.

    Raises InvalidRequestError that names `param`, the first keyword that would not be enforced, and
    where it stands.
    """
    for path, schema in sub_schemas(root):
        for keyword in [name for name in schema if name in _NOT_ENFORCED]:
            if not _NOT_ENFORCED[keyword](schema):
                raise _refusal(param, path, keyword, "would not be enforced; leave it out")
        for keyword in [name for name in schema if name in _NOT_ENFORCED]:
            del schema[keyword]
        _check_counts(schema, param, path)
        for keyword in (*_NUMBERS, "const", "enum"):
            if keyword in schema and not _is_exact(schema[keyword]):
                raise _refusal(
                    param, path, keyword, "has a number that 64-bit floating point cannot hold"
                )


def _check_counts(schema: Schema, param: str, path: str) -> None:
    """Further properties may come twice, and then count as two for the library and as one in JSON.

    One that is needed beside the required ones cannot.
    """
    least, required = schema.get("minProperties"), schema.get("required")
    if not isinstance(least, int | float):
        return
    num_required = len(set(map(str, required))) if isinstance(required, list) else 0
    is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    if least > num_required + 1 and not is_closed:
        raise _refusal(
            param,
            path,
            "minProperties",
            "would not be enforced where names are free; require properties by name",
        )


def _is_exact(value: Any) -> bool:
    """Whether all numbers in a value are what the library makes of them."""
    if isinstance(value, list):
        return all(map(_is_exact, value))
    if isinstance(value, dict):
        return all(map(_is_exact, value.values()))
    try:
        return not isinstance(value, int) or int(float(value)) == value
    except OverflowError:
        return False


def _refusal(param: str, path: str, keyword: str, why: str) -> InvalidRequestError:
    where = path if len(path) <= _SHOWN_PATH else path[:_SHOWN_PATH] + "..."
    return InvalidRequestError(f"{param}: the keyword {keyword!r} in {where} {why}", param=param)
