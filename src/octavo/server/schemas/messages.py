"""The bodies of Anthropic's Messages API: /v1/messages and /v1/messages/count_tokens.

Source: https://docs.anthropic.com/en/api/messages. A field that is not here is refused by name.
Accepted without effect, because the effect is there anyway or lies outside the answer:
`cache_control` (every prompt is cached), `service_tier` (there is one), `metadata` (an id for the
provider's own records), a thought's `signature` (nothing here signs thoughts).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class MessagesPrompt(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What makes the prompt of a message; also the body of count_tokens."""

    model: str
    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    cache_control: dict[str, Any] | None = None


class MessagesRequest(MessagesPrompt, kw_only=True, forbid_unknown_fields=True):
    """One message to be written."""

    max_tokens: int
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: dict[str, Any] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    timeout: float | None = None  # seconds that the answer may take; ours


class MessageUsage(msgspec.Struct, kw_only=True):
    """Token counts; the prompt has `input_tokens` and both cache counts together."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int = 0  # nothing is charged for filling the cache


class TokenCount(msgspec.Struct, kw_only=True):
    """The answer of count_tokens."""

    input_tokens: int
