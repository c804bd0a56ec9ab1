"""Chunks: how many prompt tokens a step may compute, and who of several gets how many.

Owns: the budget of a step as it stands before anything is granted.
Does not know: blocks beyond a rough look, who waits behind the next few.
Used by: scheduling.scheduler.

Prompts share a step equally in two cases: between tenants under the `fair` policy, and between
prompts when pacing keeps chunks small, for then a long prompt would hold up a short one behind it
for many steps. Else the first in order takes what it can use, which ends its wait soonest.

A prompt much shorter than one that has begun is the exception: it shares a small step with parts of
the others, so that its first token does not wait for the whole of a long one. That holds whether it
waits, maybe behind others, or has begun too. Every other prompt may compute as many tokens in such
a step as the short one, so short ones at most halve the speed of a long one.
"""

from __future__ import annotations

from itertools import islice

from octavo.config.engine import SchedulerConfig
from octavo.scheduling.budget import StepBudget
from octavo.scheduling.outlook import startable
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
    leads = [one.lead for one in odd if one.lead.num_missing_tokens > 1]
    num_stalled = len(leads) + len(roster.waiting)
    if not num_stalled:
        return budget
    limit = speed.prefill_limit(num_decoding, num_stalled, config.max_decode_slowdown)
    if config.max_decode_slowdown and config.enable_chunked_prefill and not num_decoding:
        limit = _limit_for_short(roster, leads)
    if limit is not None:
        budget.limit_prefill(limit)
    if limit is None and not policy.shares_by_tenant:
        return budget
    sharers = list(leads)
    num_left = min(budget.num_prefill_tokens_left, budget.num_tokens_left - num_decoding)
    # The one that waits may not find room after all: it must not take the last token of a step.
    if sharers and num_left > len(sharers):
        sharers += [request.lead for request in islice(startable(roster), 1)]
    if len(sharers) > 1:
        wanted = [(budget.sharer_of(lead), lead.num_missing_tokens) for lead in sharers]
        tenants = [lead.tenant for lead in sharers] if policy.shares_by_tenant else ()
        budget.share(wanted, num_decoding, tenants)
    return budget


def _limit_for_short(roster: Roster, leads: list[Request]) -> int | None:
    """Most prompt tokens of a step that serves a short prompt; None: there is no such prompt.

    `leads` are prompts that have begun. One that waits counts only if it starts for sure: else it
    would slow the others in vain.
    """
    lengths = [lead.num_missing_tokens for lead in leads]
    longest = max(lengths, default=0)
    if longest <= _SMALL_STEP:
        return None
    if roster.waiting:
        # More than a prompt that has begun still takes, as it holds some of them already; and one,
        # for a block that the next prompt finds in part.
        num_owed = sum([roster.kv.num_blocks_for(lead.num_tokens) for lead in leads]) + 1
        lengths += [one.lead.num_missing_tokens for one in startable(roster, num_owed)]
    shortest = min(lengths)
    num_sharers = min(len(lengths), len(leads) + 1)
    limit = max(num_sharers * shortest, _SMALL_STEP)
    return limit if longest > max(_MUCH_SHORTER * shortest, limit) else None
