"""Parts of every answer: usage and the list of models."""

from __future__ import annotations

from typing import Any

import msgspec


class PromptTokensDetails(msgspec.Struct, kw_only=True):
    """Where the prompt's tokens came from."""

    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, kw_only=True):
    """What the generated tokens are."""

    reasoning_tokens: int


class Usage(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Token counts over all choices."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


class ModelCard(msgspec.Struct, kw_only=True):
    """One entry of /v1/models."""

    id: str
    created: int
    root: str
    max_model_len: int | None
    object: str = "model"
    owned_by: str = "octavo"
    parent: str | None = None
    permission: list[Any] = []


class ModelList(msgspec.Struct, kw_only=True):
    """/v1/models."""

    data: list[ModelCard]
    object: str = "list"
