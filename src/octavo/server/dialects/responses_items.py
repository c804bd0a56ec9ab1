"""Input items of the Responses API: checked, completed with ids, and as messages of a chat.

Owns the shapes of items that a client may send, and which items make one message. Does not know
where earlier items are kept. Refusals name the place, such as `input[2].content[0].type`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.dialects.places import check_names, text_at, wrong
from octavo.server.dialects.responses_ids import ItemIds

Item = dict[str, Any]
LONGEST_ID = 256
STATUSES = (None, "in_progress", "completed", "incomplete")
ROLES = ("user", "assistant", "system", "developer")
TEXT_PARTS = ("input_text", "output_text", "text")
OPEN_STATUSES = ("in_progress", "incomplete")
_THOUGHTS = "octavo:"  # before encoded thoughts
_FIELDS: Mapping[str, set[str]] = {
    "message": {"type", "id", "status", "role", "content", "phase"},
    "function_call": {"type", "id", "status", "call_id", "name", "arguments"},
    "function_call_output": {"type", "id", "status", "call_id", "output"},
    "reasoning": {"type", "id", "status", "summary", "content", "encrypted_content"},
    "item_reference": {"type", "id"},
}
_PARTS: Mapping[str, set[str]] = {
    "text": {"type", "text", "annotations", "logprobs"},
    "refusal": {"type", "refusal"},
}


def is_reference(item: Mapping[str, Any]) -> bool:
    """Whether an item stands for one that the server has."""
    return bool(kind_of(item) == "item_reference")


def kind_of(item: Mapping[str, Any]) -> Any:
    """The type of an item; what has a role and no type is a message."""
    kind = item.get("type")
    if kind is not None:
        return kind
    return "item_reference" if set(item) == {"id"} else "message"


def checked_items(given: str | list[dict[str, Any]], ids: ItemIds) -> list[Item]:
    """The items as they are kept; a text is a message of the user.

    References must have been replaced. Raises InvalidRequestError.
    """
    if isinstance(given, str):
        return [_message({"role": "user", "content": given}, "input", ids.of("message", 0))]
    return [_checked(item, place, ids) for place, item in enumerate(given)]


def _checked(item: Mapping[str, Any], place: int, ids: ItemIds) -> Item:
    kind, where = kind_of(item), f"input[{place}]"
    if not isinstance(kind, str) or kind not in _FIELDS:
        shown = repr(kind)[:60]
        raise wrong(f"{where}.type", f"is {shown}; it must be one of {', '.join(_FIELDS)}")
    check_names(item, _FIELDS[kind], where)
    item_id = item.get("id")
    if item_id is not None and not (isinstance(item_id, str) and 0 < len(item_id) <= LONGEST_ID):
        raise wrong(f"{where}.id", f"must be a text of at most {LONGEST_ID} characters")
    if item.get("status") not in STATUSES:
        raise wrong(f"{where}.status", "must be one of in_progress, completed, incomplete")
    return _BUILDERS[kind](item, where, item_id or ids.of(kind, place))


def _base(item: Mapping[str, Any], kind: str, item_id: str) -> Item:
    return {
        "id": item_id,
        "type": kind,
        "status": item.get("status") or "completed",
    }


def _message(item: Mapping[str, Any], where: str, item_id: str) -> Item:
    role, content = item.get("role"), item.get("content")
    if role not in ROLES:
        raise wrong(f"{where}.role", f"must be one of {', '.join(ROLES)}")
    if item.get("phase") not in (None, "commentary", "final_answer"):
        raise wrong(f"{where}.phase", "must be 'commentary' or 'final_answer'")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise wrong(f"{where}.content", "must be a text or a list of parts")
    parts = [
        _part(part, f"{where}.content[{place}]", is_output=role == "assistant")
        for place, part in enumerate(content)
    ]
    return _base(item, "message", item_id) | {"role": role, "content": parts}


def _part(part: Any, where: str, *, is_output: bool) -> Item:
    """A text of a message, or what an assistant refused."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in ("input_image", "input_file", "input_audio"):
        raise wrong(f"{where}.type", f"is {kind!r}; this model takes text only")
    if kind == "refusal" and is_output:
        check_names(part, _PARTS["refusal"], where)
        return {"type": "refusal", "refusal": text_at(part, "refusal", where)}
    if not isinstance(part, dict) or kind not in TEXT_PARTS:
        raise wrong(f"{where}.type", f"must be one of {', '.join(TEXT_PARTS)}")
    check_names(part, _PARTS["text"], where)
    text = text_at(part, "text", where)
    if is_output:
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}


def _call(item: Mapping[str, Any], where: str, item_id: str) -> Item:
    return _base(item, "function_call", item_id) | {
        name: text_at(item, name, where) for name in ("call_id", "name", "arguments")
    }


