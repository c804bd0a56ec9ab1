"""OpenAI's Responses -> a chat completion: tools, the form of the answer, thoughts, sampling.

Every refusal names the field of a response. Does not know where earlier responses are kept, nor how
an answer is sent (`responses_answer.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo.sampling_params import SamplingParams
from octavo.server.dialects.places import check_names, spelled, text_at, wrong
from octavo.server.dialects.responses_items import OPEN_STATUSES, Item, chat_messages
from octavo.server.schemas.chat import ChatCompletionRequest
from octavo.server.schemas.responses import INCLUDED_LOGPROBS, SHARED, ResponseRequest
from octavo.server.schemas.structured import form_of
from octavo.server.schemas.tools import offered_tools, tool_choice_of

# What a chat completion calls it -> what a response calls it.
NAMES: Mapping[str, str] = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "function.strict": "strict",
}
_TOOL_PLACES = (
    (r"(tools\[\d+\])\.function", r"\1"),
    (r"tool_choice\.function\.name", "tool_choice.name"),
)
_FORM_PLACES = ((r"response_format(\.json_schema)?", "text.format"),)
_TOOL_FIELDS = {"type", "name", "description", "parameters", "strict"}
_NEUTRAL = {"defer_loading": (False,), "allowed_callers": (["direct"],), "async": (False,)}
_SUMMARIES = ("auto", "detailed")


def chat_of(body: ResponseRequest, items: list[Item]) -> ChatCompletionRequest:
    """The chat that a response asks for; `items` are all that it goes on from, checked.

    Raises InvalidRequestError.
    """
    messages = chat_messages(items)
    if body.instructions:
        messages.insert(0, {"role": "system", "content": body.instructions})
    chat = ChatCompletionRequest(model=body.model, messages=messages)
    last = items[-1] if items else {}
    if last.get("role") == "assistant" and last["status"] in OPEN_STATUSES:
        chat.continue_final_message = True  # it was cut off, and goes on
    for name in SHARED:
        setattr(chat, name, getattr(body, name))
    chat.max_tokens = body.max_output_tokens
    if body.includes(INCLUDED_LOGPROBS):
        chat.logprobs, chat.top_logprobs = True, body.top_logprobs or 0
    # Which token belongs to which part is known only while they come.
    chat.stream = bool(body.stream or body.background or chat.logprobs)
    _add_tools(chat, body)
    _add_text(chat, body.text or {})
    _add_reasoning(chat, body.reasoning or {})
    return chat


def _add_tools(chat: ChatCompletionRequest, body: ResponseRequest) -> None:
    tools = [_tool(tool, f"tools[{place}]") for place, tool in enumerate(body.tools or ())]
    with spelled(_TOOL_PLACES):
        offered_tools(tools)  # before a choice leaves any out
        choice = body.tool_choice
        if isinstance(choice, dict):
            choice, tools = _choice(choice, tools)
        chat.tools = tools or None
        chat.tool_choice = choice
        tool_choice_of(choice, offered_tools(tools))


def _tool(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind != "function":
        shown = repr(kind)[:60]
        rule = f"is {shown}; only 'function' is supported: this server has no tools of its own"
        raise wrong(f"{where}.type", rule)
    for name, neutral in _NEUTRAL.items():
        if tool.get(name) is not None and tool[name] not in neutral:
            raise wrong(f"{where}.{name}", "is not supported by this server")
    check_names(tool, _TOOL_FIELDS | set(_NEUTRAL), where)
    fields = _TOOL_FIELDS - {"type"}
    function = {name: tool[name] for name in tool if name in fields and tool[name] is not None}
    return {"type": "function", "function": function}


def _choice(
    choice: Mapping[str, Any], tools: list[dict[str, Any]]
) -> tuple[Any, list[dict[str, Any]]]:
    """The choice as a chat has it, and the tools that it leaves."""
    kind = choice.get("type")
    if kind == "function":
        check_names(choice, {"type", "name"}, "tool_choice")
        name = text_at(choice, "name", "tool_choice")
        return {"type": "function", "function": {"name": name}}, tools
    if kind != "allowed_tools":
        rule = "must be 'function' or 'allowed_tools': this server has no tools of its own"
        raise wrong("tool_choice.type", rule)
    check_names(choice, {"type", "mode", "tools"}, "tool_choice")
    if choice.get("mode") not in ("auto", "required"):
        raise wrong("tool_choice.mode", "must be 'auto' or 'required'")
    return choice["mode"], _allowed(choice.get("tools"), tools)


def _allowed(given: Any, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the tools that `given` names; the others are not offered."""
    if not isinstance(given, list) or not given:
        raise wrong("tool_choice.tools", "must be a list with at least one function")
    known = {tool["function"]["name"] for tool in tools}
    names = set()
    for place, tool in enumerate(given):
        where = f"tool_choice.tools[{place}]"
        if not isinstance(tool, dict) or tool.get("type") != "function":
            raise wrong(f"{where}.type", "must be 'function'")
        names.add(text_at(tool, "name", where))
        if tool["name"] not in known:
            raise wrong(f"{where}.name", "is not among the tools")
    return [tool for tool in tools if tool["function"]["name"] in names]


