"""Families: the choices of one prompt (`n` above 1), and how they share it.

Owns: who computes the prompt, who waits for that, the snapshot of a prompt for latecomers.
Does not know: budgets, plans. The scheduler decides who enters.
Used by: scheduling.roster, scheduling.scheduler.

    held      The first choice is the *leader*: it computes the prompt like any request. The others
              are live but in no queue.
    twins     In the step that computes the last prompt token, others enter with the leader's blocks
              and sample from its logits. Whoever writes first into a shared block copies it.
    waiting   Who finds no row then waits in the queue; a *snapshot* keeps the prompt's blocks. With
              it a choice computes one token again, the last of the prompt. Under shortage the
              snapshot goes first, and such a choice computes its prompt like any request, as it
              does where layers carry a state: that one has taken the last token in already.

If the leader ends before its prompt is computed, the next one leads. After that point members are
ordinary requests in all respects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from octavo.kvcache.manager import KVManager
from octavo.scheduling.queues import WaitingQueue
from octavo.scheduling.request import Family, Request, Status


class Families:
    """All families with a live member."""

    def __init__(self, kv: KVManager, waiting: WaitingQueue) -> None:
        self._kv = kv
        self._waiting = waiting
        self._by_first: dict[str, Family] = {}
        self.num_held = 0

    def __iter__(self) -> Iterator[Family]:
        return iter(self._by_first.values())

    def join(self, request: Request, first_id: str, live: Mapping[str, Request]) -> None:
        """A choice after the first becomes live: hold it, or let it wait if it comes too late."""
        family = self._by_first.get(first_id)
        if family is None:
            first = live.get(first_id)
            if first is None or not _may_lead(first):
                self._waiting.add(request)
                return
            family = first.family = self._by_first[first_id] = Family(first)
        request.family = family
        family.members.append(request)
        if family.leader is None:
            self._waiting.add(request)
            return
        family.held.append(request)
        self.num_held += 1

    def complete(self, family: Family) -> list[Request]:
        """The leader's prompt will be computed: the held ones wait in the queue; returns them."""
        leader, held = family.leader, family.held
        assert leader is not None, f"the family of {family.first_id} has no leader"
        family.num_cached_tokens = leader.num_cached_tokens
        family.leader, family.held = None, []
        self.num_held -= len(held)
        for request in held:
            self._waiting.add(request)
        return held

    def keep_snapshot(self, leader: Request) -> None:
        """Keep the prompt's blocks if a member could use them; `leader` has just got them all."""
        family = leader.family
        assert family is not None, f"{leader} leads nobody"
        if self._kv.keeps_past and _wants_snapshot(family):
            prompt = leader.token_ids[: leader.num_prompt_tokens]
            family.snapshot = self._kv.fork(leader.table, prompt)

    def tidy(self, family: Family) -> None:
        """A member started, so the snapshot may be of no use any more."""
        if family.snapshot is not None and not _wants_snapshot(family):
            self.drop_snapshot(family)

    def drop_snapshot(self, family: Family) -> None:
        """Give the blocks of a snapshot back."""
        if family.snapshot is not None:
            self._kv.free(family.snapshot)
            family.snapshot = None

    def drop_all_snapshots(self) -> None:
        """Nobody knows what is in their blocks."""
        for family in self._by_first.values():
            self.drop_snapshot(family)

    def drop_a_snapshot(self) -> bool:
        """Room is short: the youngest snapshot goes. False if there is none."""
        for family in reversed(self._by_first.values()):
            if family.snapshot is not None:
                self.drop_snapshot(family)
                return True
        return False

    def is_held(self, request: Request) -> bool:
        """Whether a request waits for its leader, in no queue."""
        return request.family is not None and request in request.family.held

    def leave(self, request: Request) -> None:
        """A member has ended. If it led, the next one does."""
        family = request.family
        assert family is not None, f"{request} has no family"
        family.members.remove(request)
        if request in family.held:
            family.held.remove(request)
            self.num_held -= 1
        elif family.leader is request:
            family.leader = None
            if family.held:
                family.leader = family.held.pop(0)
                self.num_held -= 1
                self._waiting.add(family.leader)
        self.tidy(family)
        if not family.members:
            del self._by_first[family.first_id]


def _may_lead(first: Request) -> bool:
    """Whether the step that computes its last prompt token is still to be planned."""
    num_planned = first.num_computed_tokens
    return first.num_tokens == first.num_prompt_tokens and num_planned < first.num_tokens


def _wants_snapshot(family: Family) -> bool:
    return any(member.status is Status.WAITING for member in family.members)
