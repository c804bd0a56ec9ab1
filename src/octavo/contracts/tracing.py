"""What the end of a request tells a tracer, and whoever takes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec


class StepTotals(NamedTuple):
    """Seconds of all steps of an engine so far."""

    python_s: float = 0.0  # planning and committing
    forward_s: float = 0.0  # the forward passes
    execute_s: float = 0.0  # all of the runner's work: forward passes, moves, sampling


class RequestTrace(msgspec.Struct, frozen=True, kw_only=True):
    """One request from its arrival to its end. Times in seconds; None where there was no moment."""

    request_id: str
    headers: Mapping[str, str]  # W3C trace context of the caller; empty without one
    num_prompt_tokens: int
    num_cached_tokens: int
    num_generation_tokens: int
    num_choices: int
    finish_reasons: tuple[str, ...]
    since_arrival_s: float  # until now
    queue_s: float | None  # arrival to first step
    first_token_s: float | None  # arrival to first token
    prefill_s: float | None  # first step to first token
    decode_s: float | None  # first token to last token
    inference_s: float | None  # first step to last token
    temperature: float | None = None  # of a request for text
    top_p: float | None = None
    max_tokens: int | None = None
    error: str | None = None
    steps: StepTotals | None = None  # of the steps that ran while it did, if they are collected


class Tracer(Protocol):
    """Takes every request that ends. Neither waits nor raises."""

    def record(self, trace: RequestTrace) -> None: ...

    def close(self) -> None:
        """Send what is left, for some seconds at most. May be called twice."""
