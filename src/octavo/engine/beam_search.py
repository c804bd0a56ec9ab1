"""Beam search as the front ends see it: what it may be combined with, and the form of its results.

Owns the refusal of everything that a search cannot do, and the way from a RequestOutput to a
BeamSearchOutput. Does not know how beams are kept: that is the scheduler's.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from octavo.contracts.kv_plan import KVPlan
from octavo.contracts.request import BeamSpec
from octavo.errors import InvalidRequestError, PromptTooLongError
from octavo.outputs import (
    BeamSearchOutput,
    BeamSearchSequence,
    CompletionOutput,
    LogprobList,
    RequestOutput,
)
from octavo.sampling_params import (
    FIELD_DEFAULTS,
    BeamSearchParams,
    RequestOutputKind,
    SamplingParams,
    StructuredOutputsParams,
    shown,
)
from octavo.text.tokenizer import Tokenizer

MAX_STOP_TOKENS = 16  # each makes every beam bring one more candidate for every beam
# Fields of SamplingParams that change which token comes next, or cut an answer by its text: beams
# are ranked by the model's own log-probabilities.
NOT_WITH_BEAMS = (
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "stop",
    "min_tokens",
    "prompt_logprobs",
    "logprob_token_ids",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "structured_outputs",
    "extra_args",
)


def beam_spec(params: BeamSearchParams) -> BeamSpec:
    """What the engine core is told. Raises InvalidRequestError for a field out of range."""
    params.verify()
    return BeamSpec(
        beam_width=params.beam_width,
        num_returned=params.beam_width,
        length_penalty=params.length_penalty,
        early_stopping=params.early_stopping,
    )


def text_params(params: BeamSearchParams, max_logprobs: int) -> SamplingParams:
    """The rest of it, for one output at the end without text.

    Positions have the candidates that were compared, so many as `max_logprobs` allows.
    """
    num_logprobs = 2 * params.beam_width
    if max_logprobs != -1:
        num_logprobs = min(num_logprobs, max_logprobs)
    return SamplingParams(
        temperature=0.0,
        max_tokens=params.max_tokens,
        ignore_eos=params.ignore_eos,
        logprobs=num_logprobs,
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def check_combination(params: SamplingParams, beam: BeamSpec) -> None:
    """Refuse what a search cannot have. Raises InvalidRequestError that names the field."""
    if not params.is_greedy:
        raise _refusal("temperature", f"must be 0, got {params.temperature:g}")
    if params.n != 1:
        raise _refusal("n", f"is the beam width, which was given as well, got {params.n}")
    if params.output_kind is not RequestOutputKind.FINAL_ONLY:
        raise _refusal("output_kind", "must be FINAL_ONLY: the answers are known at the end")
    if params.stop_token_ids and len(params.stop_token_ids) > MAX_STOP_TOKENS:
        raise _refusal(
            "stop_token_ids",
            f"may hold at most {MAX_STOP_TOKENS} ids, got {len(params.stop_token_ids)}",
        )
    for name in NOT_WITH_BEAMS:
        value: Any = getattr(params, name)
        if value != FIELD_DEFAULTS[name] and value not in (None, [], {}):
            is_plain = not isinstance(value, StructuredOutputsParams)  # which no client has written
            got = f", got {shown(value)}" if is_plain else ""
            raise _refusal(name, f"has no meaning{got}; leave it out")


def check_beams_fit(
    kv_plan: KVPlan, beam: BeamSpec, num_rows: int, num_prompt_tokens: int, max_tokens: int
) -> None:
    """Refuse a search that could not run even alone: `num_rows` requests may run at a time.

    Raises InvalidRequestError with the numbers and the option that would help.
    """
    width = beam.beam_width
    if width > num_rows:
        raise InvalidRequestError(
            f"beam_width must be at most {num_rows}, the requests that may run at the same time, "
            f"got {width}; start the engine with a larger --max-num-seqs, and "
            "--max-num-batched-tokens at least as large",
            param="beam_width",
        )
    num_blocks = num_blocks_of_beams(kv_plan, width, num_prompt_tokens, max_tokens)
    if num_blocks > kv_plan.num_blocks:
        raise PromptTooLongError(
            f"{width} beams of {num_prompt_tokens} prompt tokens and up to {max_tokens} new ones "
            f"may need {num_blocks} KV blocks of {kv_plan.block_size} tokens, the whole cache has "
            f"{kv_plan.num_blocks}; ask for fewer max_tokens or a smaller beam_width, or start the "
            "engine with more --kv-cache-memory-bytes",
            param="max_tokens",
        )


def most_tokens_of_beams(
    kv_plan: KVPlan, beam: BeamSpec, num_prompt_tokens: int, max_tokens: int
) -> int:
    """The largest limit up to `max_tokens` under which the beams fit in the pool; at least 1."""
    width, sizes = beam.beam_width, range(1, max_tokens + 1)
    return max(
        1,
        bisect_right(
            sizes,
            kv_plan.num_blocks,
            key=lambda size: num_blocks_of_beams(kv_plan, width, num_prompt_tokens, size),
        ),
    )


def num_blocks_of_beams(
    kv_plan: KVPlan, width: int, num_prompt_tokens: int, max_tokens: int
) -> int:
    """Blocks that the beams hold at worst: they share what is left of the prompt's full blocks, in
    windows too, and nothing else.

    A search holds the more the further it is: with each new block one of the prompt's at most
    leaves a window, for one that each beam takes. Within a block windows only pass. So its worst
    step is the first one in its last block.
    """
    size, alone = kv_plan.block_size, kv_plan.num_blocks_for(num_prompt_tokens)
    last = num_prompt_tokens + max_tokens - 2  # the newest token of a beam is never computed
    if last < num_prompt_tokens:
        return alone  # the prompt has brought all: it is never forked
    position = max(num_prompt_tokens, last // size * size)
    num_full, together = num_prompt_tokens // size, 0
    for group in kv_plan.groups:
        held = group.held_places(position, size)
        num_shared = max(0, num_full - held.start) if not group.num_state_blocks else 0
        together += num_shared + width * (len(held) - num_shared)
    return max(alone, together)


def beam_search_output(
    output: RequestOutput, params: BeamSearchParams, tokenizer: Tokenizer
) -> BeamSearchOutput:
    """The answers in vLLM's form, in their order."""
    return BeamSearchOutput(
        [_sequence(output.prompt_token_ids, one, params, tokenizer) for one in output.outputs]
    )


def _sequence(
    prompt_token_ids: list[int],
    choice: CompletionOutput,
    params: BeamSearchParams,
    tokenizer: Tokenizer,
) -> BeamSearchSequence:
    token_ids, stop_reason = choice.token_ids, choice.stop_reason
    if choice.finish_reason == "stop":
        stop_reason = token_ids[-1] if stop_reason is None else stop_reason
        if not params.include_stop_str_in_output:
            token_ids = token_ids[:-1]
    tokens = [*prompt_token_ids, *token_ids]
    logprobs = LogprobList([], None) if choice.logprobs is None else choice.logprobs
    return BeamSearchSequence(
        tokens,
        logprobs,
        choice.cumulative_logprob or 0.0,
        tokenizer.decode(tokens, skip_special_tokens=False),
        choice.finish_reason,
        stop_reason,
    )


def _refusal(name: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"with beam search {name} {reason}", param=name)
