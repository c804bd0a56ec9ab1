"""The body of /v1/chat/completions, and the part of it that makes a prompt."""

from __future__ import annotations

from typing import Any, Protocol

from octavo.errors import InvalidRequestError
from octavo.server.schemas.sampling import SamplingFields

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")

_OF_CHATS = (
    "tools",
    "documents",
    "continue_final_message",
    "chat_template",
    "chat_template_kwargs",
)


class ChatPrompt(Protocol):
    """What turns messages into a prompt; the bodies that hold a chat have these fields."""

    messages: list[dict[str, Any]] | None
    tools: list[dict[str, Any]] | None
    documents: list[dict[str, Any]] | None
    add_generation_prompt: bool | None
    continue_final_message: bool | None
    chat_template: str | None
    chat_template_kwargs: dict[str, Any] | None


class ChatFields(SamplingFields, kw_only=True):
    """Fields of chats, besides the messages."""

    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Any = None
    include_reasoning: bool | None = None
    audio: Any = None
    modalities: list[str] | None = None


class ChatCompletionRequest(ChatFields, kw_only=True):
    """OpenAI's chat completion, with vLLM's extensions."""

    messages: list[dict[str, Any]] | None = None


class BatchedChatRequest(ChatFields, kw_only=True):
    """Several conversations, and what counts for all of them."""

    messages: list[list[dict[str, Any]]] | None = None


def check_chat(request: ChatCompletionRequest) -> None:
    """Refuse what a chat cannot have here."""
    check_chat_prompt(request)
    if request.reasoning_effort not in (None, *EFFORTS):
        message = f"reasoning_effort must be one of {', '.join(EFFORTS)}"
        raise InvalidRequestError(message, param="reasoning_effort")
    budget = request.thinking_token_budget
    if budget is not None and not -1 <= budget < 2**31:
        message = f"thinking_token_budget must be at least 0, or -1 for no limit, got {budget}"
        raise InvalidRequestError(message[:200], param="thinking_token_budget")
    if budget not in (None, -1) and request.use_beam_search:
        message = "thinking_token_budget cannot be combined with use_beam_search; leave one out"
        raise InvalidRequestError(message, param="thinking_token_budget")
    if request.audio is not None or (request.modalities or ["text"]) != ["text"]:
        raise InvalidRequestError("only text can be generated", param="modalities")
    if request.echo and not echoed_text(request):
        message = "echo repeats the beginning of an answer: end messages with an assistant's text "
        raise InvalidRequestError(message + "and set continue_final_message", param="echo")
    if request.logprob_token_ids and not request.logprobs:
        message = "logprob_token_ids needs logprobs to be true"
        raise InvalidRequestError(message, param="logprob_token_ids")
    if request.top_logprobs is not None:
        if request.top_logprobs < -1:
            message = f"top_logprobs must be at least 0, or -1 for all, got {request.top_logprobs}"
            raise InvalidRequestError(message, param="top_logprobs")
        if not request.logprobs:
            message = "top_logprobs needs logprobs to be true"
            raise InvalidRequestError(message, param="top_logprobs")


def echoed_text(request: ChatCompletionRequest) -> str:
    """The beginning of the answer that the request wants to see again; empty: none."""
    last = (request.messages or [{}])[-1]
    if not (request.echo and request.continue_final_message) or last.get("role") != "assistant":
        return ""
    content = last.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def check_num_messages(request: ChatPrompt, most: int) -> None:
    """Refuse a longer chat than `--max-messages` before any work is done on it."""
    if len(request.messages or ()) > most:
        raise InvalidRequestError(
            f"messages may hold at most {most} (--max-messages), got {len(request.messages or ())}",
            param="messages",
        )


def check_no_chat(request: ChatPrompt, instead: str) -> None:
    """Refuse a chat, and what only a chat has, beside another prompt.

    `instead`: the field of that prompt.
    """
    if request.messages is not None:
        raise InvalidRequestError(
            f"{instead} and messages exclude each other; leave one out", param="messages"
        )
    for name in _OF_CHATS:
        if getattr(request, name):
            message = f"{name} is for messages, and the body has {instead}; leave one out"
            raise InvalidRequestError(message, param=name)


def check_chat_prompt(request: ChatPrompt) -> None:
    """Refuse messages and template options that make no prompt."""
    if request.messages is None:
        raise InvalidRequestError("messages is missing", param="messages")
    if request.chat_template is not None:
        message = "chat_template from a request is not trusted; start with --chat-template"
        raise InvalidRequestError(message, param="chat_template")
    if request.continue_final_message and request.add_generation_prompt:
        message = "continue_final_message and add_generation_prompt exclude each other"
        raise InvalidRequestError(message, param="continue_final_message")


def limit_of(request: ChatCompletionRequest) -> int | None:
    """`max_completion_tokens`, or its older name `max_tokens`; None: the rest of the context."""
    if request.max_completion_tokens is not None:
        return request.max_completion_tokens
    return request.max_tokens
