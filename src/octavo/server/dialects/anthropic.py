"""Anthropic's Messages -> a chat completion: messages, tools, thoughts, the form of the answer.

Owns the checks of content blocks; every refusal names Anthropic's field. Does not know how the
answer is sent (`anthropic_answer.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.dialects.anthropic_blocks import chat_messages, system_message
from octavo.server.dialects.places import check_names, spelled, text_at, wrong
from octavo.server.schemas.chat import ChatCompletionRequest
from octavo.server.schemas.messages import MessagesPrompt, MessagesRequest
from octavo.server.schemas.switches import switch_at
from octavo.server.schemas.tools import offered_tools, tool_choice_of
from octavo.server.state import ServerState

# What a chat completion calls it -> what a message calls it.
NAMES: Mapping[str, str] = {
    "stop": "stop_sequences",
    "response_format": "output_config.format",
    "reasoning_effort": "output_config.effort",
    "thinking_token_budget": "thinking.budget_tokens",
    "function.strict": "strict",
}
_TOOL_PLACES = (
    (r"(tools\[\d+\])\.function\.parameters", r"\1.input_schema"),
    (r"(tools\[\d+\])\.function", r"\1"),
    (r"tool_choice\.function\.name", "tool_choice.name"),
)
_TOOL_FIELDS = {"name", "description", "input_schema", "strict", "type", "cache_control"}
_TOOL_FIELDS |= {"eager_input_streaming"}  # allows pieces of arguments earlier; never demands them
# Fields of tools whose neutral value asks for nothing.
_NEUTRAL = {
    "defer_loading": (False,),
    "allowed_callers": (["direct"],),
    "input_examples": ([],),
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_of(state: ServerState, body: MessagesPrompt) -> ChatCompletionRequest:
    """The chat that a message asks for. Raises InvalidRequestError."""
    messages = system_message(body.system) + chat_messages(body.messages)
    chat = ChatCompletionRequest(model=body.model, messages=messages)
    # A last message of the assistant is the beginning of the answer.
    if body.messages[-1].get("role") == "assistant":
        if messages[-1].get("tool_calls"):
            raise wrong(
                f"messages[{len(body.messages) - 1}]",
                "ends with tool_use; the next message must hold its tool_result",
            )
        chat.continue_final_message = True
    _add_tools(chat, body)
    _add_output_config(chat, body.output_config)
    limit = body.max_tokens if isinstance(body, MessagesRequest) else None
    _add_thinking(state, chat, body.thinking, limit)
    if isinstance(body, MessagesRequest):
        chat.max_tokens = body.max_tokens
        chat.stream = body.stream
        chat.stop = body.stop_sequences
        chat.temperature = body.temperature
        chat.top_p = body.top_p
        chat.top_k = body.top_k
        chat.timeout = body.timeout
    return chat


def _add_tools(chat: ChatCompletionRequest, body: MessagesPrompt) -> None:
    if body.tools is not None:
        chat.tools = [_tool(tool, f"tools[{place}]") for place, tool in enumerate(body.tools)]
    if body.tool_choice is not None:
        _add_choice(chat, body.tool_choice)
    with spelled(_TOOL_PLACES):
        tool_choice_of(chat.tool_choice, offered_tools(chat.tools))


def _tool(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    if tool.get("type") not in (None, "custom"):
        raise wrong(f"{where}.type", "must be 'custom': this server has no tools of its own")
    for name, neutral in _NEUTRAL.items():
        if tool.get(name) is not None and tool[name] not in neutral:
            raise wrong(f"{where}.{name}", "is not supported by this server")
    check_names(tool, _TOOL_FIELDS | set(_NEUTRAL), where)
    if not isinstance(tool.get("input_schema"), dict):
        raise wrong(f"{where}.input_schema", "must be a JSON schema, which is an object")
    function = {"name": tool.get("name"), "parameters": tool["input_schema"]}
    for name in ("description", "strict"):
        if tool.get(name) is not None:
            function[name] = tool[name]
    return {"type": "function", "function": function}


def _add_choice(chat: ChatCompletionRequest, choice: Mapping[str, Any]) -> None:
    kind = choice.get("type")
    known = {"type"} if kind == "none" else {"type", "disable_parallel_tool_use"}
    check_names(choice, known | ({"name"} if kind == "tool" else set()), "tool_choice")
    if kind == "tool":
        name = text_at(choice, "name", "tool_choice")
        chat.tool_choice = {"type": "function", "function": {"name": name}}
    elif isinstance(kind, str) and kind in _CHOICES:
        chat.tool_choice = _CHOICES[kind]
    else:
        raise wrong("tool_choice.type", "must be one of auto, any, tool, none")
    where = "tool_choice.disable_parallel_tool_use"
    single = switch_at(choice.get("disable_parallel_tool_use"), where)
    chat.parallel_tool_calls = False if single else None


def _add_output_config(chat: ChatCompletionRequest, given: Mapping[str, Any] | None) -> None:
    """The effort, and the form of the answer."""
    if given is None:
        return
    check_names(given, {"effort", "format"}, "output_config")
    chat.reasoning_effort = given.get("effort")
    form = given.get("format")
    if form is None:
        return
    where = "output_config.format"
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        raise wrong(f"{where}.type", "must be 'json_schema'")
    check_names(form, {"type", "schema"}, where)
    if not isinstance(form.get("schema"), dict):
        raise wrong(f"{where}.schema", "must be a JSON schema, which is an object")
    chat.response_format = {"type": "json_schema", "json_schema": {"schema": form["schema"]}}


def _add_thinking(
    state: ServerState,
    chat: ChatCompletionRequest,
    given: Mapping[str, Any] | None,
    limit: int | None,
) -> None:
    """Whether the model shall think, and how long; without a word it does as its template says."""
    if given is None:
        return
    kind = given.get("type")
    if kind == "disabled":
        check_names(given, {"type"}, "thinking")
        _keep_from_thinking(state, chat)
        return
    if kind not in ("enabled", "adaptive"):
        raise wrong("thinking.type", "must be one of enabled, adaptive, disabled")
    names = {"type", "display"} | ({"budget_tokens"} if kind == "enabled" else set())
    check_names(given, names, "thinking")
    if given.get("display") not in (None, "omitted"):
        raise wrong("thinking.display", "must be 'omitted' or absent: thoughts are shown whole")
    if given.get("display") == "omitted":
        chat.include_reasoning = False
    if kind == "enabled":
        chat.thinking_token_budget = _budget(given.get("budget_tokens"), limit)
        if state.chat_template().uses("enable_thinking"):
            chat.chat_template_kwargs = {"enable_thinking": True}


def _budget(budget: Any, limit: int | None) -> int:
    where = "thinking.budget_tokens"
    if not isinstance(budget, int) or isinstance(budget, bool) or not 1 <= budget < 2**31:
        raise wrong(where, "must be a whole number of at least 1")
    if limit is not None and budget >= limit:
        raise wrong(where, f"must be less than max_tokens, which is {str(limit)[:20]}")
    return budget


def _keep_from_thinking(state: ServerState, chat: ChatCompletionRequest) -> None:
    if chat.reasoning_effort is not None:
        raise wrong("output_config.effort", "has no meaning with thinking.type 'disabled'")
    if state.format.style is None:
        return  # it has no thoughts
    template = state.chat_template()
    if not (template.uses("enable_thinking") or template.uses("reasoning_effort")):
        message = (
            "thinking.type 'disabled' means nothing to this model's chat template; leave it out"
        )
        raise InvalidRequestError(message, param="thinking.type")
    chat.reasoning_effort = "none"
