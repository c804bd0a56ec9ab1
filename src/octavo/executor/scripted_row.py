"""Scripted row: what the scripted executor keeps of one request.

Owns: its tokens, the drafts of the step that runs, what its KV entries must be, its logprobs.
Does not know: blocks of others, scripts.
"""

from __future__ import annotations

from collections.abc import Sequence

from octavo.contracts.step import NewRow, SamplingSpec, TokenLogprobs

EMPTY = 0
"""Digest before the first token; also what an entry holds that was never written."""


class ScriptedRow:
    """What a runner keeps of one request."""

    __slots__ = (
        "block_ids",
        "digests",
        "drafts",
        "num_computed",
        "num_prompt",
        "pooling",
        "request_id",
        "sampling",
        "token_ids",
    )

    def __init__(self, new: NewRow) -> None:
        self.request_id = new.request_id
        self.token_ids = list(new.token_ids)
        self.num_prompt = new.num_prompt_tokens
        self.num_computed = new.num_computed_tokens
        self.block_ids = [list(ids) for ids in new.block_ids]
        self.sampling: SamplingSpec = new.sampling
        self.pooling = new.pooling
        self.drafts: list[int] = []  # of the step that runs
        self.digests: list[int] = []  # right entries of the first tokens, before the group's mark

    def digest_until(self, num_tokens: int) -> list[int]:
        """What the entries of the first `num_tokens` tokens, drafts included, should be made of."""
        for position in range(len(self.digests), num_tokens):
            before = self.digests[-1] if self.digests else EMPTY
            beyond = position - len(self.token_ids)
            token_id = self.token_ids[position] if beyond < 0 else self.drafts[beyond]
            digest = hash((before, position, token_id))
            self.digests.append(abs(digest) + 1)  # neither empty nor garbage
        return self.digests[:num_tokens]

    def drop_drafts(self, num_accepted: int) -> None:
        """The step is over; the token after the last accepted draft was sampled."""
        self.num_computed -= len(self.drafts) - num_accepted
        self.drafts = []
        del self.digests[self.num_computed :]

    def replace_newest(self, token_id: int) -> None:
        """The token that was sampled last is another one."""
        self.token_ids[-1] = token_id
        del self.digests[len(self.token_ids) - 1 :]


def prompt_logprobs(row: ScriptedRow, num_tokens: int) -> list[TokenLogprobs]:
    """Entries for the prompt tokens that follow a token computed in this step."""
    begin = row.num_computed - num_tokens + 1
    end = min(row.num_computed + 1, row.num_prompt)
    num_best = row.sampling.num_prompt_logprobs
    return [logprobs_of(row.token_ids[position], num_best) for position in range(begin, end)]


def logprobs_of(
    token_id: int, num_best: int, best: Sequence[tuple[int, float]] | None = None
) -> TokenLogprobs:
    """An entry of the right shape. Without candidates the token itself is the best one, and the
    next ids follow."""
    if best is None:
        best = [(token_id + place, -0.5 - place) for place in range(num_best)]
    return TokenLogprobs(
        token_ids=[token_id, *(one[0] for one in best)],
        logprobs=[dict(best).get(token_id, -0.5), *(one[1] for one in best)],
        rank=1,
    )
