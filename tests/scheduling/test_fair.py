"""Fairness between tenants: the order, the turns, and what stays behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from octavo.scheduling.fair import QUANTUM, Shares
from octavo.scheduling.policy import find_policy
from octavo.scheduling.request import Request
from tests.support.builders import make_kv, make_request

KV = make_kv()
SORT_KEY = find_policy("fair").sort_key


class Desk(Shares):
    """The queues of one scheduler, and short ways to fill them."""

    num_added = 0

    def add(self, name: str, tenant: str, priority: int = 0) -> Request:
        source = make_request(name, tenant=tenant, priority=priority)
        request = Request(source, SORT_KEY(source, self.num_added), 1000, KV)
        self.num_added += 1
        self.waiting.add(request)
        return request

    def start(self, request: Request) -> None:
        self.waiting.remove(request)
        request.num_computed_tokens = request.num_tokens - 1
        self.running.add(request)

    def run(self, name: str, tenant: str) -> Request:
        """A request that runs and has had its turn."""
        request = self.add(name, tenant)
        self.start(request)
        request.token_ids.extend(range(100))
        return request


def names(requests: list[Request]) -> list[str]:
    return [request.id for request in requests]


def test_tenants_take_turns_however_many_requests_one_has():
    desk = Desk()
    for number in range(5):
        desk.add(f"a{number}", "A")
    desk.add("b0", "B")
    desk.add("b1", "B")
    served = []
    while desk.waiting:
        request = desk.waiting.first
        desk.start(request)
        desk.ledger.charge(request.tenant, 10)
        served.append(request.id)
    assert served == ["a0", "b0", "a1", "b1", "a2", "a3", "a4"]


def test_whose_requests_are_dear_waits_longer():
    """Tokens count, not requests."""
    desk = Desk()
    for number in range(4):
        desk.add(f"dear{number}", "A")
        desk.add(f"cheap{number}", "B")
    served = []
    for _ in range(5):
        request = desk.waiting.first
        desk.start(request)
        desk.ledger.charge(request.tenant, 30 if request.tenant == "A" else 10)
        served.append(request.id)
    assert served == ["dear0", "cheap0", "cheap1", "cheap2", "dear1"]


def test_within_a_tenant_priority_goes_first_then_arrival():
    desk = Desk()
    desk.add("late", "A")
    desk.add("later", "A")
    desk.add("urgent", "A", priority=-1)
    assert names(list(desk.waiting)) == ["urgent", "late", "later"]


def test_the_next_requests_are_the_first_of_each_tenant_then_the_second():
    desk = Desk()
    for name, tenant in (("a0", "A"), ("a1", "A"), ("b0", "B"), ("c0", "C"), ("c1", "C")):
        desk.add(name, tenant)
    desk.ledger.charge("A", 5)
    assert names(desk.waiting.upcoming(2)) == ["b0", "c0"]
    assert names(desk.waiting.upcoming(9)) == ["b0", "c0", "a0", "c1", "a1"]


def test_who_is_ahead_by_more_than_a_quantum_passes_nobody():
    desk = Desk()
    desk.add("a", "A")
    desk.add("b", "B")
    desk.ledger.charge("A", QUANTUM)
    assert names(desk.waiting.upcoming(2)) == ["b", "a"]
    desk.ledger.charge("A", 1)
    assert names(desk.waiting.upcoming(2)) == ["b"]


def test_no_credit_is_saved_while_nothing_waits():
    """B comes when A was served a thousand tokens: it is next, but not for a thousand tokens."""
    desk = Desk()
    for number in range(4):
        desk.add(f"a{number}", "A")
    desk.ledger.charge("A", 1000)
    desk.settle()
    for number in range(4):
        desk.add(f"b{number}", "B")
    desk.ledger.charge("B", 10)
    assert desk.waiting.first.tenant == "A"


def test_debt_is_kept_while_others_wait_and_forgiven_when_nobody_does():
    desk = Desk()
    b = desk.add("b", "B")
    for tenant, is_forgiven in (("A", False), ("C", True)):
        request = desk.add(tenant.lower(), tenant)
        desk.ledger.charge(tenant, 500)
        desk.waiting.remove(request)
        if is_forgiven:
            desk.waiting.remove(b)
        desk.settle()
        desk.add(tenant, tenant)
        assert is_forgiven == (desk.ledger.served(tenant) == desk.ledger.served("nobody"))


def test_running_requests_of_the_tenant_that_was_served_most_stand_last():
    desk = Desk()
    for name, tenant in (("b0", "B"), ("a0", "A"), ("b1", "B"), ("a1", "A")):
        desk.run(name, tenant)
    desk.add("c", "C")
    desk.ledger.charge("B", 7)
    desk.settle()
    assert names(list(desk.running)) == ["a0", "a1", "b0", "b1"]
    assert desk.running.last.id == "b1"


def test_of_tenants_that_are_even_the_one_that_runs_more_stands_last():
    desk = Desk()
    for name, tenant in (("a0", "A"), ("a1", "A"), ("b0", "B")):
        desk.run(name, tenant)
    desk.settle()
    assert names(list(desk.running)) == ["b0", "a0", "a1"]


def test_a_tenant_with_nothing_running_may_displace_who_is_ahead_by_a_quantum():
    desk = Desk()
    a0, a1 = desk.run("a0", "A"), desk.run("a1", "A")
    arrival = desk.add("b", "B")
    desk.ledger.charge("A", QUANTUM)
    desk.settle()
    assert desk.who_may_yield(arrival) == []
    desk.ledger.charge("A", 1)
    desk.settle()
    assert desk.who_may_yield(arrival) == [a1, a0]


def test_a_request_keeps_its_row_for_a_turn():
    """Else two tenants would throw each other out before either has a new token."""
    desk = Desk()
    request = desk.add("a", "A")
    desk.start(request)
    arrival = desk.add("b", "B")
    desk.ledger.charge("A", 10 * QUANTUM)
    desk.settle()
    assert desk.who_may_yield(arrival) == []
    request.token_ids.extend(range(16))
    assert desk.who_may_yield(arrival) == [request]


def test_a_tenant_that_runs_something_displaces_only_down_to_an_equal_number():
    desk = Desk()
    for number in range(4):
        desk.run(f"a{number}", "A")
    desk.run("b0", "B")
    arrival = desk.add("b1", "B")
    desk.ledger.charge("A", 10 * QUANTUM)
    desk.settle()
    assert names(desk.who_may_yield(arrival)) == ["a3", "a2"]
    desk.run("b2", "B")
    assert names(desk.who_may_yield(arrival)) == ["a3"]
    desk.run("b3", "B")
    assert desk.who_may_yield(arrival) == []


def test_ten_thousand_tenants_that_come_once_leave_nothing_behind():
    """A backlog of another tenant keeps debts alive all the time."""
    desk = Desk()
    desk.add("backlog", "A")
    most = 0
    for number in range(10_000):
        request = desk.add(str(number), f"tenant {number}")
        desk.start(request)
        desk.ledger.charge(request.tenant, 50)
        desk.ledger.charge("A", 50)
        desk.running.remove(request)
        desk.settle()
        most = max(most, desk.ledger.num_entries + desk.waiting.num_entries)
    assert most < 200
    desk.waiting.remove(desk.waiting.first)
    desk.settle()
    assert desk.ledger.num_entries == 0


@given(st.data())
def test_the_queue_agrees_with_a_slow_twin(data: st.DataObject):
    """The twin sorts all tenants by what they were served, and by who came first, every time."""
    desk = Desk()
    came: list[str] = []  # tenants with waiting requests, in the order in which they began to wait
    for number in range(data.draw(st.integers(1, 30))):
        action = data.draw(st.sampled_from(("add", "serve", "leave", "charge")))
        if action == "add" or not desk.waiting:
            tenant = data.draw(st.sampled_from("ABCD"))
            desk.add(str(number), tenant, priority=data.draw(st.integers(0, 1)))
            if tenant not in came:
                came.append(tenant)
        elif action == "charge":
            desk.ledger.charge(data.draw(st.sampled_from(came)), data.draw(st.integers(1, 300)))
        else:
            waiting = list(desk.waiting)
            gone = data.draw(st.sampled_from(waiting)) if action == "leave" else desk.waiting.first
            desk.waiting.remove(gone)
            if all(one.tenant != gone.tenant for one in desk.waiting):
                came.remove(gone.tenant)
            if action == "serve":
                gone.num_computed_tokens = gone.num_tokens - 1
                desk.running.add(gone)
        desk.settle()
        if desk.waiting:
            first = min(came, key=lambda name: (desk.ledger.served(name), came.index(name)))
            assert desk.waiting.first.tenant == first
            assert desk.waiting.first is next(iter(desk.waiting))
        assert len(desk.waiting) == len(list(desk.waiting))
