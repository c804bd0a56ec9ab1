"""The body of OpenAI's Responses API, /v1/responses, with vLLM's extensions.

Source: https://platform.openai.com/docs/api-reference/responses. An unknown field is refused by
name, as OpenAI does. Accepted without effect, because the effect is there anyway or lies outside
the answer: `user` and `safety_identifier` (for the provider's records), `prompt_cache_key` and
`prompt_cache_retention` (every prompt is cached in memory), `service_tier` (there is one),
`max_tool_calls` (limits built-in tools, of which there are none).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from octavo.errors import InvalidRequestError
from octavo.server.dialects.places import wrong
from octavo.server.schemas.switches import switch_at

INCLUDED_LOGPROBS = "message.output_text.logprobs"
INCLUDED_THOUGHTS = "reasoning.encrypted_content"
INCLUDABLE = (INCLUDED_LOGPROBS, INCLUDED_THOUGHTS)
MAX_LOGPROBS = 20
MAX_PAIRS, LONGEST_KEY, LONGEST_VALUE = 16, 64, 512  # of metadata
# Fields that a chat completion has too, with the same meaning.
SHARED = (
    *("temperature", "top_p", "top_k", "min_p", "seed", "stop", "logit_bias", "ignore_eos"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty", "skip_special_tokens"),
    *("include_stop_str_in_output", "priority", "timeout", "cache_salt", "structured_outputs"),
    *("chat_template_kwargs", "thinking_token_budget", "parallel_tool_calls", "vllm_xargs"),
)
# Known, and refused: field -> what to do instead.
REFUSED: Mapping[str, str] = {
    "conversation": "there are no conversation objects; use previous_response_id",
    "prompt": "there are no stored prompt templates; send the text in input",
    "context_management": "nothing is compacted; use truncation 'auto'",
    "moderation": "nothing is moderated",
    "image": "this model takes text only",
    "access_programs": "there are none",
    "request_id": "the server makes the id",
    "mm_processor_kwargs": "this model takes text only",
    "enable_response_messages": "ask /tokenize for the tokens of a prompt",
    "previous_input_messages": "send them as items of input",
    "previous_response": "use previous_response_id, or send its items in input",
}
SWITCHES = frozenset({"enable_response_messages"})  # of these, false asks for nothing
# Options whose neutral value asks for nothing.
NEUTRAL: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "stream_options": {"include_obfuscation": (False,)},
    "background_options": {"completion_window": ("soonest",)},
    "prompt_cache_options": {"mode": ("implicit",), "prewarm": (False,)},
}


class ResponseRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One response to be made. Null means "not given"."""

    model: str | None = None
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    background: bool | None = None
    background_options: dict[str, Any] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory"] | None = None
    prompt_cache_options: dict[str, Any] | None = None
    service_tier: Literal["auto", "default"] | None = None
    max_tool_calls: int | None = None
    # vLLM's, and ours.
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    logit_bias: dict[str, float] | None = None
    ignore_eos: bool | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    priority: int | None = None
    timeout: float | None = None  # seconds that the answer may take
    cache_salt: str | None = None
    structured_outputs: Any = None
    chat_template_kwargs: dict[str, Any] | None = None
    thinking_token_budget: int | None = None
    vllm_xargs: dict[str, Any] | None = None
    # Known, and refused.
    conversation: Any = None
    prompt: Any = None
    context_management: Any = None
    moderation: Any = None
    image: Any = None
    access_programs: Any = None
    request_id: Any = None
    mm_processor_kwargs: Any = None
    enable_response_messages: Any = None
    previous_input_messages: Any = None
    previous_response: Any = None

    @property
    def is_stored(self) -> bool:
        """Whether the response can be asked for later; so it is without a word."""
        return self.store is not False

    def includes(self, what: str) -> bool:
        """Whether `include` asks for it."""
        return what in (self.include or ())


def check_response(body: ResponseRequest) -> None:
    """Refuse what no response can have here. Raises InvalidRequestError that names the field."""
    for name, instead in REFUSED.items():
        value = getattr(body, name)
        if value is not None and not (name in SWITCHES and switch_at(value, name) is False):
            raise wrong(name, f"is not supported by this server: {instead}")
    for name, options in NEUTRAL.items():
        _check_neutral(name, getattr(body, name) or {}, options)
    if body.background and not body.is_stored:
        message = "background can only be used when `store` is true"
        raise InvalidRequestError(message, param="background")
    if body.stream_options is not None and not body.stream:
        raise wrong("stream_options", "is for streams; set stream to true or leave it out")
    if body.max_tool_calls is not None and body.max_tool_calls < 1:
        raise wrong("max_tool_calls", "must be at least 1")
    check_include(body.include)
    _check_logprobs(body)
    _check_metadata(body.metadata or {})


def check_include(include: list[str] | None) -> None:
    """Refuse what is no part of any answer here."""
    for place, what in enumerate(include or ()):
        if what not in INCLUDABLE:
            raise wrong(f"include[{place}]", f"must be one of {', '.join(INCLUDABLE)}")


def _check_neutral(
    name: str, given: Mapping[str, Any], options: Mapping[str, tuple[Any, ...]]
) -> None:
    for option, value in given.items():
        where, neutral = f"{name}.{option[:100]}", options.get(option, ())
        is_switch = False in neutral
        if value is None or (switch_at(value, where) if is_switch else value) in neutral:
            continue
        raise wrong(where, "is not supported by this server")


def _check_logprobs(body: ResponseRequest) -> None:
    wanted = body.top_logprobs
    if wanted is None:
        return
    if not 0 <= wanted <= MAX_LOGPROBS:
        raise wrong("top_logprobs", f"must be between 0 and {MAX_LOGPROBS}")
    if wanted and not body.includes(INCLUDED_LOGPROBS):
        raise wrong("top_logprobs", f"needs include to hold '{INCLUDED_LOGPROBS}'")


def _check_metadata(given: Mapping[str, str]) -> None:
    if len(given) > MAX_PAIRS:
        raise wrong("metadata", f"may hold at most {MAX_PAIRS} pairs, got {len(given)}")
    for key, value in given.items():
        if len(key) > LONGEST_KEY:
            raise wrong("metadata", f"may have keys of at most {LONGEST_KEY} characters")
        if len(value) > LONGEST_VALUE:
            rule = f"may be a text of at most {LONGEST_VALUE} characters"
            raise wrong(f"metadata.{key}", rule)
