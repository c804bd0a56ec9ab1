"""The three forms of an error, as `errors.py` and `error_shapes.py` make them."""

from __future__ import annotations

from typing import Literal

import msgspec


class ErrorFacts(msgspec.Struct, kw_only=True):
    """What went wrong: in words, by kind, the field at fault, and the status or a word for it."""

    message: str
    type: str
    param: str | None
    code: int | str


class ErrorAnswer(msgspec.Struct, kw_only=True):
    """OpenAI's error."""

    error: ErrorFacts


class MessagesErrorFacts(msgspec.Struct, kw_only=True):
    """Its kind, and what went wrong in words."""

    type: str
    message: str


class MessagesErrorAnswer(msgspec.Struct, kw_only=True):
    """Anthropic's error."""

    type: Literal["error"]
    error: MessagesErrorFacts
    request_id: str | None = None


class OllamaErrorAnswer(msgspec.Struct, kw_only=True):
    """Ollama's error."""

    error: str
