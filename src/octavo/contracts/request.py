"""What a front end hands to the engine core."""

from __future__ import annotations

from typing import Literal

import msgspec

from octavo.contracts.grammar import GrammarSpec, ThinkingSpec
from octavo.contracts.step import PoolingMethod, SamplingSpec


class BeamSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Beam search instead of sampling; see `octavo.sampling_params.BeamSearchParams`."""

    beam_width: int  # at least 1
    num_returned: int  # best sequences to return, 1 to `beam_width`
    length_penalty: float = 1.0  # score = sum of log-probabilities / (generated tokens ** penalty)
    early_stopping: bool | Literal["never"] = False


class RequestParty(msgspec.Struct, frozen=True):
    """Requests that came together under the bound of the queue, such as the choices of a prompt.

    As long as none of them ran they may have to leave it, together, for the sake of others.
    """

    name: str  # unique among live parties
    size: int


class EngineRequest(msgspec.Struct, kw_only=True, tag="request"):
    """One sequence to generate, checked and tokenised. `n` choices are `n` of these.

    The first choice is added first; the others name it in `fork_of` and share its prompt, which is
    computed once. With `beam` the request is one beam search and its last delta brings the beams.

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
    tenant: str = ""  # whose request it is: fairness counts by it, and tenants never share blocks
    fork_of: str | None = None  # the first choice of the same prompt, if this is another one
    party: RequestParty | None = None  # None: it stays where it waits
    beam: BeamSpec | None = None
    grammar: GrammarSpec | None = None  # the form of the answer; compiled before
    thinking: ThinkingSpec | None = None  # thoughts before it, which no grammar binds
    deadline_s: float | None = None  # engine clock; the request ends when it cannot be met
    # Vectors of the prompt instead of an answer; see `NewRow`. `sampling` means nothing then.
    pooling: PoolingMethod | None = None
    second_segment: int = -1
    skip_prefix_cache: bool = False  # do not read it (prompt logprobs need every position computed)
