"""Beams: a beam search inside the scheduler.

Owns: how the beams of a search get rows, blocks and tokens, and how one step of them follows the
other.
Does not know: which beam is better (beam_ranking.py).
Used by: scheduling.scheduler, scheduling.outcome.

The first beam is the prompt, computed like any request. A search goes on when every beam has
brought its best next tokens:

    a beam that goes on keeps its row; its newest token is replaced if another one was sampled
    a beam that goes on twice is forked: the new one shares all its blocks and needs a row
    a beam that does not go on gives row and blocks back

Beams that find no room take it from requests behind the search; if there are none they wait, while
the other beams hold what they have. A search yields and comes back as a whole. Beams that come back
to be computed again enter one after the other, each when those before it have caught up, so that
what they have in common is computed once and shared.
"""

from __future__ import annotations

from octavo.contracts.delta import TokenDelta
from octavo.contracts.request import EngineRequest
from octavo.contracts.step import SamplingSpec, TokenLogprobs
from octavo.kvcache.manager import KVManager
from octavo.scheduling.admission import admit
from octavo.scheduling.beam_ranking import BeamRanking, Continuation, num_candidates
from octavo.scheduling.budget import StepBudget
from octavo.scheduling.plan_builder import PlanBuilder
from octavo.scheduling.preemption import Preemption
from octavo.scheduling.request import Request, Search, Status
from octavo.scheduling.roster import Roster, last_delta


def open_search(source: EngineRequest, handle: Request, kv: KVManager) -> Search:
    """Make a request that was just added the handle of a search, with its first beam."""
    max_tokens = handle.max_num_tokens - handle.num_prompt_tokens
    handle.sampling = SamplingSpec(num_logprobs=num_candidates(source))
    search = Search(handle, BeamRanking(source, max_tokens))
    handle.search = search
    _begin(search, kv)
    return search


def _begin(search: Search, kv: KVManager) -> None:
    """One beam without generated tokens, row or blocks."""
    first = search.handle.branch(search.handle.token_ids[:], kv)
    first.num_computed_tokens = 0
    search.ranking.restart()
    search.members, search.entries = [first], [None]
    search.is_resumed = False


def reason_against_search(search: Search, kv: KVManager, num_rows: int) -> str | None:
    """Why a search cannot run even alone; None if it can, as far as is known."""
    width = search.ranking.spec.beam_width
    if width > num_rows:
        return (
            f"beam_width is {width}, but a step computes at most {num_rows} sequences; ask for "
            "fewer beams, or start the engine with a larger --max-num-seqs and "
            "--max-num-batched-tokens"
        )
    if search.has_outgrown:
        return (
            f"{len(search.members)} beams of {search.handle.num_tokens} tokens need more than the "
            f"whole cache of {kv.num_blocks} KV blocks of {kv.block_size} tokens; ask for fewer "
            "beams, or start the engine with more --kv-cache-memory-bytes"
        )
    return None


