"""Outcome: what a step that ran means for the requests in it.

Owns: appending tokens, accepted drafts too, the test for the end, deltas, errors of single rows.
Does not know: how the step was planned, who waits.
Used by: scheduling.scheduler, in its `commit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from octavo.contracts.delta import TokenDelta
from octavo.contracts.grammar import ConstraintError
from octavo.contracts.step import StepPlan, StepResult, TokenLogprobs
from octavo.scheduling.beams import advance, note
from octavo.scheduling.guide import Guide
from octavo.scheduling.request import Request, Search, Status
from octavo.scheduling.roster import Roster, last_delta
from octavo.scheduling.stop import COMPLETE, FAILED, Finish, finish_of

_Entry = tuple[Request, int, bool]
"""A request of a step, the tokens that it computed, whether it sampled."""


def settle_errors(
    roster: Roster, in_flight: list[Request], plan: StepPlan, errors: dict[int, str]
) -> list[TokenDelta]:
    """End the requests whose rows failed, alone.

    What they announced for this step was not computed. A request that was admitted in this step may
    have matched it, or sampled from its logits; that request is innocent and computes again. Owners
    stand before sharers in the plan, so one pass finds all.
    """
    failed, spoiled = _find_faults(roster, in_flight, plan, errors)
    deltas = []
    for request, message in failed:
        if request.status is Status.RUNNING:
            deltas.append(roster.fail(request, message))
    for request in spoiled:
        if request.status is Status.RUNNING:
            roster.preempt(request, is_spoiled=True)
    return deltas


def _find_faults(
    roster: Roster, in_flight: list[Request], plan: StepPlan, errors: dict[int, str]
) -> tuple[list[tuple[Request, str]], list[Request]]:
    """Requests that failed, each with its message, and those that were spoiled by one.

    Their announcements are taken back, and nobody finds blocks that may hold bad entries.
    """
    kv = roster.kv
    twin_rows = {new.row: new.twin_row for new in plan.new_rows if new.twin_row >= 0}
    bad_rows, lost = set[int](), set[int]()
    failed, spoiled = list[tuple[Request, str]](), list[Request]()
    for holder in in_flight:
        row, message = holder.row, errors.get(holder.row)
        is_hit = twin_rows.get(row) in bad_rows or not lost.isdisjoint(holder.table.held_blocks())
        if message is None and not is_hit:
            continue
        bad_rows.add(row)
        lost |= kv.retract(holder.table)
        if holder.family is not None:
            roster.families.drop_snapshot(holder.family)
        request = holder if holder.member_of is None else holder.member_of.handle
        if message is None:
            spoiled.append(request)
        else:
            # A fault may come from bad KV entries: nobody else shall find them.
            kv.forget(holder.table)
            failed.append((request, message))
    return failed, spoiled


def move_on(
    roster: Roster,
    in_flight: list[Request],
    plan: StepPlan,
    result: StepResult,
    deltas: list[TokenDelta],
) -> None:
    """Move on every request of the step that is still running."""
    sampled, logprobs, running = iter(result.sampled), result.logprobs, Status.RUNNING
    has_extras = bool(logprobs or result.prompt_logprobs)
    num_deltas = len(deltas)
    searches: dict[str, Search] = {}  # those of which a beam has sampled
    entries: Iterable[_Entry] = zip(in_flight, plan.num_tokens, plan.samples, strict=True)
    if plan.draft_rows:
        entries, sampled = _take_runs(roster, in_flight, plan, result, deltas)
    for request, num_tokens, samples in entries:
        token_id = next(sampled) if samples else -1
        if request.status is not running:
            continue
        prompt_logprobs = None
        if has_extras:
            prompt_logprobs = _unsent(request, result.prompt_logprobs.get(request.row))
        request.num_computed_tokens += num_tokens
        if not samples:
            deltas += _chunk_deltas(roster, request, prompt_logprobs, result.pooled)
            continue
        if request.member_of is not None:
            note(request.member_of, request, logprobs[request.row][0])
            searches[request.id] = request.member_of
            continue
        request.token_ids.append(token_id)
        finish = finish_of(request, token_id)
        delta = TokenDelta(request.id, [token_id], num_cached_tokens=request.num_cached_tokens)
        if request.guide is not None and (finish is None or finish.reason == "length"):
            finish, delta.error = _guided(request.guide, token_id, finish)
            delta.is_complete = finish == COMPLETE
            delta.is_unanswerable = delta.error is not None
        deltas.append(delta)
        if has_extras:
            delta.logprobs = logprobs.get(request.row)
            delta.prompt_logprobs = prompt_logprobs
        if finish is not None:
            _end(roster, request, finish, delta)
    roster.counters.num_generation_tokens += sum(
        [len(delta.token_ids) for delta in deltas[num_deltas:]]
    )
    for search in searches.values():
        end = advance(search, roster)
        if end is not None:
            deltas.append(end)


def _take_runs(
    roster: Roster,
    in_flight: list[Request],
    plan: StepPlan,
    result: StepResult,
    deltas: list[TokenDelta],
) -> tuple[list[_Entry], Iterator[int]]:
    """Move on those with drafts, which learn from it; the others, and what these sampled."""
    accepted = dict(zip(plan.draft_rows, result.accepted, strict=True))
    sampled, others, their_tokens = iter(result.sampled), list[_Entry](), list[int]()
    rows = zip(in_flight, plan.rows, plan.num_tokens, plan.samples, strict=True)
    for request, row, num_tokens, samples in rows:
        num_accepted = accepted.get(row)
        if num_accepted is None:
            others.append((request, num_tokens, samples))
            their_tokens += islice(sampled, int(samples))
            continue
        token_ids = list(islice(sampled, 1 + num_accepted))
        assert request.drafting is not None, f"{request} never drafts"
        request.drafting.note(num_tokens - 1, num_accepted)
        roster.counters.count_drafts(num_tokens - 1, num_accepted)
        if request.status is Status.RUNNING:
            deltas.append(_take_run(roster, request, token_ids, result.logprobs.get(row)))
    return others, iter(their_tokens)


def _take_run(
    roster: Roster, request: Request, token_ids: list[int], entries: list[TokenLogprobs] | None
) -> TokenDelta:
    """News of a request with drafts: it goes on by those that were accepted and one more token, or
    ends among them."""
    finish, num_taken = None, 0
    while finish is None and num_taken < len(token_ids):
        request.token_ids.append(token_ids[num_taken])
        finish = finish_of(request, token_ids[num_taken])
        num_taken += 1
    request.num_computed_tokens = len(request.token_ids) - 1
    roster.kv.publish(request.table, request.num_computed_tokens)
    delta = TokenDelta(
        request.id, token_ids[:num_taken], num_cached_tokens=request.num_cached_tokens
    )
    delta.logprobs = None if entries is None else entries[:num_taken]
    if finish is not None:
        _end(roster, request, finish, delta)
    return delta


def _end(roster: Roster, request: Request, finish: Finish, delta: TokenDelta) -> None:
    """The request ends with what its last delta brings."""
    delta.finish_reason, delta.stop_reason = finish
    delta.num_preemptions, delta.num_swaps = request.num_preemptions, request.num_swaps
    roster.end(request, finish.reason)


def _chunk_deltas(
    roster: Roster,
    request: Request,
    prompt_logprobs: list[TokenLogprobs] | None,
    pooled: dict[int, bytes],
) -> list[TokenDelta]:
    """News of a request that sampled nothing: logprobs of its prompt, or the end with vectors."""
    if request.pooling is None:
        return [_chunk_delta(request, prompt_logprobs)] if prompt_logprobs else []
    if request.num_computed_tokens < len(request.token_ids):
        return []
    vectors = pooled.get(request.row)
    if vectors is None:
        return [roster.fail(request, "the executor gave no vectors for its row")]
    roster.end(request, "stop")
    delta = last_delta(request, "stop")
    delta.pooled = vectors
    return [delta]


def _guided(guide: Guide, token_id: int, finish: Finish | None) -> tuple[Finish | None, str | None]:
    """The finish of an answer under a grammar, and the message if it cannot be followed."""
    try:
        return (COMPLETE if guide.advance(token_id) else finish), None
    except ConstraintError as error:
        return FAILED, f"the answer's grammar cannot be followed any further: {error}"


def _unsent(request: Request, entries: list[TokenLogprobs] | None) -> list[TokenLogprobs] | None:
    """Prompt logprobs that the front end does not have: a resumed request computes some again.

    `entries` are for the prompt tokens after the first `num_computed_tokens + 1`.
    """
    if entries is None:
        return None
    first = request.num_computed_tokens  # entries[0] is for prompt token `first + 1`
    new = entries[max(0, request.num_prompt_logprobs_sent - first) :]
    request.num_prompt_logprobs_sent = max(request.num_prompt_logprobs_sent, first + len(entries))
    return new or None


def _chunk_delta(request: Request, prompt_logprobs: list[TokenLogprobs]) -> TokenDelta:
    """News of a request that computed a chunk of its prompt and sampled nothing."""
    return TokenDelta(
        request.id,
        [],
        prompt_logprobs=prompt_logprobs,
        num_cached_tokens=request.num_cached_tokens,
    )
