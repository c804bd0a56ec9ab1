"""What one step should compute, and what came out of it.

The scheduler (decide) writes a `StepPlan`; an executor (compute) answers with a `StepResult`.
Neither side knows more of the other than these records.

A request keeps one *row* of the runner from the plan that lists it in `new_rows` until the plan
that lists the row in `freed_rows`. The runner owns the row's state: its token ids, the number of
computed tokens, its block table. A preempted request gives up its row and comes back as a new one.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from octavo.contracts.grammar import Mask

# Of which tokens of a prompt there shall be a vector: one of them, the mean of all, or each.
PoolingMethod = Literal["first", "last", "mean", "all"]


class SamplingSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling of one row, resolved against the vocabulary; see `SamplingParams` for the meaning.

    Order of application: logprobs are captured raw; the plan's mask of the row;
    `allowed_token_ids`, `bad_words`, `min_tokens`, `logit_bias`; logits processors; penalties
    (repetition: prompt and output; the others: output only); temperature; `min_p`, processors that
    keep the best token, `top_k`, `top_p`; draw. After processors the plan's mask holds again.

    The draw for the token at position `p` (0-based index in the whole sequence) depends on
    `(seed, p)`, this row's logits and its mask only, never on a neighbour, on how the step was cut
    or on whether the mask was written out.
    """

    temperature: float = 0.0  # 0 means greedy
    top_k: int = 0  # 0 means off
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0  # 64-bit, always set: the engine draws one where the user gave none
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    bias_token_ids: list[int] = []
    bias_values: list[float] = []
    allowed_token_ids: list[int] = []  # empty means all
    bad_words: list[list[int]] = []  # the last id is masked where the ids before it match the tail
    min_tokens: int = 0
    stop_token_ids: list[int] = []  # EOS and stop ids, masked until `min_tokens` are generated
    num_logprobs: int = -1  # -1 none; 0 the chosen token only; k the k best as well
    num_prompt_logprobs: int = -1  # the same for each prompt token after the first
    logprob_token_ids: list[int] = []  # unless empty: these in place of the best ones
    # SamplingParams of the request, what is not at its default, where the engine has logits
    # processors that may want to work on it
    processor_params: dict[str, Any] | None = None


class NewRow(msgspec.Struct, frozen=True, kw_only=True):
    """A request that enters the runner with this step."""

    row: int  # free until now; below `max_num_seqs`
    request_id: str
    token_ids: list[int]  # all known tokens: the prompt, and after a preemption the output so far
    num_prompt_tokens: int
    num_computed_tokens: int  # tokens whose KV entries exist once swaps and copies are done
    block_ids: list[list[int]]  # a block table for each KV group; -1 where a window has passed
    sampling: SamplingSpec
    # A fork: the row of this step that computes the last known token of both, whose tokens are
    # equal. The new row computes nothing (0 tokens) and samples from that row's logits.
    twin_row: int = -1
    # The row's prompt is computed for vectors: it never samples, and needs no `sampling`. All but
    # "last" need the whole prompt in one step.
    pooling: PoolingMethod | None = None
    # The first token of the second of two texts, for models that tell them apart; -1: there is one
    second_segment: int = -1


class StepPlan(msgspec.Struct, kw_only=True):
    """One step. Lists with equal comments run in parallel.

    The runner works through it in this order: free rows, fill new rows, change block tables,
    replace tokens; swap out, swap in, copy; compute `num_tokens[i]` further tokens of `rows[i]`;
    sample where `samples[i]`. A row samples exactly when all its known tokens are computed after
    this step; one that is pooled has its vectors then instead.

    A row that samples may bring *drafts*: guesses of the tokens that follow its known ones. They
    are computed behind these, and a token is sampled at the last known one and at each draft. The
    first sampled token is kept in any case, each further one if the token before it is the draft
    that it followed. So what is kept is what the row would sample without drafts, for a draw
    depends on seed, position and logits only. What was computed of the other drafts is written
    over later.

    Moves of one kind follow one another in plan order, and all entries that a move reads are those
    from before the computing. A block is `block_size` slots of every layer of a group.
    """

    step_id: int
    freed_rows: list[int] = []  # after a step that raised, also rows that hold nothing: no error
    new_rows: list[NewRow] = []
    # (a) block tables of known rows: entry `place` of the table of a group becomes this block. A
    # place just past the end makes the table longer. A row may appear several times.
    table_rows: list[int] = []
    table_groups: list[int] = []
    table_places: list[int] = []
    table_block_ids: list[int] = []
    # (b) known rows whose newest token, sampled last, is another one (beam search chose it)
    replaced_rows: list[int] = []
    replaced_token_ids: list[int] = []
    # (c) blocks to host slots, (d) host slots to blocks, (e) blocks to blocks
    swap_out_from: list[int] = []
    swap_out_to: list[int] = []
    swap_in_from: list[int] = []
    swap_in_to: list[int] = []
    copy_from: list[int] = []
    copy_to: list[int] = []
    rows: list[int] = []  # (f) rows that compute, each once; a fork after its twin
    num_tokens: list[int] = []  # (f) at least 1, drafts included; 0 for a fork in its first step
    samples: list[bool] = []  # (f)
    # (g) rows that sample under a grammar, and the tokens that each may draw, of at least the
    # whole vocabulary
    mask_rows: list[int] = []
    masks: list[Mask] = []
    # (h) rows with drafts, in the order of `rows`, and the drafts of each, at least one. Not with a
    # mask, a penalty or a logits processor: these depend on the tokens before, and drafts are only
    # guesses.
    draft_rows: list[int] = []
    draft_token_ids: list[list[int]] = []

    @property
    def total_tokens(self) -> int:
        return sum(self.num_tokens)


class TokenLogprobs(msgspec.Struct, frozen=True):
    """Log-probabilities at one position: the actual token first, then the best ones in order, or
    those of `SamplingSpec.logprob_token_ids`.

    The actual token may appear again among them. `rank` is its place in the vocabulary (1 is
    the best).
    """

    token_ids: list[int]
    logprobs: list[float]
    rank: int


UNANSWERABLE = "no token is left to sample"
"""How the error of a row begins whose request excludes every token that could come next."""


class StepResult(msgspec.Struct, kw_only=True):
    """What a step produced."""

    step_id: int
    # One token id for each True in `StepPlan.samples`, in plan order; of a row with drafts as many
    # more as were accepted.
    sampled: list[int]
    accepted: list[int] = []  # how many of its drafts, parallel to `StepPlan.draft_rows`
    # row -> entries of its sampled tokens, for rows that asked
    logprobs: dict[int, list[TokenLogprobs]] = {}
    # row -> entries for the prompt tokens computed in this step, from prompt token 1 on
    prompt_logprobs: dict[int, list[TokenLogprobs]] = {}
    # row -> float32 vectors [n, width], for rows that are pooled and complete with this step
    pooled: dict[int, bytes] = {}
    swap_s: float = 0.0  # seconds that this step's swaps took
    sample_s: float = 0.0  # seconds that drawing tokens and scoring took
    # row -> what went wrong, UNANSWERABLE or a fault of ours; such a row has meaningless tokens in
    # `sampled`
    errors: dict[int, str] = {}
