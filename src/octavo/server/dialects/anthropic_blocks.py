"""Anthropic's content blocks -> messages of a chat.

Owns the order of what one message becomes: results of tools are messages of their own, in place.
Does not know the other fields of a request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from octavo.server.dialects.places import check_names, text_at, wrong

_FIELDS = {
    "text": {"type", "text", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
}
_OF_ROLE = {
    "user": ("text", "tool_result"),
    "assistant": ("text", "thinking", "tool_use"),
    "system": ("text",),
}
Message = dict[str, Any]


def system_message(system: str | list[dict[str, Any]] | None) -> list[Message]:
    """The system prompt as a message; none for none."""
    if not system:
        return []
    if isinstance(system, str):
        return [{"role": "system", "content": system}]
    return [{"role": "system", "content": _texts(system, "system")}]


def chat_messages(messages: list[dict[str, Any]]) -> list[Message]:
    """The messages of a chat. Raises InvalidRequestError with the place, as `messages[0].role`."""
    if not messages:
        raise wrong("messages", "must hold at least one message")
    built: list[Message] = []
    tool_names: dict[str, str] = {}  # of the calls so far, by id
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        role = message.get("role")
        if not isinstance(role, str) or role not in _OF_ROLE:
            raise wrong(f"{where}.role", "must be 'user', 'assistant' or 'system'")
        check_names(message, {"role", "content"}, where)
        content = message.get("content")
        if isinstance(content, str):
            built.append({"role": role, "content": content})
            continue
        if not isinstance(content, list):
            raise wrong(f"{where}.content", "must be a text or a list of content blocks")
        blocks = _checked(content, role, f"{where}.content")
        if role == "assistant":
            built.append(_assistant(blocks, tool_names))
        else:
            built += _others(blocks, role, tool_names)
    return built


Block = tuple[str, Mapping[str, Any]]  # its place, and itself


def _checked(content: list[Any], role: str, where: str) -> list[Block]:
    blocks = []
    for place, block in enumerate(content):
        here = f"{where}[{place}]"
        kind = block.get("type") if isinstance(block, dict) else None
        if kind in ("image", "document"):
            raise wrong(f"{here}.type", f"is {kind!r}; this model takes text only")
        if not isinstance(kind, str) or kind not in _OF_ROLE[role]:
            rule = f"must be one of {', '.join(_OF_ROLE[role])} in a message of the {role}"
            raise wrong(f"{here}.type", rule)
        known = _FIELDS[kind]
        if block.get("citations") == []:
            known = known | {"citations"}
        check_names(block, known, here)
        blocks.append((here, block))
    return blocks


def _texts(content: list[Any], where: str) -> list[dict[str, str]]:
    """Blocks that may only be texts, as parts of a content."""
    return [_part(block, here) for here, block in _checked(content, "system", where)]


def _part(block: Mapping[str, Any], where: str) -> dict[str, str]:
    return {"type": "text", "text": text_at(block, "text", where)}


def _assistant(blocks: list[Block], tool_names: dict[str, str]) -> Message:
    """One message: thoughts, text and calls each have their own field."""
    message: Message = {"role": "assistant", "content": None}
    parts, thoughts, calls = [], [], []
    for where, block in blocks:
        if block["type"] == "text":
            parts.append(_part(block, where))
        elif block["type"] == "thinking":
            thoughts.append(text_at(block, "thinking", where))
        else:
            calls.append(_call(block, where))
            tool_names[calls[-1]["id"]] = calls[-1]["function"]["name"]
    if parts:
        message["content"] = parts
    if thoughts:
        message["reasoning"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    given = block.get("input", {})
    if not isinstance(given, dict):
        raise wrong(f"{where}.input", "must be an object")
    try:
        arguments = json.dumps(given, ensure_ascii=False)
    except RecursionError:
        raise wrong(f"{where}.input", "is nested too deep; flatten it") from None
    function = {"name": text_at(block, "name", where), "arguments": arguments}
    return {"id": text_at(block, "id", where), "type": "function", "function": function}


def _others(blocks: list[Block], role: str, tool_names: dict[str, str]) -> list[Message]:
    """Texts side by side are one message, each result of a tool is one."""
    built: list[Message] = []
    is_open = False  # whether further text belongs to the last message
    for where, block in blocks:
        if block["type"] == "tool_result":
            built.append(_result(block, where, tool_names))
            is_open = False
        elif is_open:
            built[-1]["content"].append(_part(block, where))
        else:
            built.append({"role": role, "content": [_part(block, where)]})
            is_open = True
    return built or [{"role": role, "content": ""}]


def _result(block: Mapping[str, Any], where: str, tool_names: Mapping[str, str]) -> Message:
    """Chat templates know no failed calls, so the text says it."""
    call_id = text_at(block, "tool_use_id", where)
    if call_id not in tool_names:
        raise wrong(f"{where}.tool_use_id", "names no tool_use of an earlier message")
    given = block.get("content")
    if isinstance(given, list):
        texts = [part["text"] for part in _texts(given, f"{where}.content")]
    elif isinstance(given, str | None):
        texts = [given or ""]
    else:
        raise wrong(f"{where}.content", "must be a text or a list of text blocks")
    failed = block.get("is_error")
    if not isinstance(failed, bool | None):
        raise wrong(f"{where}.is_error", "must be true or false")
    text = "\n".join(texts)
    return {
        "role": "tool",
        "tool_call_id": call_id,
        "name": tool_names[call_id],
        "content": f"Error: {text}" if failed else text,
    }
