"""The answers of Ollama's API, for the API's description. Times are in nanoseconds."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo.server.schemas.chat_answer import TokenLogprob
from octavo.server.schemas.ollama import OllamaDetails, OllamaModel, OllamaRunningModel


class OllamaMessage(msgspec.Struct, kw_only=True):
    """The answer, or what is new of it."""

    role: str
    content: str
    thinking: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


class OllamaAnswerFields(msgspec.Struct, kw_only=True):
    """What objects of both routes have; counts and times come with the last one."""

    model: str
    created_at: str
    done: bool
    done_reason: str | msgspec.UnsetType | None = msgspec.UNSET
    total_duration: int | msgspec.UnsetType = msgspec.UNSET
    load_duration: int | msgspec.UnsetType = msgspec.UNSET
    prompt_eval_count: int | msgspec.UnsetType = msgspec.UNSET
    prompt_eval_duration: int | msgspec.UnsetType = msgspec.UNSET
    eval_count: int | msgspec.UnsetType = msgspec.UNSET
    eval_duration: int | msgspec.UnsetType = msgspec.UNSET
    logprobs: list[TokenLogprob] | msgspec.UnsetType = msgspec.UNSET


class OllamaChatAnswer(OllamaAnswerFields, kw_only=True):
    """The answer of /api/chat, or a line of it."""

    message: OllamaMessage


class OllamaGenerateAnswer(OllamaAnswerFields, kw_only=True):
    """The answer of /api/generate, or a line of it."""

    response: str
    thinking: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET


class OllamaModels(msgspec.Struct, kw_only=True):
    """/api/tags."""

    models: list[OllamaModel]


class OllamaRunningModels(msgspec.Struct, kw_only=True):
    """/api/ps."""

    models: list[OllamaRunningModel]


class OllamaModelShown(msgspec.Struct, kw_only=True):
    """/api/show."""

    modelfile: str
    parameters: str
    template: str
    details: OllamaDetails
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str
