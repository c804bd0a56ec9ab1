"""The answers of /v1/completions, whole and as chunks, for the API's description."""

from __future__ import annotations

from typing import Literal

import msgspec

from octavo.server.schemas.chat_answer import AnswerFields, ChoiceFields, PromptLogprobs
from octavo.server.schemas.envelope import Usage


class CompletionLogprobsShown(msgspec.Struct, kw_only=True):
    """Lists over the tokens; the first token of an echoed prompt has no log-probability."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(ChoiceFields, kw_only=True):
    """One continuation, or what is new of it."""

    text: str
    logprobs: CompletionLogprobsShown | None = None
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType | None = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType | None = msgspec.UNSET


class Completion(AnswerFields, kw_only=True):
    """A whole answer."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage


class CompletionChunk(AnswerFields, kw_only=True):
    """One event of a stream; `choices` is empty in the one with the usage. The last is [DONE]."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