def _add_text(chat: ChatCompletionRequest, given: Mapping[str, Any]) -> None:
    """The form of the answer."""
    check_names(given, {"format", "verbosity"}, "text")
    if given.get("verbosity") not in (None, "medium"):
        raise wrong("text.verbosity", "must be 'medium' or absent: no model here knows another")
    form = given.get("format")
    if form is None:
        return
    if isinstance(form, dict) and form.get("type") == "json_schema":
        where = "text.format"
        check_names(form, {"type", "name", "description", "schema", "strict"}, where)
        if not isinstance(form.get("description"), str | None):
            raise wrong(f"{where}.description", "must be a text")
        schema = {name: value for name, value in form.items() if name != "type"}
        form = {"type": "json_schema", "json_schema": schema}
    elif isinstance(form, dict):
        if form.get("type") not in ("text", "json_object"):
            raise wrong("text.format.type", "must be one of text, json_object, json_schema")
        check_names(form, {"type"}, "text.format")
    with spelled(_FORM_PLACES):
        form_of(form, None)
    chat.response_format = form


def _add_reasoning(chat: ChatCompletionRequest, given: Mapping[str, Any]) -> None:
    """How much the model shall think. Its thoughts are shown in any case."""
    names = {"effort", "summary", "generate_summary", "context", "mode"}
    check_names(given, names, "reasoning")
    chat.reasoning_effort = given.get("effort")
    for name in ("summary", "generate_summary"):
        if given.get(name) not in (None, *_SUMMARIES):
            rule = "must be 'auto' or 'detailed': the thoughts themselves are their summary"
            raise wrong(f"reasoning.{name}", rule)
    if given.get("context") not in (None, "auto"):
        raise wrong("reasoning.context", "must be 'auto': the chat template decides")
    if given.get("mode") not in (None, "standard"):
        raise wrong("reasoning.mode", "must be 'standard'")


def wants_summary(body: ResponseRequest) -> bool:
    """Whether the thoughts shall be shown as a summary too."""
    given = body.reasoning or {}
    return bool(given.get("summary") or given.get("generate_summary"))


def response_head(
    body: ResponseRequest, params: SamplingParams, *, response_id: str, model: str, created_at: int
) -> dict[str, Any]:
    """A response without output yet. `params` are what is in force."""
    text, reasoning = body.text or {}, body.reasoning or {}
    return {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "completed_at": None,
        "status": "queued" if body.background else "in_progress",
        "background": bool(body.background),
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {
            "effort": reasoning.get("effort"),
            "summary": reasoning.get("summary") or reasoning.get("generate_summary"),
        },
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": body.is_stored,
        "temperature": params.temperature,
        "text": {"format": text.get("format") or {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_logprobs": body.top_logprobs or 0,
        "top_p": params.top_p,
        "truncation": body.truncation or "disabled",
        "usage": None,
        "user": body.user,
    }
