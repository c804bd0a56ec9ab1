"""The answer of /v1/capabilities: what this server honours, for programs and for the chat page."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class ModelAbilities(msgspec.Struct, kw_only=True):
    """What is served. `kind` says what it makes: text, or vectors."""

    kind: Literal["generate", "embed", "classify"]
    architecture: str
    max_model_len: int
    vocab_size: int
    has_chat_template: bool


class Modalities(msgspec.Struct, kw_only=True):
    """What goes in and what comes out."""

    input: list[str]
    output: list[str]


class EndpointShown(msgspec.Struct, kw_only=True):
    """A route. `scope` says which key opens it."""

    method: str
    path: str
    scope: Literal["open", "inference", "batches", "metrics", "admin"]


class ToolAbilities(msgspec.Struct, kw_only=True):
    """Tool calls. Without a `parser` the choice auto is refused; the others are always there."""

    parser: str | None
    choices: list[str]
    parsers: list[str]
    is_parallel: bool = True


class ReasoningAbilities(msgspec.Struct, kw_only=True):
    """Thoughts. `efforts` are the values of reasoning_effort that mean something to the model."""

    parser: str | None
    efforts: list[str]
    parsers: list[str]
    has_budget: bool  # thinking_token_budget is honoured


class StructuredAbilities(msgspec.Struct, kw_only=True):
    """Forms of answers: types of `response_format`, fields of `structured_outputs`."""

    response_formats: list[str]
    structured_outputs: list[str]


class Limits(msgspec.Struct, kw_only=True):
    """What a request may ask for. Null and -1: no bound."""

    max_model_len: int
    max_num_seqs: int
    max_queued_requests: int | None
    max_body_bytes: int
    max_messages: int
    max_prompts: int
    max_choices: int
    max_logprobs: int
    max_tools: int
    max_logit_biases: int


class KeyUse(msgspec.Struct, kw_only=True):
    """Whether keys are asked for, and how they are sent."""

    is_required: bool
    schemes: list[str]


class Capabilities(msgspec.Struct, kw_only=True):
    """What this server honours."""

    version: str
    models: list[str]
    model: ModelAbilities
    modalities: Modalities
    endpoints: list[EndpointShown]
    tools: ToolAbilities
    reasoning: ReasoningAbilities
    structured_outputs: StructuredAbilities
    limits: Limits
    sampling_defaults: dict[str, Any]
    auth: KeyUse
    docs: bool
    object: Literal["capabilities"] = "capabilities"
