"""What a front end hands to the engine core."""

from __future__ import annotations

import msgspec

from octavo.contracts.step import SamplingSpec


class EngineRequest(msgspec.Struct, kw_only=True, tag="request"):
    """One sequence to generate, checked and tokenised. `n` choices are `n` of these.

    The core refuses nothing: intake has checked lengths and ids against the model already.
    """

    request_id: str  # unique among live requests
    prompt_token_ids: list[int]  # at least one
    sampling: SamplingSpec
    max_tokens: int  # at least 1; prompt + max_tokens never exceeds the context
    eos_token_ids: list[int] = []  # end the request with FinishReason "stop", stop_reason None
    stop_token_ids: list[int] = []  # end it with "stop" and the id as stop_reason
    priority: int = 0  # lower runs first
    arrival_s: float = 0.0  # engine clock
    cache_salt: str | None = None  # prompts with different salts never share blocks
    skip_prefix_cache: bool = False  # do not read it (prompt logprobs need every position computed)
