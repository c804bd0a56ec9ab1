"""The answers of /v1/messages, whole and as events, for the API's description."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from octavo.server.schemas.messages import MessageUsage

# The last one is ours: the time of a request that has a `timeout` was up.
StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "timeout"]


class TextBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="text"):
    """Text of the answer."""

    text: str


class ThinkingBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="thinking"):
    """Thoughts before it; nothing here signs them."""

    thinking: str
    signature: str


class ToolUseBlock(msgspec.Struct, kw_only=True, tag_field="type", tag="tool_use"):
    """A call of a tool."""

    id: str
    name: str
    input: dict[str, Any]


class MessageShown(msgspec.Struct, kw_only=True):
    """A whole message."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class MessageEvent(msgspec.Struct, kw_only=True):
    """One event of a stream; what else it has depends on its type."""

    type: Literal[
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ]
    message: MessageShown | msgspec.UnsetType = msgspec.UNSET
    index: int | msgspec.UnsetType = msgspec.UNSET
    content_block: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    delta: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    usage: MessageUsage | msgspec.UnsetType = msgspec.UNSET
    error: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
