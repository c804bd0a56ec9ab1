"""Tools told in a message, for chat templates that have no place for them.

A demanded call is held to its form by a grammar, and so works with any model; but one that never
sees the functions can only guess what to call. Owns the words. Does not know who demands a call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_NAMED = "Answer with the arguments of a call of the function {name}, a JSON object."
_ANY = (
    'Answer with a JSON list of calls of these functions, each {{"name": its name, "parameters": '
    "its arguments}}."
)
_SYSTEM = ("system", "developer")
Message = Mapping[str, Any]


def with_tools(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], name: str
) -> list[Message]:
    """Messages that tell of the functions; `name` is the one to be called, empty for any.

    They stand at the end of the system's first message, or before the first message where there is
    none: not every template takes one of the system.
    """
    functions = [tool["function"] for tool in tools]
    if name:
        functions = [function for function in functions if function["name"] == name]
    shown = "\n".join(json.dumps(function, ensure_ascii=False) for function in functions)
    told = f"Functions:\n{shown}\n{(_NAMED if name else _ANY).format(name=name)}"
    place = next((n for n, one in enumerate(messages) if one.get("role") in _SYSTEM), 0)
    changed = list(messages)
    if changed:
        is_system = changed[place].get("role") in _SYSTEM
        content = _joined(changed[place].get("content"), told, is_after=is_system)
        changed[place] = {**changed[place], "content": content}
    return changed


def _joined(content: Any, told: str, *, is_after: bool) -> Any:
    """A content, a text or a list of parts, with a text more."""
    if isinstance(content, list):
        part = {"type": "text", "text": told}
        return [*content, part] if is_after else [part, *content]
    texts = [content, told] if is_after else [told, content]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)
