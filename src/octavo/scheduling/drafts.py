"""Drafts: guesses of the next tokens, which a step checks all at once.

Owns: who drafts, and the room for it: tokens of the step, blocks.
Does not know: how many guesses are worth their price (drafting.py), how one is found (ngrams.py) or
checked (the runner).
Used by: scheduling.scheduler.

Drafts take what is left when everything else is planned: tokens of the step and free blocks beyond
one for each running request and group. They never displace anybody, and no block is announced for
them. What was computed of a wrong guess is written over in the next step.

A request drafts once it has sampled a token and while it decodes. Not at all: answers with a form
(a mask for each position would be needed before the step), beams, penalties and logits processors
(they see tokens that are only guesses).
"""

from __future__ import annotations

from octavo.config.speculative import LookupConfig
from octavo.contracts.request import EngineRequest
from octavo.contracts.step import SamplingSpec
from octavo.kvcache.manager import KVManager
from octavo.scheduling.budget import StepBudget
from octavo.scheduling.drafting import UNKNOWN_PRICE, Drafting
from octavo.scheduling.pacing import MeasuredSpeed
from octavo.scheduling.plan_builder import PlanBuilder
from octavo.scheduling.request import Request


class Drafts:
    """Adds drafts to plans."""

    def __init__(self, lookup: LookupConfig, kv: KVManager, speed: MeasuredSpeed) -> None:
        self._lookup = lookup
        self._kv = kv
        self._speed = speed

    def open(self, source: EngineRequest) -> Drafting | None:
        """The guesses of a new request without a form; None if it never drafts."""
        sampling = source.sampling
        if source.beam is not None or source.pooling is not None or _counts(sampling):
            return None
        if sampling.processor_params is not None:
            return None
        return Drafting(self._lookup)

    def add(
        self, builder: PlanBuilder, budget: StepBudget, num_grown: int, num_running: int
    ) -> list[tuple[Request, int]]:
        """Let rows among the first `num_grown` of the plan draft; who drafted how many tokens."""
        plan, granted = builder.plan, []
        price = self._speed.token_price(num_grown) or UNKNOWN_PRICE
        num_kept = num_running * self._kv.kv_plan.num_written_blocks
        for place in range(num_grown):
            request = builder.requests[place]
            drafting, num_known = request.drafting, len(request.token_ids)
            if drafting is None or plan.num_tokens[place] != 1 or not plan.samples[place]:
                continue
            if num_known == request.num_prompt_tokens or request.table.is_forked:
                continue
            # The last token of an answer is never computed.
            room = min(budget.num_tokens_left, request.max_num_tokens - num_known - 1)
            count = min(room, drafting.num_wanted(price))
            token_ids = drafting.guess(request.token_ids, count) if count > 0 else []
            if not token_ids:
                continue
            end = self._make_room(request, num_known + len(token_ids), num_kept, builder)
            if end > num_known:
                builder.draft(place, token_ids[: end - num_known])
                budget.spend(end - num_known)
                granted.append((request, end - num_known))
        return granted

    def _make_room(self, request: Request, end: int, num_kept: int, builder: PlanBuilder) -> int:
        """Blocks up to `end` if they leave `num_kept` ones free; how far there are blocks."""
        kv, table = self._kv, request.table
        capacity = table.num_places * kv.block_size
        if end <= capacity:
            return end
        num_new = (-(-end // kv.block_size) - table.num_places) * len(kv.groups)
        if kv.num_free_blocks - num_new < num_kept:
            return capacity
        edits = kv.reserve(table, request.num_computed_tokens, end)
        if edits is None:
            return capacity
        builder.edit_table(request.row, edits)
        return end


def _counts(sampling: SamplingSpec) -> bool:
    """Whether the next draw depends on how often each token occurred."""
    return (
        sampling.repetition_penalty != 1.0
        or sampling.presence_penalty != 0.0
        or sampling.frequency_penalty != 0.0
    )
