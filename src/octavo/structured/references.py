"""The parts of a schema, and where a `$ref` that is a path leads to.

References by an id, an anchor or an address are the automaton library's; nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

Schema = dict[str, Any]

_SCHEMA_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SCHEMA_MAPS = ("properties", "patternProperties")
_DEFINITIONS = ("$defs", "definitions")
_SCHEMAS = ("items", "additionalItems", "additionalProperties")


class NoTargetError(Exception):
    """A reference that is not a path, leads to nothing, or passes a part with an id of its own."""


def target_of(root: dict[str, Any], reference: object) -> Any:
    """What a reference into `root` by its path, such as `#/$defs/a`, leads to.

    Raises NoTargetError.
    """
    if not isinstance(reference, str) or not (reference + "/").startswith("#/"):
        raise NoTargetError(reference)
    target: Any = root
    for step in reference[2:].split("/") if len(reference) > 1 else ():
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        try:
            target = target[int(key)] if isinstance(target, list) else target[key]
        except (KeyError, IndexError, TypeError, ValueError):
            raise NoTargetError(reference) from None
        if has_id(target):
            raise NoTargetError(reference)
    return target


def has_id(schema: object) -> bool:
    """Whether paths inside `schema` begin at it and not at the root."""
    return isinstance(schema, dict) and any(
        isinstance(schema.get(name), str) for name in ("$id", "id")
    )


def sub_schemas(root: Schema) -> Iterator[tuple[str, Schema]]:
    """(path, schema) of the schema and all schemas in it that it uses; they may be changed.

    Definitions count where a reference leads to them; all of them where one cannot be followed.
    """
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("#", root)]
    definitions: list[tuple[str, Any]] = []
    uses_all = False
    while waiting:
        path, schema = waiting.pop()
        if isinstance(schema, dict) and id(schema) not in seen:
            seen.add(id(schema))
            inside = list(_inside(path, schema, _SCHEMA_MAPS))
            definitions += _inside(path, schema, _DEFINITIONS)
            if "$ref" in schema:
                try:
                    inside.append((str(schema["$ref"]), target_of(root, schema["$ref"])))
                except NoTargetError:
                    uses_all = True
            yield path, schema
            waiting += reversed(inside)
        if not waiting and uses_all:
            waiting, definitions = definitions, []


def _inside(path: str, schema: Schema, maps: Sequence[str]) -> Iterator[tuple[str, Any]]:
    for keyword in maps:
        inner = schema.get(keyword)
        for name, one in inner.items() if isinstance(inner, dict) else ():
            yield f"{path}/{keyword}/{name}", one
    if maps is _DEFINITIONS:
        return
    for keyword in _SCHEMAS:
        if keyword in schema:
            yield f"{path}/{keyword}", schema[keyword]
    for keyword in _SCHEMA_LISTS:
        inner = schema.get(keyword)
        for number, one in enumerate(inner if isinstance(inner, list) else ()):
            yield f"{path}/{keyword}/{number}", one
