"""Chunks: how many prompt tokens a step may compute, and who of several gets how many.

Owns: the budget of a step as it stands before anything is granted.
Does not know: blocks beyond a rough look, who waits behind the first.
Used by: scheduling.scheduler.

Prompts share a step equally in two cases: between tenants under the `fair` policy, and between
prompts when pacing keeps chunks small, for then a long prompt would hold up a short one behind it
for many steps. Else the first in order takes what it can use, which ends its wait soonest.

A prompt much shorter than the one before it is the exception: it shares a small step with a part
of that, so that its first token does not wait for the whole of the other. The long one computes at
least as many tokens in such a step as the short one, so short ones at most halve its speed.
"""

from __future__ import annotations

from octavo.config.engine import SchedulerConfig
from octavo.scheduling.admission import num_owed_rows, num_spare_blocks
from octavo.scheduling.budget import StepBudget
from octavo.scheduling.pacing import MeasuredSpeed
from octavo.scheduling.policy import Policy
from octavo.scheduling.request import Request
from octavo.scheduling.roster import Roster

_MUCH_SHORTER = 4
"""A prompt is much shorter than another that lacks more than so many times its tokens."""

_SMALL_STEP = 64
"""Tokens. A step for a short prompt computes at least so many: fewer would cost as much."""


def open_budget(
    config: SchedulerConfig, policy: Policy, roster: Roster, speed: MeasuredSpeed
) -> StepBudget:
    """The budget of the next step, limited and shared for what is live now."""
    budget = StepBudget(config, shares_by_tenant=policy.shares_by_tenant)
    # Most rows decode and need no closer look.
    odd = [
        request
        for request in roster.running
        if request.search is not None or len(request.token_ids) - request.num_computed_tokens > 1
    ]
    num_decoding = sum(request.num_decoding_rows for request in odd)
    num_decoding += len(roster.running) - len(odd)
    budget.num_kept = num_decoding
    catching_up = [request for request in odd if request.lead.num_missing_tokens > 1]
    num_stalled = len(catching_up) + len(roster.waiting)
    if not num_stalled:
        return budget
    limit = speed.prefill_limit(num_decoding, num_stalled, config.max_decode_slowdown)
    leads = [request.lead for request in catching_up]
    if config.max_decode_slowdown and config.enable_chunked_prefill and not num_decoding:
        limit = _limit_for_short(roster, leads)
    if limit is not None:
        budget.limit_prefill(limit)
    if limit is None and not policy.shares_by_tenant:
        return budget
    wanted = [(budget.sharer_of(lead), lead.num_missing_tokens) for lead in leads]
    num_left = min(budget.num_prefill_tokens_left, budget.num_tokens_left - num_decoding)
    # The one that waits may not find room after all: it must not take the last token of a step.
    if wanted and num_left > len(wanted) and may_start_one(roster):
        first = roster.waiting.first.lead
        wanted.append((budget.sharer_of(first), first.num_missing_tokens))
    if len(wanted) > 1:
        budget.share(wanted, num_decoding)
    return budget


def _limit_for_short(roster: Roster, leads: list[Request]) -> int | None:
    """Most prompt tokens of a step that ends a short prompt; None: there is no such prompt."""
    if not (leads and roster.waiting and _has_ample_room(roster, leads)):
        return None
    num_missing = roster.waiting.first.lead.num_missing_tokens
    limit = max(2 * num_missing, _SMALL_STEP)
    longest = max(lead.num_missing_tokens for lead in leads)
    return limit if longest > max(_MUCH_SHORTER * num_missing, limit) else None


def _has_ample_room(roster: Roster, leads: list[Request]) -> bool:
    """Whether the first waiting request starts for sure: else it would slow the others in vain."""
    kv, first = roster.kv, roster.waiting.first
    searches = [one for one in roster.running if one.search is not None]
    if first.num_rows + num_owed_rows(searches) > roster.rows.num_free:
        return False
    # More than a prompt that has begun still takes, as it holds some of them already.
    num_owed_blocks = sum(kv.num_blocks_for(lead.num_tokens) for lead in leads)
    num_spare = num_spare_blocks(kv, len(roster.running))
    num_blocks = kv.num_blocks_for(first.lead.num_tokens)
    return num_blocks + num_owed_blocks + num_spare < kv.num_free_blocks


def may_start_one(roster: Roster) -> bool:
    """Whether the first waiting request seems to find a row and blocks. A rough look."""
    if not (roster.waiting and roster.rows.num_free):
        return False
    num_blocks = roster.kv.num_blocks_for(roster.waiting.first.lead.num_tokens)
    return num_blocks <= roster.kv.num_free_blocks
