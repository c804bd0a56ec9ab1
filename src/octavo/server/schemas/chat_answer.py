"""The answers of /v1/chat/completions, whole and as chunks, for the API's description.

Answers are written from prepared bytes; these types say what they hold. Null or absent: not there.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from octavo.server.schemas.envelope import Usage


class CalledFunction(msgspec.Struct, kw_only=True):
    """A function's name, and its arguments as JSON text."""

    name: str
    arguments: str


class ChatToolCall(msgspec.Struct, kw_only=True):
    """One call; `index` only in chunks."""

    id: str
    function: CalledFunction
    type: Literal["function"] = "function"
    index: int | msgspec.UnsetType = msgspec.UNSET


class TokenLogprob(msgspec.Struct, kw_only=True):
    """One token, its log-probability, and the most likely tokens of its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TokenLogprob] | msgspec.UnsetType = msgspec.UNSET


class ChatLogprobs(msgspec.Struct, kw_only=True):
    """One entry for each token of the answer."""

    content: list[TokenLogprob]
    refusal: None = None


class ChatMessage(msgspec.Struct, kw_only=True):
    """The answer of a choice, with its thoughts where the model thinks aloud."""

    role: str
    content: str | None
    refusal: str | None = None
    reasoning: str | msgspec.UnsetType | None = msgspec.UNSET
    tool_calls: list[ChatToolCall] | msgspec.UnsetType = msgspec.UNSET


class ChatDelta(msgspec.Struct, kw_only=True):
    """What is new of a choice."""

    role: str | msgspec.UnsetType = msgspec.UNSET
    content: str | msgspec.UnsetType | None = msgspec.UNSET
    reasoning: str | msgspec.UnsetType | None = msgspec.UNSET
    tool_calls: list[ChatToolCall] | msgspec.UnsetType = msgspec.UNSET


class RequestTimesShown(msgspec.Struct, kw_only=True):
    """With --enable-per-request-metrics: milliseconds, counts, and a rate."""

    arrival_time: float
    queue_time_ms: float | None
    time_to_first_token_ms: float | None
    generation_time_ms: float | None
    mean_itl_ms: float | None
    tokens_per_second: float | None
    num_cached_tokens: int
    num_preemptions: int
    num_swaps: int


PromptLogprobs = list[dict[str, Any] | None]


class ChoiceFields(msgspec.Struct, kw_only=True):
    """What choices of chats and completions have in common."""

    index: int
    finish_reason: str | None
    stop_reason: int | str | msgspec.UnsetType | None = msgspec.UNSET
    token_ids: list[int] | msgspec.UnsetType | None = msgspec.UNSET


class ChatChoice(ChoiceFields, kw_only=True):
    """One of `n` answers."""

    message: ChatMessage
    logprobs: ChatLogprobs | None = None


class ChatChunkChoice(ChoiceFields, kw_only=True):
    """What is new of one of `n` answers."""

    delta: ChatDelta
    logprobs: ChatLogprobs | None = None


class AnswerFields(msgspec.Struct, kw_only=True):
    """What every answer begins with; `created` in seconds since 1970."""

    id: str
    created: int
    model: str
    metrics: RequestTimesShown | msgspec.UnsetType = msgspec.UNSET


class ChatCompletion(AnswerFields, kw_only=True):
    """A whole answer."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | msgspec.UnsetType | None = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType | None = msgspec.UNSET


class BatchedChatChoice(ChatChoice, kw_only=True):
    """The answer to one of several conversations, with what was asked for about its prompt."""

    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET


class BatchedChatCompletion(msgspec.Struct, kw_only=True):
    """The answers to several conversations; choice number i is that to conversation number i."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[BatchedChatChoice]
    usage: Usage


class ChatCompletionChunk(AnswerFields, kw_only=True):
    """One event of a stream; `choices` is empty in the one with the usage. The last is [DONE]."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET  # beside the role
