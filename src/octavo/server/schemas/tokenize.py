"""The bodies of /tokenize and /detokenize."""

from __future__ import annotations

from typing import Any

import msgspec


class TokenizeRequest(msgspec.Struct, kw_only=True):
    """A text in `prompt`, or a chat in `messages`."""

    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class TokenizeResponse(msgspec.Struct, kw_only=True):
    """Token ids of a text."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    """Token ids."""

    tokens: list[int]
    model: str | None = None


class DetokenizeResponse(msgspec.Struct, kw_only=True):
    """Their text."""

    prompt: str