def _result(item: Mapping[str, Any], where: str, item_id: str) -> Item:
    output = item.get("output")
    if isinstance(output, list):
        output = [
            _part(part, f"{where}.output[{place}]", is_output=False)
            for place, part in enumerate(output)
        ]
    elif not isinstance(output, str):
        raise wrong(f"{where}.output", "must be a text or a list of text parts")
    built = _base(item, "function_call_output", item_id)
    return built | {"call_id": text_at(item, "call_id", where), "output": output}


def _thoughts(item: Mapping[str, Any], where: str, item_id: str) -> Item:
    built = _base(item, "reasoning", item_id)
    built["summary"] = _texts(item.get("summary"), "summary_text", f"{where}.summary")
    content = _texts(item.get("content"), "reasoning_text", f"{where}.content")
    sealed = item.get("encrypted_content")
    if sealed and not content:
        content = [{"type": "reasoning_text", "text": unsealed(sealed, where)}]
    return built | {"content": content}


def _texts(given: Any, kind: str, where: str) -> list[Item]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise wrong(where, "must be a list of parts")
    for place, part in enumerate(given):
        here = f"{where}[{place}]"
        if not isinstance(part, dict) or part.get("type") != kind:
            raise wrong(f"{here}.type", f"must be '{kind}'")
        check_names(part, {"type", "text"}, here)
        text_at(part, "text", here)
    return [{"type": kind, "text": part["text"]} for part in given]


def _reference(item: Mapping[str, Any], where: str, item_id: str) -> Item:
    raise wrong(where, "refers to an item that this server does not have")


_BUILDERS: Mapping[str, Callable[[Mapping[str, Any], str, str], Item]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _result,
    "reasoning": _thoughts,
    "item_reference": _reference,
}


def sealed(thoughts: str) -> str:
    """Thoughts as one opaque text, for clients that give nothing else back. It hides nothing:
    the same item shows them."""
    return _THOUGHTS + base64.b64encode(thoughts.encode()).decode()


def unsealed(text: Any, where: str) -> str:
    """The thoughts again. Raises InvalidRequestError for what another server made."""
    place = f"{where}.encrypted_content"
    if not isinstance(text, str):
        raise wrong(place, "must be a text")
    if text.startswith(_THOUGHTS):
        with suppress(binascii.Error, ValueError):
            return base64.b64decode(text.removeprefix(_THOUGHTS), validate=True).decode()
    raise wrong(place, "was not made by this server; leave the reasoning item out")


# ---- items -> messages of a chat


def chat_messages(items: Iterable[Item]) -> list[dict[str, Any]]:
    """The messages that checked items make: thoughts, text and calls side by side are one.

    Raises InvalidRequestError for the result of a call that no item made.
    """
    built: list[dict[str, Any]] = []
    names: dict[str, str] = {}  # of the calls so far, by id
    for item in items:
        match item["type"]:
            case "message" if item["role"] != "assistant":
                built.append({"role": item["role"], "content": _chat_parts(item["content"])})
            case "message":
                _open(built, "content", "tool_calls")["content"] = _chat_parts(item["content"])
            case "reasoning":
                if thoughts := _text_of(item):
                    _open(built, "reasoning", "content", "tool_calls")["reasoning"] = thoughts
            case "function_call":
                names[item["call_id"]] = item["name"]
                _open(built).setdefault("tool_calls", []).append(_chat_call(item))
            case _:
                built.append(_chat_result(item, names))
    return built


def _open(built: list[dict[str, Any]], *barred: str) -> dict[str, Any]:
    """The assistant's message that goes on; a fresh one where it has what must come later."""
    last = built[-1] if built else {}
    if last.get("role") != "assistant" or any(last.get(name) is not None for name in barred):
        last = {"role": "assistant", "content": None}
        built.append(last)
    return last


def _chat_parts(content: list[Item]) -> list[Item]:
    """One text for each part; a list of one reads as the text itself."""
    return [{"type": "text", "text": part.get("text", part.get("refusal"))} for part in content]


def _text_of(item: Item) -> str:
    """Thoughts as they were, else their summary."""
    return "".join(part["text"] for part in item.get("content") or item["summary"])


def _chat_call(item: Item) -> dict[str, Any]:
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _chat_result(item: Item, names: Mapping[str, str]) -> dict[str, Any]:
    call_id, output = item["call_id"], item["output"]
    if call_id not in names:
        shown = call_id if len(call_id) <= 100 else call_id[:97] + "..."
        message = f"input: No tool call found for function call output with call_id {shown}."
        raise InvalidRequestError(message, param="input")
    if not isinstance(output, str):
        output = "\n".join(part["text"] for part in output)
    return {"role": "tool", "tool_call_id": call_id, "name": names[call_id], "content": output}
