"""Fairness between tenants: deficit round robin by tokens.

Owns: what each tenant has been served, the order that follows from it, whose request yields.
Does not know: budgets, blocks, rows.

Round robin with deficits (Shreedhar and Varghese, SIGCOMM 1995) gives each queue a quantum per
turn and lets it send while its credit lasts. The price of a request is known only when it has
ended, so tenants here pay afterwards, token by token, for all that is computed and generated: the
one that was served least is next. That is the same rule with a quantum of one token.

    served    tokens that a tenant was given, never less than the floor
    floor     `served` of the tenant that is next; it only rises

Credit is not saved: whoever begins to wait begins at the floor. Debt is kept while others wait and
forgotten when nobody does, since nobody was hindered. A record is dropped as soon as its tenant has
no live request and no debt, so a million keys that come once leave nothing behind.

Rows and blocks are shared too. A tenant that waits while another holds what it needs displaces the
last request of the tenant that was served most, if that one is ahead by more than a quantum and the
request had its turn. A turn grows with what a return costs, so tenants do not throw each other out
in circles: each turn ends with new tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace

from octavo.scheduling.policy import SortKey
from octavo.scheduling.queues import RequestQueue, order_of
from octavo.scheduling.request import Request

QUANTUM = 256
"""Tokens that a tenant may be ahead of a waiting one before one of its requests must yield."""

_SHORTEST_TURN = 16  # generated tokens that a request keeps its row for, once it runs
_TURN_PER_TOKEN = 16  # and one more for so many tokens that it had to compute to come in
_SLACK = 64  # dead entries that are not worth a clean-up


class _Tenant:
    """One tenant with live requests or with debt."""

    __slots__ = ("debt_noted", "num_live", "num_running", "served")

    def __init__(self, served: int) -> None:
        self.served = served
        self.num_live = 0
        self.num_running = 0
        self.debt_noted = -1  # `served` when it was put among the idle ones in debt


class TenantLedger:
    """What each tenant was served. The two queues below tell it who comes, runs and goes."""

    def __init__(self) -> None:
        self._tenants: dict[str, _Tenant] = {}
        self._floor = 0
        self._peak = 0  # most that anybody was served
        self._in_debt: list[tuple[int, str]] = []  # heap: idle tenants above the floor
        self._turn_ends: dict[str, int] = {}  # running request -> known tokens when it may yield

    @property
    def num_entries(self) -> int:
        """All that is kept, of any kind."""
        return len(self._tenants) + len(self._in_debt) + len(self._turn_ends)

    def served(self, tenant: str) -> int:
        """Tokens that the tenant was served, at least the floor."""
        known = self._tenants.get(tenant)
        return self._floor if known is None else max(known.served, self._floor)

    def num_running(self, tenant: str) -> int:
        """Requests of this tenant that hold a row."""
        known = self._tenants.get(tenant)
        return 0 if known is None else known.num_running

    def enter(self, tenant: str) -> None:
        """A request of this tenant entered a queue."""
        known = self._tenants.get(tenant)
        if known is None:
            known = self._tenants[tenant] = _Tenant(self._floor)
        known.num_live += 1

    def leave(self, tenant: str) -> None:
        """A request of this tenant left a queue, for the other one or for good."""
        known = self._tenants[tenant]
        known.num_live -= 1
        if known.num_live:
            return
        if known.served <= self._floor:
            del self._tenants[tenant]
        elif known.debt_noted != known.served:
            known.debt_noted = known.served
            heappush(self._in_debt, (known.served, tenant))

    def start(self, request: Request) -> None:
        """A request got a row: its turn begins."""
        self._tenants[request.tenant].num_running += 1
        lead = request.lead
        turn = _SHORTEST_TURN + lead.num_missing_tokens // _TURN_PER_TOKEN
        self._turn_ends[request.id] = lead.num_tokens + turn

    def stop(self, request: Request) -> None:
        """A request gave its row back."""
        self._tenants[request.tenant].num_running -= 1
        del self._turn_ends[request.id]

    def had_its_turn(self, request: Request) -> bool:
        """Whether a running request may be displaced for the sake of fairness."""
        return request.lead.num_tokens >= self._turn_ends[request.id]

    def begin_waiting(self, tenant: str) -> None:
        """The tenant had nothing waiting and has now: it brings no credit from before."""
        known = self._tenants[tenant]
        known.served = max(known.served, self._floor)

    def charge(self, tenant: str, num_tokens: int) -> None:
        """A step computes so many tokens for a live request of this tenant."""
        known = self._tenants[tenant]
        known.served = max(known.served, self._floor) + num_tokens
        self._peak = max(self._peak, known.served)

    def raise_floor(self, served: int) -> None:
        """The tenant that is next was served so much: debts up to there are paid."""
        self._floor = max(self._floor, served)
        while self._in_debt and self._in_debt[0][0] <= self._floor:
            _, tenant = heappop(self._in_debt)
            known = self._tenants.get(tenant)
            if known is not None and not known.num_live and known.served <= self._floor:
                del self._tenants[tenant]

    def forgive(self) -> None:
        """Nobody waits: all are even."""
        self.raise_floor(self._peak)


class FairWaiting:
    """Waiting requests: by tenant, the least served first; within a tenant in policy order.

    Stands in for `RequestQueue`. A tenant with requests here has one true entry in the heap, with
    what it was served when it was put there. That only grows, so an entry is at worst too early and
    is moved back when it comes up. Entries of tenants that left die in the heap, at most as many as
    there are living ones, and a few.
    """

    __slots__ = ("_heap", "_ledger", "_num_requests", "_num_turns", "_queues", "_turns")

    def __init__(self, ledger: TenantLedger) -> None:
        self._ledger = ledger
        self._queues: dict[str, RequestQueue] = {}
        self._turns: dict[str, int] = {}  # parallel: the turn of the true entry
        self._heap: list[tuple[int, int, str]] = []  # (served, turn, tenant)
        self._num_turns = 0
        self._num_requests = 0

    def __len__(self) -> int:
        return self._num_requests

    def __iter__(self) -> Iterator[Request]:
        """All requests, tenant by tenant. Slow: for those who look on."""
        for tenant in sorted(self._queues, key=self._place_of):
            yield from self._queues[tenant]

    @property
    def num_entries(self) -> int:
        """All that is kept of tenants, dead entries included."""
        return len(self._heap) + len(self._queues) + len(self._turns)

    @property
    def first(self) -> Request:
        """Served next."""
        return self._queues[self._settle_top()[2]].first

    def upcoming(self, count: int) -> list[Request]:
        """The next requests, at most `count`: the first ones of the tenants in order, then the
        second ones, and so on. Without tenants that are ahead of the next one by more than a
        quantum: they must not pass it, even if it does not fit now.
        """
        tops: list[tuple[int, int, str]] = []
        while len(tops) < min(count, len(self._queues)):
            top = self._settle_top()
            if tops and top[0] > tops[0][0] + QUANTUM:
                break
            tops.append(heappop(self._heap))
        for entry in tops:
            heappush(self._heap, entry)
        lines = [self._queues[tenant].upcoming(count) for _, _, tenant in tops]
        found: list[Request] = []
        for place in range(count):
            found += [line[place] for line in lines if place < len(line)]
        return found[:count]

    def add(self, request: Request) -> None:
        """Put a request behind those of its tenant that go before it."""
        tenant = request.tenant
        self._ledger.enter(tenant)
        if tenant not in self._queues:
            self._queues[tenant] = RequestQueue()
            self._ledger.begin_waiting(tenant)
            self._num_turns += 1
            self._turns[tenant] = self._num_turns
            heappush(self._heap, (*self._place_of(tenant), tenant))
        request.order = _with_share(request, 0, 0)
        self._queues[tenant].add(request)
        self._num_requests += 1

    def remove(self, request: Request) -> None:
        """Take a request out; it must be in."""
        tenant = request.tenant
        queue = self._queues[tenant]
        queue.remove(request)
        self._num_requests -= 1
        self._ledger.leave(tenant)
        if queue:
            return
        del self._queues[tenant], self._turns[tenant]
        if len(self._heap) > 2 * len(self._queues) + _SLACK:
            self._heap = [(*self._place_of(name), name) for name in self._queues]
            heapify(self._heap)

    def settle(self) -> None:
        """Before a plan: debts up to what the next tenant was served are paid."""
        if self._queues:
            self._ledger.raise_floor(self._settle_top()[0])
        else:
            self._ledger.forgive()

    def _place_of(self, tenant: str) -> tuple[int, int]:
        return self._ledger.served(tenant), self._turns[tenant]

    def _settle_top(self) -> tuple[int, int, str]:
        """Make the top of the heap true, and return it."""
        while True:
            noted, turn, tenant = self._heap[0]
            if self._turns.get(tenant) != turn:
                heappop(self._heap)
                continue
            served = self._ledger.served(tenant)
            if noted == served:
                return self._heap[0]
            heapreplace(self._heap, (served, turn, tenant))


class FairRunning(RequestQueue):
    """Running requests: those of the least served tenant first, as of the last `settle`.

    Of tenants that are even the one that runs fewer goes first. So the last request is of a tenant
    that has most: it yields when blocks run out.
    """

    __slots__ = ("_ledger",)

    def __init__(self, ledger: TenantLedger) -> None:
        super().__init__()
        self._ledger = ledger

    def add(self, request: Request) -> None:
        """Put a request where the share of its tenant says."""
        self._ledger.enter(request.tenant)
        self._ledger.start(request)
        self._place(request)
        super().add(request)

    def remove(self, request: Request) -> None:
        """Take a request out; it must be in."""
        super().remove(request)
        self._ledger.stop(request)
        self._ledger.leave(request.tenant)

    def settle(self) -> None:
        """Before a plan: order by what each tenant was served by now."""
        for request in self._requests:
            self._place(request)
        self._requests.sort(key=order_of)

    def _place(self, request: Request) -> None:
        ledger, tenant = self._ledger, request.tenant
        request.order = _with_share(request, ledger.served(tenant), ledger.num_running(tenant))


class Shares:
    """The queues of one scheduler that is fair, and what a plan tells them."""

    def __init__(self) -> None:
        self.ledger = TenantLedger()
        self.waiting = FairWaiting(self.ledger)
        self.running = FairRunning(self.ledger)

    def settle(self) -> None:
        """Before a plan: who was served what counts for the order from now on."""
        self.waiting.settle()
        self.running.settle()

    def charge(self, request: Request, num_tokens: int) -> None:
        """The step that is being planned computes so many tokens for a request."""
        self.ledger.charge(request.tenant, num_tokens)

    def may_go_before(self, request: Request, first: Request) -> bool:
        """Whether a waiting request may be served before the `first` one, out of turn."""
        if request.tenant == first.tenant:
            return request.priority <= first.priority
        return self.ledger.served(request.tenant) <= self.ledger.served(first.tenant)

    def who_may_yield(self, arrival: Request) -> list[Request]:
        """Running requests that may be displaced for `arrival`, in this order, as many as needed.

        They belong to the tenants that were served most, and within a tenant the last go first.
        While the arriving tenant runs nothing, everybody who is ahead of it by more than a quantum
        may have to yield; else only tenants that run at least as many requests as it does even
        afterwards.
        """
        ledger = self.ledger
        limit = ledger.served(arrival.tenant) + QUANTUM
        num_running = ledger.num_running(arrival.tenant)
        num_left: dict[str, int] = {}
        found: list[Request] = []
        for request in reversed(self.running):
            tenant = request.tenant
            if tenant == arrival.tenant or ledger.served(tenant) <= limit:
                continue
            left = num_left.setdefault(tenant, ledger.num_running(tenant)) - 1
            if num_running and left < num_running + 1:
                continue
            if ledger.had_its_turn(request):
                num_left[tenant] = left
                found.append(request)
        return found


def _with_share(request: Request, served: int, num_running: int) -> SortKey:
    """The order of a request with another share of its tenant: its first two entries."""
    return (served, num_running, *request.order[2:])
