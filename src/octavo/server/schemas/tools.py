"""The tools of a request, and which of them the answer may, must or must not call.

Owns the shapes of `tools` and `tool_choice` (OpenAI's). Does not know dialects or grammars.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from octavo.chat.tools.base import Tools
from octavo.errors import InvalidRequestError
from octavo.server.schemas.switches import switch_at

MAX_TOOLS = 256
_NAME = re.compile(r"[\w.:/-]{1,128}")
NAME_RULE = "must be 1 to 128 letters, digits or any of _ . : / -"


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What `tool_choice` says; `name` of the function with "named"."""

    kind: Literal["none", "auto", "required", "named"]
    name: str = ""


@dataclass(frozen=True, slots=True)
class OfferedTools:
    """Functions that passed the checks."""

    tools: Tools
    strict_places: tuple[int, ...] = ()  # of those that ask for arguments which fit their schema

    @property
    def names(self) -> list[str]:
        return list(self.tools.parameters)


def offered_tools(tools: list[dict[str, Any]] | None) -> OfferedTools:
    """The functions of a request.

    Raises InvalidRequestError that names the place, such as `tools[2].function.name`.
    """
    given = tools or []
    if len(given) > MAX_TOOLS:
        message = f"tools may hold at most {MAX_TOOLS} functions, got {len(given)}"
        raise InvalidRequestError(message, param="tools")
    parameters: dict[str, dict[str, Any]] = {}
    strict = []
    for place, tool in enumerate(given):
        where = f"tools[{place}]"
        if tool.get("type", "function") != "function":
            raise _wrong(f"{where}.type", "must be 'function'; no other kind is supported")
        function = tool.get("function")
        if not isinstance(function, dict):
            raise _wrong(f"{where}.function", "must be an object with a name and parameters")
        name = function.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _wrong(f"{where}.function.name", NAME_RULE)
        if name in parameters:
            raise _wrong(f"{where}.function.name", f"is {name!r} for a second time")
        if not isinstance(function.get("description"), str | None):
            raise _wrong(f"{where}.function.description", "must be a text")
        parameters[name] = _parameters(function.get("parameters"), f"{where}.function.parameters")
        if switch_at(function.get("strict"), f"{where}.function.strict"):
            strict.append(place)
    return OfferedTools(Tools(parameters), tuple(strict))


def tool_choice_of(given: Any, offered: OfferedTools) -> ToolChoice:
    """The choice; without a word it is up to the model wherever there are tools.

    Raises InvalidRequestError for an unknown choice or function.
    """
    names = offered.names
    if given in (None, "auto"):
        return ToolChoice("auto" if names else "none")
    if given == "none":
        return ToolChoice("none")
    if given == "required":
        choice = ToolChoice("required")
    elif isinstance(given, dict):
        choice = ToolChoice("named", _chosen_name(given))
    else:
        rule = "must be 'none', 'auto', 'required' or an object that names a function"
        raise _wrong("tool_choice", rule)
    if not names:
        raise _wrong("tool_choice", "demands a call, but tools is missing or empty")
    if choice.kind == "named" and choice.name not in names:
        shown = choice.name[:60]
        raise _wrong("tool_choice.function.name", f"is {shown!r}, which is not among the tools")
    return choice


def _chosen_name(given: dict[str, Any]) -> str:
    if given.get("type") != "function":
        raise _wrong("tool_choice.type", "must be 'function'; no other kind is supported")
    function = given.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str) or not name:
        raise _wrong("tool_choice.function.name", "must be the name of one of the tools")
    return name


def _parameters(given: Any, where: str) -> dict[str, Any]:
    """The schema of the arguments; empty where a function has none."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise _wrong(where, "must be a JSON schema, which is an object")
    if given.get("type", "object") != "object":
        raise _wrong(f"{where}.type", "must be 'object': arguments have names")
    for key in ("properties", "$defs", "definitions"):
        if not isinstance(given.get(key, {}), dict):
            raise _wrong(f"{where}.{key}", "must be an object")
    for name, schema in given.get("properties", {}).items():
        if not isinstance(schema, dict | bool):
            raise _wrong(f"{where}.properties.{name[:60]}", "must be a JSON schema, an object")
    return given


def _wrong(where: str, rule: str) -> InvalidRequestError:
    return InvalidRequestError(f"{where} {rule}", param=where)
