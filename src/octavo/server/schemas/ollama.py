"""The bodies of Ollama's API. Source: https://github.com/ollama/ollama/blob/main/docs/api.md.

A field that is not here is refused by name, options too. Accepted without effect: `keep_alive` (the
model is always loaded), `verbose` of /api/show (all there is is shown), and values of `truncate`
and `shift` that ask for what is done anyway.
"""

from __future__ import annotations

from typing import Any

import msgspec


class OllamaOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How to sample. Where nothing is said, the model's own defaults count, not Ollama's."""

    num_predict: int | None = None  # -1 and -2: the rest of the context
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None  # -1 only: penalties look at all tokens
    num_ctx: int | None = None  # from the prompt's tokens to the server's context
    # Only values that ask for nothing.
    typical_p: float | None = None
    tfs_z: float | None = None
    mirostat: int | None = None


class OllamaFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields of both generation routes."""

    model: str
    stream: bool | None = None  # true by default
    format: Any = None
    options: OllamaOptions | None = None
    think: bool | str | None = None
    keep_alive: int | float | str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    truncate: bool | None = None
    shift: bool | None = None
    timeout: float | None = None  # seconds that the answer may take; ours


class OllamaChatRequest(OllamaFields, kw_only=True, forbid_unknown_fields=True):
    """The body of /api/chat."""

    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None


class OllamaGenerateRequest(OllamaFields, kw_only=True, forbid_unknown_fields=True):
    """The body of /api/generate."""

    prompt: str | None = None
    system: str | None = None
    raw: bool | None = None
    # Known, and refused.
    suffix: str | None = None
    template: str | None = None
    images: list[Any] | None = None
    context: list[int] | None = None


class OllamaEmbedRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of /api/embed."""

    model: str
    input: str | list[str] = []
    truncate: bool | None = None  # true by default: the beginning that fits
    dimensions: int | None = None
    options: OllamaOptions | None = None  # of sampling; without effect
    keep_alive: int | float | str | None = None
    timeout: float | None = None  # seconds that the answer may take; ours


class OllamaEmbeddingsRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of /api/embeddings."""

    model: str
    prompt: str = ""
    options: OllamaOptions | None = None
    keep_alive: int | float | str | None = None
    timeout: float | None = None  # seconds that the answer may take; ours


class OllamaEmbedAnswer(msgspec.Struct, kw_only=True):
    """The answer of /api/embed; durations are nanoseconds."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    prompt_eval_count: int
    load_duration: int = 0


class OllamaEmbeddingsAnswer(msgspec.Struct, kw_only=True):
    """The answer of /api/embeddings."""

    embedding: list[float]


class OllamaShowRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of /api/show; `name` is the older word for `model`."""

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None


class OllamaDetails(msgspec.Struct, kw_only=True):
    """What kind of model it is. Empty where a checkpoint does not say."""

    family: str
    families: list[str]
    parent_model: str = ""
    format: str = ""
    parameter_size: str = ""
    quantization_level: str = ""


class OllamaModel(msgspec.Struct, kw_only=True):
    """One entry of /api/tags."""

    name: str
    model: str
    modified_at: str
    size: int  # bytes of the weights in memory
    digest: str  # of the name: weights are not hashed
    details: OllamaDetails


class OllamaRunningModel(OllamaModel, kw_only=True):
    """One entry of /api/ps."""

    expires_at: str
    context_length: int
    size_vram: int = 0
