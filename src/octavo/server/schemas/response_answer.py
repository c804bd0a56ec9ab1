"""The answers of /v1/responses, whole and as events, for the API's description."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class ResponseError(msgspec.Struct, kw_only=True):
    """Why a response failed."""

    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


class InputTokensDetails(msgspec.Struct, kw_only=True):
    """Where the prompt's tokens came from."""

    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(msgspec.Struct, kw_only=True):
    """What the generated tokens are."""

    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, kw_only=True):
    """Token counts."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseItem(msgspec.Struct, kw_only=True):
    """A message, a call, its result or thoughts; what else it has depends on its type."""

    id: str
    type: Literal["message", "function_call", "function_call_output", "reasoning"]
    status: Literal["in_progress", "completed", "incomplete"]


class ResponseShown(msgspec.Struct, kw_only=True):
    """A response as it is now; what was asked for is in it too."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Status
    background: bool
    error: ResponseError | None
    incomplete_details: dict[str, Any] | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    model: str
    output: list[ResponseItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: dict[str, Any]
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None
    user: str | None


class ResponseEvent(msgspec.Struct, kw_only=True):
    """One event of a stream; what else it has depends on its type."""

    type: str
    sequence_number: int
    response: ResponseShown | msgspec.UnsetType = msgspec.UNSET
    output_index: int | msgspec.UnsetType = msgspec.UNSET
    item: ResponseItem | msgspec.UnsetType = msgspec.UNSET
    item_id: str | msgspec.UnsetType = msgspec.UNSET
    content_index: int | msgspec.UnsetType = msgspec.UNSET
    delta: str | msgspec.UnsetType = msgspec.UNSET


class DeletedResponse(msgspec.Struct, kw_only=True):
    """The answer to a deletion."""

    id: str
    deleted: bool
    object: Literal["response"]


class InputItems(msgspec.Struct, kw_only=True):
    """A page of what a response was made from."""

    object: Literal["list"]
    data: list[ResponseItem]
    first_id: str | None
    last_id: str | None
    has_more: bool
