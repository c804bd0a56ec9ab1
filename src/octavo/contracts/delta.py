"""What one request gained in one step: engine core -> front end."""

from __future__ import annotations

from typing import Literal

import msgspec

from octavo.contracts.step import TokenLogprobs
from octavo.contracts.tracing import StepTotals

FinishReason = Literal["stop", "length", "abort", "error"]


class BeamSequence(msgspec.Struct, frozen=True, kw_only=True):
    """One result of a beam search."""

    token_ids: list[int]  # generated ones, a token that ended it included
    cumulative_logprob: float
    score: float  # with the length penalty; results come best first
    finish_reason: FinishReason
    stop_reason: int | None = None
    logprobs: list[TokenLogprobs] | None = None  # parallel to `token_ids`, if asked for


class TokenDelta(msgspec.Struct, tag="delta"):
    """News of one request. The last one of a request has a `finish_reason`."""

    request_id: str
    token_ids: list[int]  # usually one; a token that ended the request is included
    finish_reason: FinishReason | None = None
    # The id from `stop_token_ids` that matched, or "timeout" with finish_reason "abort".
    stop_reason: int | Literal["timeout"] | None = None
    is_complete: bool = False  # a grammar ended the answer: the last token is text, no end token
    # With finish_reason "error"; and of a "timeout" before the first token, the numbers.
    error: str | None = None
    # With an `error` and finish_reason "abort": it gave its place in the queue away before it ran,
    # and is worth sending again after so many seconds.
    retry_after_s: float | None = None
    is_unanswerable: bool = False  # with an error: nothing is as the request asks for
    logprobs: list[TokenLogprobs] | None = None  # parallel to `token_ids`
    prompt_logprobs: list[TokenLogprobs] | None = (
        None  # for the prompt tokens computed in this step
    )
    num_cached_tokens: int = 0  # prompt tokens taken from the prefix cache at first admission
    admitted_s: float | None = None  # first admission, engine clock; in the first delta only
    beams: list[BeamSequence] | None = None  # of a beam search, in its last delta
    pooled: bytes | None = None  # of a request that is pooled, in its last delta; see StepResult
    num_preemptions: int = 0  # in the last delta: how often the request yielded, and how often of
    num_swaps: int = 0  # these it was swapped rather than computed again
    # Where step times are collected: what all steps took until this one, and in the first delta
    # what they had taken before the request's first.
    totals: StepTotals | None = None
    totals_before: StepTotals | None = None
