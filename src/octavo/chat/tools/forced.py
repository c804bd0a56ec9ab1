"""Calls that a request demands: the whole answer is JSON, whatever dialect the model speaks.

Owns the schema that the answer is held to, and its reading. An answer that was cut is no call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.chat.tools.base import ToolCall, ToolDialect, Tools, call_of, calls_of_objects, parsed
from octavo.errors import InvalidRequestError

MAX_CALLS = 32  # a model that has lost the thread would go on until its context is full
_DEFINITIONS = ("$defs", "definitions")


class NamedCall(ToolDialect):
    """The arguments of one function: `{"city": "Oslo"}`."""

    begins = ("{",)
    only_at_start = True
    keeps_begin = True

    def __init__(self, name: str) -> None:
        self._name = name

    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        return [call_of(self._name, parsed(body))]


class RequiredCalls(ToolDialect):
    """A list of calls: `[{"name": "weather", "parameters": {"city": "Oslo"}}]`."""

    begins = ("[",)
    only_at_start = True
    keeps_begin = True

    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        return calls_of_objects(parsed(body))


def arguments_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of one function's arguments; a function without parameters takes none."""
    schema = {"type": "object", **parameters}
    if not schema.get("properties") and set(schema) <= {"type", "properties", "required"}:
        schema["additionalProperties"] = False
    return schema


def required_schema(tools: Tools, *, is_parallel: bool) -> dict[str, Any]:
    """The schema of a list of calls of these functions, one at most if not `is_parallel`.

    Raises InvalidRequestError where two functions define different schemas under one name.
    """
    definitions: dict[str, dict[str, Any]] = {}
    branches = []
    for name, parameters in tools.parameters.items():
        schema = arguments_schema(parameters)
        for key in _DEFINITIONS:
            for own_name, own in schema.pop(key, {}).items():
                known = definitions.setdefault(key, {}).setdefault(own_name, own)
                if known != own:
                    raise InvalidRequestError(
                        f"tools: {key}.{own_name} of {name} differs from that of another function; "
                        "rename it",
                        param="tools",
                    )
        branches.append(
            {
                "type": "object",
                "properties": {"name": {"const": name}, "parameters": schema},
                "required": ["name", "parameters"],
                "additionalProperties": False,
            }
        )
    return {
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_CALLS if is_parallel else 1,
        "items": branches[0] if len(branches) == 1 else {"anyOf": branches},
        **definitions,
    }