class BeamGrowth:
    """Plans the beams of running searches. Made for each plan."""

    def __init__(
        self, roster: Roster, preemption: Preemption, builder: PlanBuilder, budget: StepBudget
    ) -> None:
        self._roster = roster
        self._kv = roster.kv
        self._preemption = preemption
        self._builder = builder
        self._budget = budget
        self._lacks_blocks = False  # a beam found no blocks, and nobody to take them from

    def grow(self, search: Search) -> None:
        """Grant tokens to the beams that still owe their best next tokens."""
        num_granted, is_catching_up = 0, False
        self._lacks_blocks = False
        for member, entry in zip(search.members, search.entries, strict=True):
            if entry is not None:
                continue
            if member.status is Status.RUNNING:
                self._budget.num_kept -= member.num_missing_tokens == 1
                num_tokens = self._grow_member(search, member)
            elif member.table.is_empty or member.table.is_swapped:
                num_tokens = 0 if is_catching_up else self._bring_back(search, member)
            else:
                num_tokens = self._enter_fork(search, member)
            num_granted += num_tokens
            is_catching_up |= num_tokens < member.num_missing_tokens
        if self._lacks_blocks and not num_granted and len(self._roster.running) == 1:
            self._leave_alone(search)

    def _grow_member(self, search: Search, member: Request) -> int:
        """The next tokens of a beam with a row."""
        num_missing = member.num_missing_tokens
        num_tokens = num_missing
        if num_missing > 1:
            sharer = self._budget.sharer_of(member)
            num_tokens = self._budget.next_chunk(num_missing, self._budget.num_kept, sharer)
        if not num_tokens:
            return 0
        num_computed = member.num_computed_tokens
        end = self._kv.fitting(member.table, num_computed, num_computed + num_tokens)
        num_tokens = max(end - num_computed, 1)
        if not self._reserve(search, member, num_computed + num_tokens, is_known=True):
            return 0
        if member in search.replaced:
            search.replaced.remove(member)
            self._builder.replace_token(member)
        self._grant(member, num_tokens)
        return num_tokens

    def _enter_fork(self, search: Search, member: Request) -> int:
        """A beam that shares the blocks of another one gets a row and computes its own token."""
        has_tokens = self._budget.num_tokens_left > self._budget.num_kept
        if not has_tokens or not self._find_row(search):
            return 0
        if not self._reserve(search, member, member.num_tokens, is_known=False):
            return 0
        self._roster.seat(member)
        self._builder.enter(member)
        self._grant(member, 1)
        return 1

    def _bring_back(self, search: Search, member: Request) -> int:
        """A beam that had to leave gets row and blocks again."""
        budget = self._budget
        has_tokens = budget.has_room_for_prompts and budget.num_tokens_left > budget.num_kept
        if not has_tokens or not self._find_row(search):
            return 0
        budget.num_tokens_left -= budget.num_kept
        num_tokens = admit(member, self._kv, budget, 0)
        while not num_tokens and self._is_short_of_blocks(member) and self._make_room(search):
            num_tokens = admit(member, self._kv, budget, 0)
        budget.num_tokens_left += budget.num_kept
        if num_tokens:
            self._roster.seat(member)
            self._builder.enter(member)
            self._grant(member, num_tokens)
        return num_tokens

    def _grant(self, member: Request, num_tokens: int) -> None:
        num_missing = member.num_missing_tokens
        self._builder.grant(member, num_tokens)
        if num_missing > 1:
            sharer = self._budget.sharer_of(member)
            self._budget.spend_on_prompt(num_tokens, num_missing, sharer)
        else:
            self._budget.spend(num_tokens)

    def _reserve(self, search: Search, member: Request, end: int, *, is_known: bool) -> bool:
        """Blocks for the tokens up to `end`; False if there is no room for this beam now."""
        edits = self._kv.reserve(member.table, member.num_computed_tokens, end)
        while edits is None:
            if not self._make_room(search):
                return False
            edits = self._kv.reserve(member.table, member.num_computed_tokens, end)
        if is_known:
            self._builder.edit_table(member.row, edits)
        self._kv.announce(member.table, end)
        return True

    def _is_short_of_blocks(self, member: Request) -> bool:
        """Whether blocks, not tokens of the step, are what a beam lacks to come back."""
        table = member.table
        match = None if table.is_swapped else self._kv.match(table)
        return self._kv.shortfall(table, member.num_tokens, match) > 0

    def _find_row(self, search: Search) -> bool:
        """Whether a row is free, maybe after somebody behind the search has left it."""
        if self._roster.rows.num_free:
            return True
        if self._roster.running.last is search.handle:
            return False
        self._preemption.send_away(self._roster.running.last)
        return True

    def _make_room(self, search: Search) -> bool:
        """Take blocks from somebody; False if nobody stands behind the search."""
        if self._roster.families.drop_a_snapshot():
            return True
        victim = self._roster.running.last
        if victim is search.handle:
            self._lacks_blocks = True
            return False
        self._preemption.send_away(victim)
        return True

    def _leave_alone(self, search: Search) -> None:
        """It is alone and cannot go on. If its beams may share more, they begin again."""
        is_resumed = search.is_resumed
        self._roster.preempt(search.handle)
        if is_resumed:
            _begin(search, self._kv)
        else:
            search.has_outgrown = True


def note(search: Search, member: Request, entry: TokenLogprobs) -> None:
    """A beam of a running search has brought its best next tokens."""
    search.entries[search.members.index(member)] = entry


def advance(search: Search, roster: Roster) -> TokenDelta | None:
    """If all beams have brought theirs, take the next step; the last delta if it was the last.

    Call it after the KV manager's `commit`.
    """
    entries = [entry for entry in search.entries if entry is not None]
    if len(entries) < len(search.members):
        return None
    chosen = search.ranking.advance(entries)
    if search.ranking.is_over:
        return _finish(search, roster)
    _branch(search, chosen, entries, roster)
    return None


def _branch(
    search: Search, chosen: list[Continuation], entries: list[TokenLogprobs], roster: Roster
) -> None:
    """The beams become those that were chosen."""
    parents, keepers = search.members, dict[int, int]()  # parent -> its child that keeps the row
    members = list[Request]()
    for place, one in enumerate(chosen):
        parent = parents[one.parent]
        if keepers.setdefault(one.parent, place) == place:
            members.append(parent)
            continue
        token_ids = parent.token_ids[:]
        token_ids.append(one.token_id)
        members.append(parent.branch(token_ids, roster.kv))
    for parent_place, place in keepers.items():
        token_id = chosen[place].token_id
        members[place].token_ids.append(token_id)
        if token_id != entries[parent_place].token_ids[0]:
            search.replaced.append(members[place])
    for parent_place, parent in enumerate(parents):
        if parent_place not in keepers:
            roster.release_member(parent)
    search.members, search.entries = members, [None] * len(members)


def _finish(search: Search, roster: Roster) -> TokenDelta:
    """The last delta, with the best sequences."""
    handle, beams = search.handle, search.ranking.results()
    best = beams[0]
    roster.end(handle, best.finish_reason)
    roster.counters.num_generation_tokens += sum(len(beam.token_ids) for beam in beams)
    delta = last_delta(handle, best.finish_reason)
    delta.stop_reason = best.stop_reason
    delta.beams = beams
    return delta
