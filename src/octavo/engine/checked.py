"""Requests that were checked and tokenised, and are not yet queued."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.contracts.request import EngineRequest
from octavo.engine.encoded import EncodedPrompt
from octavo.pooling_params import PoolingParams
from octavo.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class CheckedRequest:
    """A prompt and its parameters."""

    request_id: str  # as the caller named it
    prompt: EncodedPrompt
    params: SamplingParams
    requests: list[EngineRequest]  # one for each choice, with ids of their own


@dataclass(frozen=True, slots=True)
class CheckedPooling:
    """The same for a vector."""

    request_id: str
    prompt: EncodedPrompt
    params: PoolingParams
    request: EngineRequest
