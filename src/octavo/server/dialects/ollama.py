"""Ollama's chats and prompts -> a chat completion.

Owns the checks of Ollama's fields and options; every refusal names them. Does not know how the
answer is sent (`ollama_answer.py`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.dialects.places import check_names, text_at, wrong
from octavo.server.schemas.chat import EFFORTS, ChatCompletionRequest
from octavo.server.schemas.ollama import (
    OllamaChatRequest,
    OllamaFields,
    OllamaGenerateRequest,
    OllamaOptions,
)
from octavo.server.state import ServerState

TAG = ":latest"  # what a name without a tag means
# What a chat completion calls it -> what Ollama calls it.
NAMES: Mapping[str, str] = {
    "max_tokens": "options.num_predict",
    "repetition_penalty": "options.repeat_penalty",
    "response_format": "format",
    "reasoning_effort": "think",
    **{
        name: f"options.{name}"
        for name in (
            *("temperature", "top_k", "top_p", "min_p", "seed", "stop"),
            *("presence_penalty", "frequency_penalty"),
        )
    },
}
GENERATE_NAMES = {**NAMES, "messages": "prompt", "prompt": "prompt"}
_NEUTRAL = {"typical_p": 1.0, "tfs_z": 1.0, "mirostat": 0, "repeat_last_n": -1}
_ROLES = ("system", "user", "assistant", "tool")
# Fields of messages, and the role that each belongs to.
_FIELDS = {"role", "content", "images"}
_FIELD_ROLES = {
    "thinking": "assistant",
    "tool_calls": "assistant",
    "tool_name": "tool",
    "tool_call_id": "tool",
}


def served_name(state: ServerState, name: str) -> str:
    """The name to answer with, which is the one that was asked for.

    A name without a tag and the same with `:latest` are one. Raises ModelNotFoundError.
    """
    if any(bare(name) == bare(served) for served in state.names):
        return name
    return state.require_model(name)


def bare(name: str) -> str:
    """A name without the tag that says nothing."""
    return name.removesuffix(TAG)


def chat_of(state: ServerState, body: OllamaChatRequest) -> ChatCompletionRequest:
    """The chat of /api/chat. Raises InvalidRequestError."""
    chat = _common(state, body)
    chat.messages = _messages(body.messages or [])
    chat.tools = body.tools
    return chat


def prompt_chat_of(state: ServerState, body: OllamaGenerateRequest) -> ChatCompletionRequest:
    """The chat of /api/generate.

    A raw prompt, and any prompt of a model without a template, is taken as it is: then
    `add_special_tokens` is set.
    """
    for name in ("suffix", "template", "images", "context"):
        if getattr(body, name):
            raise wrong(name, "is not supported by this server")
    if body.raw and body.system:
        raise wrong("system", "cannot be combined with raw: a raw prompt is taken as it is")
    if body.raw and body.think is not None:
        raise wrong("think", "cannot be combined with raw: a raw prompt is taken as it is")
    chat = _common(state, body)
    chat.messages = [{"role": "user", "content": body.prompt or ""}]
    if body.system:
        chat.messages.insert(0, {"role": "system", "content": body.system})
    if body.raw or (state.chat_template().source is None and not body.system):
        chat.add_special_tokens = True
    return chat


def check_context(options: OllamaOptions | None, num_tokens: int) -> None:
    """Raises InvalidRequestError for a prompt that the asked context does not hold."""
    room = None if options is None else options.num_ctx
    if room is not None and num_tokens > room:
        rule = f"is {room}, but the prompt has {num_tokens} tokens and is not cut"
        raise wrong("options.num_ctx", f"{rule}; raise it, leave it out, or send a shorter prompt")


def is_load(body: OllamaChatRequest | OllamaGenerateRequest) -> bool:
    """Whether a request without a prompt only wants the model to be loaded.

    Raises InvalidRequestError for one that wants it to be unloaded.
    """
    given = body.messages if isinstance(body, OllamaChatRequest) else body.prompt
    if given:
        return False
    if body.keep_alive in (0, "0", "0s"):
        raise wrong("keep_alive", "cannot unload the model: it is loaded while the server runs")
    return True


def _common(state: ServerState, body: OllamaFields) -> ChatCompletionRequest:
    chat = ChatCompletionRequest(
        model=body.model, stream=body.stream is not False, timeout=body.timeout
    )
    for name in ("truncate", "shift"):
        if getattr(body, name):
            raise wrong(name, "is not supported: a prompt that is too long is refused, not cut")
    _add_options(chat, body.options or OllamaOptions(), state.loaded.max_model_len)
    _add_form(chat, body.format)
    _add_thinking(state, chat, body.think)
    if body.top_logprobs and not body.logprobs:
        raise wrong("top_logprobs", "needs logprobs to be true")
    chat.logprobs = body.logprobs
    chat.top_logprobs = body.top_logprobs if body.logprobs else None
    return chat


def _add_options(chat: ChatCompletionRequest, given: OllamaOptions, max_model_len: int) -> None:
    for name, neutral in _NEUTRAL.items():
        if getattr(given, name) not in (None, neutral):
            raise wrong(f"options.{name}", f"must be {neutral:g} or absent: it is not supported")
    if given.num_ctx is not None and not 1 <= given.num_ctx <= max_model_len:
        rule = f"must be between 1 and {max_model_len}, the context of this server"
        raise wrong("options.num_ctx", rule)
    chat.max_tokens = None if given.num_predict in (-1, -2) else given.num_predict
    chat.repetition_penalty = given.repeat_penalty
    for name in (
        *("temperature", "top_k", "top_p", "min_p", "seed", "stop"),
        *("presence_penalty", "frequency_penalty"),
    ):
        setattr(chat, name, getattr(given, name))


def _add_form(chat: ChatCompletionRequest, given: Any) -> None:
    if given in (None, ""):
        return
    if given == "json":
        chat.response_format = {"type": "json_object"}
    elif isinstance(given, dict):
        chat.response_format = {"type": "json_schema", "json_schema": {"schema": given}}
    else:
        raise wrong("format", "must be 'json' or a JSON schema, which is an object")


def _add_thinking(
    state: ServerState, chat: ChatCompletionRequest, think: bool | str | None
) -> None:
    """Thoughts on, off, or with an effort; without a word the template decides."""
    if think is None:
        return
    if state.format.style is None:
        if think is not False:
            raise wrong("think", "is not supported: this model has no thoughts of its own")
        return
    template = state.chat_template()
    switches = template.uses("enable_thinking")
    if isinstance(think, str):
        if think not in EFFORTS:
            raise wrong("think", f"must be true, false or one of {', '.join(EFFORTS)}")
        chat.reasoning_effort = think
    elif think and switches:
        chat.chat_template_kwargs = {"enable_thinking": True}
    elif not think:
        if not (switches or template.uses("reasoning_effort")):
            message = "think false means nothing to this model's chat template; leave it out"
            raise InvalidRequestError(message, param="think")
        chat.reasoning_effort = "none"


def _messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    built = []
    open_calls: deque[tuple[str, str]] = deque()  # (name, id) of calls without a result
    num_calls = 0
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        check_names(message, _FIELDS | set(_FIELD_ROLES), where)
        role = message.get("role")
        if role not in _ROLES:
            raise wrong(f"{where}.role", f"must be one of {', '.join(_ROLES)}")
        for name, owner in _FIELD_ROLES.items():
            if message.get(name) and role != owner:
                raise wrong(f"{where}.{name}", f"is for messages of the role {owner!r}")
        if message.get("images"):
            raise wrong(f"{where}.images", "is not supported: this model takes text only")
        one: dict[str, Any] = {"role": role, "content": message.get("content") or ""}
        if not isinstance(one["content"], str):
            raise wrong(f"{where}.content", "must be a text")
        if message.get("thinking"):
            one["reasoning"] = text_at(message, "thinking", where)
        if message.get("tool_calls"):
            one["tool_calls"] = _calls(message["tool_calls"], f"{where}.tool_calls", num_calls)
            num_calls += len(one["tool_calls"])
            open_calls += [(call["function"]["name"], call["id"]) for call in one["tool_calls"]]
        if role == "tool":
            one |= _result_of(message, where, open_calls)
        built.append(one)
    return built


def _calls(given: Any, where: str, num_before: int) -> list[dict[str, Any]]:
    """Calls with an id each, made up where there is none: templates want one."""
    if not isinstance(given, list):
        raise wrong(where, "must be a list of calls")
    calls = []
    for place, call in enumerate(given):
        here = f"{where}[{place}]"
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise wrong(f"{here}.function", "must be an object with a name and arguments")
        check_names(call, {"id", "type", "function"}, here)
        check_names(function, {"name", "arguments", "index", "description"}, f"{here}.function")
        arguments = function.get("arguments") or {}
        if not isinstance(arguments, dict):
            raise wrong(f"{here}.function.arguments", "must be an object")
        name = text_at(function, "name", f"{here}.function")
        call_id = call.get("id") or f"call{num_before + place:05d}"
        if not isinstance(call_id, str):
            raise wrong(f"{here}.id", "must be a text")
        text = _json_text(arguments, f"{here}.function.arguments")
        calls.append(
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}
        )
    return calls


def _result_of(
    message: Mapping[str, Any], where: str, open_calls: deque[tuple[str, str]]
) -> dict[str, str]:
    """Name and id of the call that a result is for: as it says, else the first that fits."""
    given = {
        key: text_at(message, key, where)
        for key in ("tool_name", "tool_call_id")
        if message.get(key)
    }
    name, call_id = given.get("tool_name"), given.get("tool_call_id")
    for call in open_calls:
        if name in (None, call[0]) and call_id in (None, call[1]):
            open_calls.remove(call)
            name, call_id = call
            break
    named = {"name": name, "tool_call_id": call_id}
    return {key: value for key, value in named.items() if value is not None}


def _json_text(value: Any, where: str) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise wrong(where, "is nested too deep; flatten it") from None
