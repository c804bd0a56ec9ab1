"""Roster: which requests are live, where each stands, and how one moves.

Owns: the waiting and the running queue, the rows, the families, the last deltas that nobody has
taken yet.
Does not know: plans, budgets, results. It is told who moves and never decides it.
Used by: scheduling.scheduler and what it calls.
"""

from __future__ import annotations

from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.contracts.step import UNANSWERABLE
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.manager import KVManager
from octavo.scheduling.counters import Counters
from octavo.scheduling.families import Families
from octavo.scheduling.queues import RequestQueue, WaitingQueue
from octavo.scheduling.request import Request, Status
from octavo.scheduling.rows import RowLedger


class Roster:
    """All live requests. Every move keeps queues, rows, blocks and counters in step."""

    def __init__(
        self, kv: KVManager, num_rows: int, waiting: WaitingQueue, running: RequestQueue
    ) -> None:
        self.kv = kv
        self.waiting = waiting
        self.running = running
        self.rows = RowLedger(num_rows)
        self.families = Families(kv, self.waiting)
        self.counters = Counters()
        self.requests: dict[str, Request] = {}  # live ones, by id
        self.aborted_in_flight: list[Request] = []  # still hold row and blocks until the commit
        self._notices: list[TokenDelta] = []  # last deltas of requests that ended outside a commit

    @property
    def num_waiting(self) -> int:
        """Live requests that do not run."""
        return len(self.waiting) + self.families.num_held

    def has_work(self) -> bool:
        """Whether a request is live or a last delta waits to be taken."""
        return bool(self.requests or self._notices)

    def add(self, request: Request, first_id: str | None = None) -> None:
        """A request becomes live and waits; `first_id` names the first choice of its family."""
        if first_id is None:
            self.waiting.add(request)
        else:
            self.families.join(request, first_id, self.requests)
        self.requests[request.id] = request

    def notify(self, delta: TokenDelta) -> None:
        """Keep a last delta for the next `take_notices`."""
        self._notices.append(delta)

    def take_notices(self) -> list[TokenDelta]:
        """The last deltas of requests that ended outside a commit, once."""
        notices, self._notices = self._notices, []
        return notices

    # ---- waiting to running

    def start(self, request: Request) -> None:
        """waiting -> running, in a row. Blocks are reserved, and `num_computed_tokens` is true.

        Of a search the first beam gets the row; the others follow with `seat`.
        """
        lead = request.lead
        if request.status is Status.WAITING:
            request.num_cached_tokens = lead.num_computed_tokens
            self.counters.count_admission(request)
        if lead is not request:
            self.seat(lead)
        self._enter(request)

    def start_fork(self, request: Request, table: BlockTable, num_computed: int) -> None:
        """waiting -> running, with the blocks of another choice's prompt."""
        assert request.family is not None, f"{request} has no family"
        request.table = table
        request.num_computed_tokens = num_computed
        request.num_cached_tokens = request.family.num_cached_tokens
        self._enter(request)
        self.families.tidy(request.family)

    def seat(self, member: Request) -> None:
        """Give a beam a row."""
        member.move_to(Status.RUNNING)
        member.row = self.rows.take()

    def _enter(self, request: Request) -> None:
        self.waiting.remove(request)
        if request.search is None:
            self.seat(request)
        else:
            request.move_to(Status.RUNNING)
        self.running.add(request)
        if request.family is not None:
            self.families.tidy(request.family)

    # ---- running to waiting

    def preempt(self, request: Request, *, is_spoiled: bool = False) -> None:
        """running -> waiting, to compute again. What is computed stays findable, unless spoiled."""
        self._leave_running(request)
        for holder in request.holders:
            self.kv.free(holder.table, 0 if is_spoiled else holder.num_computed_tokens)
            holder.num_computed_tokens = 0
        self._wait_again(request)

    def swap_out(self, request: Request) -> bool:
        """running -> waiting, with the blocks in host slots.

        False if there are not enough slots: the caller preempts it then.
        """
        left: list[Request] = []
        for holder in request.holders:
            # A beam may have nothing left to compute; its last token is computed again then, which
            # a state that has taken it in does not allow.
            num_computed = min(holder.num_computed_tokens, len(holder.token_ids) - 1)
            if num_computed < holder.num_computed_tokens and not self.kv.keeps_past:
                break
            holder.num_computed_tokens = num_computed
            if not self.kv.swap_out(holder.table, num_computed):
                break
            left.append(holder)
        else:
            self._leave_running(request)
            request.num_swaps += 1
            self.counters.num_swaps += 1
            self._wait_again(request)
            return True
        for holder in left:  # of a search that does not fit as a whole
            self.kv.drop_swapped(holder.table)
            holder.num_computed_tokens = 0
        return False

    def drop_swapped(self, request: Request) -> bool:
        """A swapped-out request will be computed again. False if it is none."""
        is_swapped = False
        for holder in request.holders:
            if holder.table.is_swapped:
                self.kv.drop_swapped(holder.table)
                holder.num_computed_tokens = 0
                is_swapped = True
        return is_swapped

    def forget_lost_swaps(self) -> None:
        """The KV manager has emptied tables that a failed step should have swapped out."""
        for request in self.waiting:
            for holder in request.holders:
                if not holder.table.is_swapped:
                    holder.num_computed_tokens = 0

    def _leave_running(self, request: Request) -> None:
        self.running.remove(request)
        for holder in request.holders:
            self._give_row_back(holder)

    def _wait_again(self, request: Request) -> None:
        for holder in {*request.holders, request}:
            if holder.status is Status.RUNNING:
                holder.move_to(Status.PREEMPTED)
        if request.search is not None:
            request.search.interrupt()
        request.num_preemptions += 1
        self.counters.num_preemptions += 1
        self.waiting.add(request)

    # ---- the end

    def fail(self, request: Request, message: str) -> TokenDelta:
        """End a live request with an error; returns its last delta."""
        self.end(request, "error")
        delta = last_delta(request, "error")
        delta.error = message
        delta.is_unanswerable = message.startswith(UNANSWERABLE)
        return delta

    def end(self, request: Request, reason: FinishReason) -> None:
        """End a live request; its rows and blocks are free. Its last delta is due."""
        if request.status is Status.RUNNING:
            self.running.remove(request)
        elif not self.families.is_held(request):
            self.waiting.remove(request)
        self._release(request, keeps_last=reason != "error")
        self._close(request, reason)

    def end_in_flight(self, request: Request, reason: FinishReason) -> None:
        """End a request whose step runs: rows and blocks stay taken until `release_aborted`."""
        self.running.remove(request)
        self.aborted_in_flight.append(request)
        self._close(request, reason)

    def release_aborted(self) -> None:
        """Requests that were aborted during the step give rows and blocks back."""
        for request in self.aborted_in_flight:
            self._release(request, keeps_last=False)
        self.aborted_in_flight.clear()

    def release_member(self, member: Request) -> None:
        """A beam that nobody continues goes."""
        self._give_row_back(member)
        self.kv.free(member.table, member.num_computed_tokens)
        member.move_to(Status.FINISHED)

    def _release(self, request: Request, *, keeps_last: bool) -> None:
        """Give rows, blocks and slots back; the last block, full in part, may stay findable."""
        for holder in request.holders:
            self._give_row_back(holder)
            self.kv.free(holder.table, holder.num_computed_tokens if keeps_last else 0)

    def _give_row_back(self, holder: Request) -> None:
        """The runner's row is free; a beam that has not entered yet has none."""
        if hasattr(holder, "row"):
            self.rows.give_back(holder.row)
            del holder.row

    def _close(self, request: Request, reason: FinishReason) -> None:
        """The request is not live any more."""
        for holder in request.holders:
            if holder is not request:
                holder.move_to(Status.FINISHED)
        request.move_to(Status.FINISHED)
        del self.requests[request.id]
        self.counters.num_finished[reason] += 1
        if request.family is not None:
            self.families.leave(request)


def last_delta(request: Request, reason: FinishReason) -> TokenDelta:
    """The end of a request that got no token with it."""
    return TokenDelta(
        request.id,
        [],
        finish_reason=reason,
        num_cached_tokens=request.num_cached_tokens,
        num_preemptions=request.num_preemptions,
        num_swaps=request.num_swaps,
    )
