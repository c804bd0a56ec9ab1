"""Messages of OpenAI's chat API -> the shape that chat templates expect.

Owns the checks of a conversation and its history: roles, content, tool calls and their results.
Does not know: templates (they only say which of two forms of content they read).
Used by: template.

Every value given to a template is rebuilt here out of plain JSON types, so a template sees nothing
else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from octavo.errors import InvalidRequestError

ContentFormat = Literal["string", "openai"]

MAX_DEPTH = 64  # of nested lists and objects
MAX_ROLE = 64  # characters; templates may know roles of their own
TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
COPIED_TEXTS = ("name", "tool_call_id")
REASONING_NAMES = ("reasoning_content", "reasoning", "thinking")


class CallArguments(dict[str, Any]):
    """The arguments of a tool call: an object, which remembers how the model wrote it."""

    _text: str


def text_of_arguments(arguments: CallArguments) -> str:
    """The arguments as they came, for templates that take them as text."""
    return arguments._text  # private to templates: they see no underscore names


def template_messages(
    messages: object, *, content_format: ContentFormat = "string", knows_developer: bool = False
) -> list[dict[str, Any]]:
    """The messages of a request, checked and rebuilt.

    content_format: "string" joins the parts of a content by line breaks; "openai" makes every
    content a list of `{"type": "text", "text": ...}`. `developer` becomes `system` unless the
    template knows it.

    Raises InvalidRequestError that names the place, such as `messages[2].content[0].type`.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise _wrong("messages", "must be a list of messages", messages)
    if not messages:
        message = "messages must hold at least one message"
        raise InvalidRequestError(message, param="messages")
    built = []
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if not isinstance(message, Mapping):
            raise _wrong(where, "must be an object with a role and a content", message)
        built.append(_message(message, where, content_format, knows_developer))
    return built


def plain_value(value: object, where: str, depth: int = 0) -> Any:
    """A copy made of plain JSON types. Raises InvalidRequestError for anything else."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if depth > MAX_DEPTH:
        message = f"{where} is nested more than {MAX_DEPTH} levels deep"
        raise InvalidRequestError(message, param=where)
    if isinstance(value, Mapping):
        copy = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise _wrong(where, "must have texts as keys", key)
            copy[key] = plain_value(item, f"{where}.{key}" if depth < 2 else where, depth + 1)
        return copy
    if isinstance(value, list | tuple):
        return [plain_value(item, where, depth + 1) for item in value]
    if isinstance(value, str):
        return str.__str__(value)
    raise _wrong(where, "must be made of JSON values", value)


def _message(
    message: Mapping[str, object], where: str, content_format: ContentFormat, knows_developer: bool
) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str) or not 0 < len(role) <= MAX_ROLE:
        rule = f"must be a text such as 'user', of at most {MAX_ROLE} characters"
        raise _wrong(f"{where}.role", rule, role)
    if role == "developer" and not knows_developer:
        role = "system"
    built: dict[str, Any] = {"role": role}
    # Many templates handle only text as the result of a tool, whatever they do for other roles.
    as_text = content_format == "string" or role == "tool"
    built["content"] = _content(message.get("content"), f"{where}.content", as_text)
    for key, value in message.items():
        if key in ("role", "content", "tool_calls", *REASONING_NAMES) or value is None:
            continue
        if key in COPIED_TEXTS and not isinstance(value, str):
            raise _wrong(f"{where}.{key}", "must be a text", value)
        built[key] = plain_value(value, f"{where}.{key}")
    if role == "assistant":
        _add_reasoning(built, message, where)
        calls = _tool_calls(message.get("tool_calls"), f"{where}.tool_calls")
        if calls:
            built["tool_calls"] = calls
    return built


def _content(content: object, where: str, as_text: bool) -> str | list[dict[str, str]]:
    if content is None:
        texts = []
    elif isinstance(content, str):
        if as_text:
            return content
        texts = [content]
    elif isinstance(content, list | tuple):
        parts = enumerate(content)
        texts = [_text_of_part(part, f"{where}[{place}]") for place, part in parts]
    else:
        raise _wrong(where, "must be a text or a list of parts", content)
    if as_text:
        return "\n".join(texts)
    return [{"type": "text", "text": text} for text in texts]


def _text_of_part(part: object, where: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise _wrong(where, "must be an object with a type", part)
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in TEXT_PARTS:
        shown = "missing" if kind is None else repr(_short(kind))
        message = f"{where}.type is {shown}; this model takes text only: {', '.join(TEXT_PARTS)}"
        raise InvalidRequestError(message, param=f"{where}.type")
    text = part.get(TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise _wrong(f"{where}.{TEXT_PARTS[kind]}", "must be a text", text)
    return text


def _add_reasoning(built: dict[str, Any], message: Mapping[str, object], where: str) -> None:
    """Templates read earlier reasoning under different names; all of them get it."""
    for name in REASONING_NAMES:
        reasoning = message.get(name)
        if reasoning is None:
            continue
        if not isinstance(reasoning, str):
            raise _wrong(f"{where}.{name}", "must be a text", reasoning)
        built.update(dict.fromkeys(REASONING_NAMES, reasoning))
        return


def _tool_calls(calls: object, where: str) -> list[dict[str, Any]]:
    """Calls with their arguments as objects; an empty list counts as none."""
    if calls is None:
        return []
    if not isinstance(calls, list | tuple):
        raise _wrong(where, "must be a list of tool calls", calls)
    built = []
    for place, call in enumerate(calls):
        here = f"{where}[{place}]"
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(call, Mapping) or not isinstance(function, Mapping):
            raise _wrong(here, "must be an object with a function", call)
        if not isinstance(function.get("name"), str):
            raise _wrong(f"{here}.function.name", "must be a text", function.get("name"))
        copied = plain_value(call, here)
        copied["function"]["arguments"] = _arguments(
            function.get("arguments"), f"{here}.function.arguments"
        )
        built.append(copied)
    return built


def _arguments(arguments: object, where: str) -> Any:
    """Arguments come as JSON text. What is no JSON is shown as no arguments, as in vLLM: a model
    wrote it, and a refusal would end the conversation that is about to correct it.
    """
    if arguments is None:
        arguments = ""
    if not isinstance(arguments, str):
        return plain_value(arguments, where)
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = {}
    if not isinstance(value, dict):
        return plain_value(value, where)
    built = CallArguments(plain_value(value, where))
    built._text = arguments
    return built


def _wrong(where: str, what: str, value: object) -> InvalidRequestError:
    is_scalar = isinstance(value, str | int | float | None)
    shown = _short(json.dumps(value)) if is_scalar else _kind(value)
    return InvalidRequestError(f"{where} {what}, not {shown}", param=where)


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
