"""Places in a bounded queue: who gives way to an arrival that finds it full.

Owns: the choice, by the policy. Only requests that never ran give way, so nothing computed is lost,
and those that came together, such as the choices of one prompt, go together.
Does not know: how many may wait. It ends nobody.
Used by: scheduling.scheduler.

    priority   the worst of those that are worse than the arrival, the newest of these first
    fair       the newest of the tenant that has most there, while it keeps no fewer places than the
               arriving tenant would have: two tenants never push each other out in turn
    fcfs       nobody: who came first stays
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence

from octavo.contracts.request import EngineRequest
from octavo.scheduling.policy import Policy
from octavo.scheduling.queues import order_of
from octavo.scheduling.request import Request, Status
from octavo.scheduling.roster import Roster

GAVE_WAY = (
    "the queue is full, and the place of this request went to one that comes before it by the "
    "scheduling policy; it had not begun; try again later"
)
"""What a request is told that had to leave."""

Party = list[Request]
"""Requests that came together, in order of service."""


def who_gives_way(
    roster: Roster,
    policy: Policy,
    arrivals: Sequence[EngineRequest],
    starting: Collection[str],
    num_places: int,
) -> list[Request]:
    """Waiting requests that leave at least `num_places` to `arrivals`; empty if they may not.

    `starting` are ids of waiting requests that seem to run with the next plans: they stay.
    """
    if policy.shares_by_tenant:
        parties = _of_fuller_tenants(roster, arrivals, starting)
    elif policy.preempts_on_arrival:
        parties = _of_worse_priority(roster, arrivals, starting)
    else:
        return []
    found: list[Request] = []
    for party in parties:
        found += party
        if len(found) >= num_places:
            return found
    return []


def _of_worse_priority(
    roster: Roster, arrivals: Sequence[EngineRequest], starting: Collection[str]
) -> Iterator[Party]:
    limit = max(source.priority for source in arrivals)
    worse = [one for one in _waiting(roster) if one.priority > limit]
    return reversed(_parties(worse, starting))


def _of_fuller_tenants(
    roster: Roster, arrivals: Sequence[EngineRequest], starting: Collection[str]
) -> Iterator[Party]:
    tenant = arrivals[0].tenant
    waiting = [one for one in _waiting(roster) if one.id not in starting]
    num_places = Counter([one.tenant for one in waiting])
    wanted = num_places[tenant] + len(arrivals)
    others: defaultdict[str, list[Party]] = defaultdict(list)
    for party in _parties([one for one in waiting if one.tenant != tenant], starting):
        others[party[0].tenant].append(party)
    while others:
        fullest = max(others, key=num_places.__getitem__)
        party = others[fullest].pop()
        if num_places[fullest] - len(party) >= wanted:
            num_places[fullest] -= len(party)
            yield party
        if not others[fullest]:
            del others[fullest]


def _waiting(roster: Roster) -> Iterator[Request]:
    """All that wait, also those that wait for the first choice of their prompt."""
    yield from roster.waiting
    for family in roster.families:
        yield from family.held


def _parties(requests: Sequence[Request], starting: Collection[str]) -> list[Party]:
    """Those that came together and wait together, all of them; the newest of the worst are last.

    One that has begun, or ended, keeps the others in their places: part of an answer is there.
    """
    by_name: defaultdict[str, Party] = defaultdict(list)
    for one in requests:
        if one.party is not None and one.status is Status.WAITING and one.id not in starting:
            by_name[one.party.name].append(one)
    whole = [
        sorted(party, key=order_of)
        for party in by_name.values()
        if party[0].party is not None and party[0].party.size == len(party)
    ]
    return sorted(whole, key=lambda party: party[-1].order)
