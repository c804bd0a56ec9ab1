"""Numbers and switches that requests may write as texts, in the schemas of their bodies.

Bodies are decoded as vLLM decodes them: `"5"` is 5, and 1 is true (`bodies.py`). The schemas that
msgspec makes know only the strict way; this says the rest. Schemas of answers stay strict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any

Json = dict[str, Any]
_PREFIX = "#/components/schemas/"
_NULL = "[nN][uU][lL][lL]"
_NUMBER = rf"^(-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|{_NULL})$"
_SWITCH = rf"^([01]|[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|{_NULL})$"
_ALSO: dict[str, Json] = {
    "integer": {"type": ["integer", "string"], "pattern": _NUMBER},
    "number": {"type": ["number", "string"], "pattern": _NUMBER},
    "boolean": {
        "type": ["boolean", "integer", "string"],
        "minimum": 0,
        "maximum": 1,
        "pattern": _SWITCH,
    },
}
_VALUES = ("default", "enum", "const", "examples")  # of these keywords are no schemas


def allow_texts(
    bodies: Iterable[Json], answers: Iterable[Json], components: MutableMapping[str, Json]
) -> None:
    """Change, in place, the components that only bodies refer to."""
    named = _named(bodies, components) - _named(answers, components)
    for name in named:
        for schema in list(_schemas(components[name])):
            also = _ALSO.get(str(schema.get("type")))
            if also is not None:
                schema.update(also)


def _schemas(schema: Any) -> Iterator[Json]:
    """A schema and all inside of it."""
    if isinstance(schema, list):
        for one in schema:
            yield from _schemas(one)
    elif isinstance(schema, dict):
        yield schema
        for keyword, one in schema.items():
            if keyword == "properties":
                yield from _schemas([*one.values()])
            elif keyword not in _VALUES:
                yield from _schemas(one)


def _named(schemas: Iterable[Json], components: MutableMapping[str, Json]) -> set[str]:
    """Names of the components that schemas refer to, directly or not."""
    found: set[str] = set()
    waiting = list(schemas)
    while waiting:
        for schema in _schemas(waiting.pop()):
            name = str(schema.get("$ref", "")).removeprefix(_PREFIX)
            if name in components and name not in found:
                found.add(name)
                waiting.append(components[name])
    return found
