"""What a dialect of tool calls is: where a call begins and ends, and how its body reads.

Owns: the record of a call, the tools that a request offers. Does not know: streams
(`chat/stream.py` finds the regions), HTTP.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as the API shows it."""

    name: str
    arguments: str  # a JSON object as text


@dataclass(frozen=True, slots=True)
class Tools:
    """The functions that a request offers: name -> JSON schema of the parameters."""

    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def schema_of(self, function: str, parameter: str) -> Mapping[str, Any]:
        """The schema of one parameter; empty when nobody said."""
        properties = self.parameters.get(function, {}).get("properties", {})
        schema = properties.get(parameter, {}) if isinstance(properties, dict) else {}
        return schema if isinstance(schema, dict) else {}


class MalformedCallError(ValueError):
    """A region that is no tool call after all; it is shown as text."""


class ToolDialect(ABC):
    """A way to write tool calls.

    A region begins with one of `begins` and ends with `end`, or with the answer if `end` is empty.
    Tags are not part of the body.
    """

    begins: ClassVar[tuple[str, ...]]
    end: ClassVar[str] = ""
    only_at_start: ClassVar[bool] = False  # a region is the whole answer, nothing comes before it
    keeps_begin: ClassVar[bool] = False  # the begin tag belongs to the body
    has_special_tags: ClassVar[bool] = False  # tags are special tokens, so those must be shown
    noise: ClassVar[tuple[str, ...]] = ()  # marks of the format that belong to no part
    has_short_ids: ClassVar[bool] = False  # ids of calls have nine letters and digits
    # One call up to its arguments (the name as JSON in place of %s), and what follows them.
    call_form: ClassVar[tuple[str, str] | None] = None

    def is_open(self, body: str) -> bool:
        """Whether a body breaks off where the end tag would belong to an argument."""
        return False

    @abstractmethod
    def parse(self, body: str, tools: Tools) -> list[ToolCall]:
        """The calls of one region, in order.

        Raises MalformedCallError.
        """


def is_inside_text(json_text: str) -> bool:
    """Whether the beginning of a JSON document breaks off inside a text."""
    is_inside = is_escaped = False
    for character in json_text:
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = is_inside
        elif character == '"':
            is_inside = not is_inside
    return is_inside


def call_of(name: Any, arguments: Any) -> ToolCall:
    """A call whose arguments are an object, or the text of one.

    Raises MalformedCallError.
    """
    if not isinstance(name, str) or not name:
        raise MalformedCallError("a call has no name")
    if arguments is None:
        arguments = {}
    if isinstance(arguments, str):
        arguments = parsed(arguments or "{}")
    if not isinstance(arguments, dict):
        raise MalformedCallError("arguments are not an object")
    return ToolCall(name, json.dumps(arguments, ensure_ascii=False))


def parsed(text: str) -> Any:
    """JSON that a model wrote.

    Raises MalformedCallError.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedCallError(str(error)) from None


def parsed_prefix(text: str) -> tuple[Any, str]:
    """The JSON value at the beginning of a text, and what follows it.

    Raises MalformedCallError.
    """
    text = text.lstrip()
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise MalformedCallError(str(error)) from None
    return value, text[end:]


def calls_of_objects(
    value: Any, names: Sequence[str] = ("arguments", "parameters")
) -> list[ToolCall]:
    """Calls written as objects with `name` and one of `names`; a single one or a list.

    Raises MalformedCallError.
    """
    entries = value if isinstance(value, list) else [value]
    calls = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise MalformedCallError("a call is not an object")
        arguments: Any = next((entry[name] for name in names if name in entry), {})
        calls.append(call_of(entry.get("name"), arguments))
    if not calls:
        raise MalformedCallError("no call")
    return calls
