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
    return_token_strs: bool | None = None  # as the vocabulary spells them


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


class AddedTokenShown(msgspec.Struct, kw_only=True):
    """A token that is never cut."""

    content: str
    special: bool


class TokenizerInfo(msgspec.Struct, kw_only=True):
    """What a client needs to render chats and count tokens as the server does."""

    tokenizer_class: str
    model_max_length: int
    add_bos_token: bool
    added_tokens_decoder: dict[str, AddedTokenShown]
    bos_token: str | None = None
    eos_token: str | None = None
    unk_token: str | None = None
    sep_token: str | None = None
    pad_token: str | None = None
    cls_token: str | None = None
    mask_token: str | None = None
    chat_template: str | None = None


class DetokenizeResponse(msgspec.Struct, kw_only=True):
    """Their text."""

    prompt: str
