"""What one request gained in one step: engine core -> front end."""

from __future__ import annotations

from typing import Literal

import msgspec

from octavo.contracts.step import TokenLogprobs

FinishReason = Literal["stop", "length", "abort", "error"]


class TokenDelta(msgspec.Struct, tag="delta"):
    """News of one request. The last one of a request has a `finish_reason`."""

    request_id: str
    token_ids: list[int]  # usually one; a token that ended the request is included
    finish_reason: FinishReason | None = None
    stop_reason: int | None = None  # the id from `stop_token_ids` that matched
    error: str | None = None  # with finish_reason "error"
    logprobs: list[TokenLogprobs] | None = None  # parallel to `token_ids`
    prompt_logprobs: list[TokenLogprobs] | None = (
        None  # for the prompt tokens computed in this step
    )
    num_cached_tokens: int = 0  # prompt tokens taken from the prefix cache at first admission
    admitted_s: float | None = None  # first admission, engine clock; in the first delta only
