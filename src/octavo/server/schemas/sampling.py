"""HTTP names <-> SamplingParams: the fields that both generation routes share.

Null means "not given" everywhere. Unknown fields are ignored, as OpenAI and vLLM do; a field of
theirs that we know and do not serve yet is refused by name, never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from octavo.contracts.request import BeamSpec
from octavo.engine.beam_search import beam_spec
from octavo.errors import InvalidRequestError
from octavo.sampling_params import (
    BeamSearchParams,
    RequestOutputKind,
    SamplingParams,
    StructuredOutputsParams,
    shown_some,
)
from octavo.server.field_names import errors_name
from octavo.server.schemas.structured import REMOVED

MAX_BIASES = 4096
_TOKENS = "prompt_token_ids"  # of kv_transfer_params
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")


class StreamOptions(msgspec.Struct, kw_only=True):
    """How usage is reported in a stream."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None  # false: nothing is added to hide the size of tokens


class SamplingFields(msgspec.Struct, kw_only=True):
    """Fields of completions and chat completions alike."""

    model: str | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None  # these tokens in place of the best ones
    truncate_prompt_tokens: int | None = None
    truncation_side: str | None = None
    add_special_tokens: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    echo: bool | None = None
    priority: int | None = None
    cache_salt: str | None = None
    timeout: float | None = None  # seconds that the answer may take; ours
    request_id: str | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None  # "token_id:7" for texts in logprobs
    use_beam_search: bool | None = None  # with `n` as its width
    length_penalty: float | None = None
    early_stopping: bool | str | None = None
    user: Any = None
    response_format: Any = None
    structured_outputs: Any = None
    thinking_token_budget: int | None = None
    vllm_xargs: dict[str, Any] | None = None  # for logits processors
    # Known, and refused: vLLM has removed them.
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    # Known, and refused until they are served.
    best_of: int | None = None
    repetition_detection: Any = None
    kv_transfer_params: dict[str, Any] | None = None  # but the tokens of a chat, see `tokens_of`
    prompt_embeds: Any = None


SAMPLING_NAMES = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "allowed_token_ids",
    "bad_words",
    "stop",
    "stop_token_ids",
    "include_stop_str_in_output",
    "ignore_eos",
    "min_tokens",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "prompt_logprobs",
    "logprob_token_ids",
)
NOT_SERVED = (
    "repetition_detection",
    "prompt_embeds",
)


def check_served(fields: SamplingFields) -> None:
    """Refuse what is known but not served, and combinations that have no meaning."""
    for name in NOT_SERVED:
        if getattr(fields, name) not in (None, {}):
            raise InvalidRequestError(f"{name} is not supported by this server", param=name)
    for name, kind in REMOVED.items():
        if getattr(fields, name) is not None:
            message = f'{name} is not supported; use structured_outputs: {{"{kind}": ...}}'
            raise InvalidRequestError(message, param=name)
    _check_beams(fields)
    if fields.best_of not in (None, fields.n or 1):
        way_out = f"ask for n={shown_int(fields.best_of)} choices"
        if fields.best_of < 1:
            way_out = f"leave it out, got {shown_int(fields.best_of)}"
        message = f"best_of is not supported; {way_out}"
        raise InvalidRequestError(message, param="best_of")
    if fields.stream_options is not None and fields.stream_options.include_obfuscation:
        where = "stream_options.include_obfuscation"
        raise InvalidRequestError(f"{where} is not supported by this server", param=where)
    if fields.stream_options is not None and not fields.stream:
        message = "stream_options is for streams; set stream to true or leave it out"
        raise InvalidRequestError(message, param="stream_options")
    if fields.stream and fields.prompt_logprobs is not None:
        message = "prompt_logprobs cannot be streamed; set stream to false"
        raise InvalidRequestError(message, param="prompt_logprobs")


def tokens_of(fields: SamplingFields) -> list[int] | None:
    """The prompt as tokens, which a router has from the engine that computed it first.

    Raises InvalidRequestError for what else a transfer would need.
    """
    given = fields.kv_transfer_params or {}
    other = next((name for name in given if name != _TOKENS), None)
    if other is not None:
        message = (
            f"kv_transfer_params.{other[:60]} is not supported by this server, which fetches no "
            f"keys and values; a chat may have {_TOKENS}"
        )
        raise InvalidRequestError(message, param="kv_transfer_params")
    ids = given.get(_TOKENS) or None
    if ids is not None and not (isinstance(ids, list) and all(type(one) is int for one in ids)):
        message = f"kv_transfer_params.{_TOKENS} must be a list of token ids"
        raise InvalidRequestError(message, param="kv_transfer_params")
    return ids


def _check_beams(fields: SamplingFields) -> None:
    if fields.use_beam_search:
        if fields.stream:
            message = "use_beam_search cannot be streamed: its answers are known at the end; "
            raise InvalidRequestError(message + "set stream to false", param="stream")
        return
    for name, neutral in (("length_penalty", 1.0), ("early_stopping", False)):
        if getattr(fields, name) not in (None, neutral):
            message = f"{name} is for beam search; set use_beam_search to true or leave it out"
            raise InvalidRequestError(message, param=name)


def beam_of(fields: SamplingFields) -> BeamSpec | None:
    """The beam search that a request asks for. Raises InvalidRequestError."""
    if not fields.use_beam_search:
        return None
    penalty, early = fields.length_penalty, fields.early_stopping
    with errors_name({"beam_width": "n"}):
        params = BeamSearchParams(
            beam_width=1 if fields.n is None else fields.n,
            max_tokens=1,  # has its own way into the request
            length_penalty=1.0 if penalty is None else penalty,
            early_stopping=False if early is None else early,  # type: ignore[arg-type]  # it checks
        )
        return beam_spec(params)


def sampling_params(
    fields: SamplingFields,
    *,
    defaults: Mapping[str, Any],
    max_tokens: int | None,
    logprobs: int | None,
    form: StructuredOutputsParams | None = None,
) -> SamplingParams:
    """SamplingParams of a request.

    `defaults` are the model's generation_config; `max_tokens` and `logprobs` differ by route.
    `form` is what the answer must look like.
    """
    given = {name: getattr(fields, name) for name in SAMPLING_NAMES}
    if fields.use_beam_search:  # the model's defaults are for sampling, and `n` is the width
        defaults = {"temperature": 0.0}
        given["n"] = None
    kind = RequestOutputKind.DELTA if fields.stream else RequestOutputKind.FINAL_ONLY
    return SamplingParams.from_optional(
        defaults,
        **given,
        logit_bias=_bias(fields.logit_bias),
        max_tokens=max_tokens,
        logprobs=None if fields.logprob_token_ids else logprobs,
        structured_outputs=form,
        extra_args=fields.vllm_xargs,
        output_kind=kind,
    )


def shown_int(value: int | None) -> str:
    """A number as a message may repeat it."""
    text = str(value)
    return text if len(text) < 30 else text[:27] + "..."


def _bias(given: dict[str, float] | None) -> dict[int, float] | None:
    if given is None:
        return None
    if len(given) > MAX_BIASES:
        message = f"logit_bias may hold at most {MAX_BIASES} entries, got {len(given)}"
        raise InvalidRequestError(message, param="logit_bias")
    wrong = [key for key in given if len(key) > 20 or not _WHOLE_NUMBER.fullmatch(key)]
    if wrong:
        message = f"logit_bias must have token ids as keys, got {shown_some(wrong)}"
        raise InvalidRequestError(message, param="logit_bias")
    return {int(key): value for key, value in given.items()}
