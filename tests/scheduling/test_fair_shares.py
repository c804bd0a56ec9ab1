"""Fairness in a running scheduler: shares of tokens, rows, blocks and of the step itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import example, given, settings
from hypothesis import strategies as st

from octavo.contracts.request import BeamSpec
from octavo.contracts.step import StepPlan
from octavo.scheduling.fair import QUANTUM
from tests.scheduling.conftest import MakeRig
from tests.support.builders import Rig, make_request, make_rig


class Office:
    """A fair scheduler whose tenants have requests of one size each, and what each was served."""

    def __init__(self, **options: int) -> None:
        self.rig = make_rig(scheduling_policy="fair", **options)
        self.served: Counter[str] = Counter()
        self.num_added = 0

    def add(self, tenant: str, num_prompt: int = 4, max_tokens: int = 8, **fields: int) -> str:
        name = f"{tenant} {self.num_added}"
        begin = 1000 * self.num_added  # no two prompts share anything
        prompt = range(begin, begin + num_prompt)
        self.rig.add(make_request(name, prompt, max_tokens=max_tokens, tenant=tenant, **fields))
        self.num_added += 1
        return name

    def step(self) -> StepPlan:
        plan = self.rig.plan()
        for request, num_tokens in zip(self.rig.scheduler.in_flight, plan.num_tokens, strict=True):
            self.served[request.tenant] += num_tokens
        self.rig.finish_step(plan)
        return plan

    def run_backlogged(self, sizes: Mapping[str, tuple[int, int]], num_steps: int) -> None:
        """Steps in which every tenant has more requests of its size waiting than can start."""
        num_wanted = self.rig.scheduler.rows.num_rows + 1
        for _ in range(num_steps):
            waiting = Counter(request.tenant for request in self.rig.scheduler.waiting)
            for tenant, (num_prompt, max_tokens) in sizes.items():
                for _ in range(waiting[tenant], num_wanted):
                    self.add(tenant, num_prompt, max_tokens)
            self.step()

    def steps_until_tokens(self, name: str, limit: int) -> int:
        for num_steps in range(limit):
            if self.rig.tokens_of(name):
                return num_steps
            self.step()
        raise AssertionError(f"{name} has no token after {limit} steps")


def finish(rig: Rig) -> None:
    rig.finish(limit=20_000)


def test_a_flood_of_one_tenant_delays_another_by_one_request_only():
    office = Office(max_num_seqs=1)
    for _ in range(50):
        office.add("flood")
    name = office.add("other")
    assert office.steps_until_tokens(name, 30) <= 2 * 8 + 1
    finish(office.rig)


def test_a_tenant_that_holds_all_rows_gives_one_away_within_a_quantum():
    """Its requests would run for 400 steps; two rows are 256 tokens ahead after 128."""
    office = Office(max_num_seqs=2, num_blocks=400)
    for _ in range(2):
        office.add("holder", max_tokens=400)
    office.step()
    name = office.add("other", max_tokens=400)
    assert office.steps_until_tokens(name, 400) <= QUANTUM // 2 + 2
    finish(office.rig)


def test_a_tenant_that_holds_all_blocks_gives_some_away_within_a_quantum():
    office = Office(num_blocks=100)
    office.add("holder", num_prompt=60, max_tokens=330)
    office.step()
    name = office.add("other", num_prompt=350, max_tokens=4)
    assert office.steps_until_tokens(name, 400) <= QUANTUM + 10
    finish(office.rig)
    assert office.rig.end_of(name).finish_reason == "length"


def test_two_tenants_with_one_row_take_turns_of_a_quantum():
    """Each turn is long enough to be worth the return, and none longer than it must be."""
    office = Office(max_num_seqs=1, num_blocks=400)
    names = [office.add("A", max_tokens=600), office.add("B", max_tokens=600)]
    while office.rig.scheduler.has_work():
        office.step()
        gap = office.served["A"] - office.served["B"]
        if len(office.rig.scheduler.requests) == 2:
            assert abs(gap) <= 2 * QUANTUM + 64
    assert 2 <= office.rig.scheduler.counters.num_preemptions <= 1200 // QUANTUM
    assert [len(office.rig.tokens_of(name)) for name in names] == [600, 600]


def test_a_tenant_with_one_row_gets_more_rows_of_one_that_has_many():
    office = Office(max_num_seqs=8, num_blocks=2000)
    for _ in range(8):
        office.add("many", max_tokens=900)
    office.step()
    for _ in range(8):
        office.add("few", max_tokens=900)
    for _ in range(100):
        office.step()
    rows = Counter(request.tenant for request in office.rig.scheduler.running)
    assert rows == {"many": 4, "few": 4}
    num_preemptions = office.rig.scheduler.counters.num_preemptions
    for _ in range(50):
        office.step()
    assert num_preemptions == office.rig.scheduler.counters.num_preemptions == 4


def test_prompts_of_two_tenants_share_a_step():
    office = Office(num_blocks=400, max_num_batched_tokens=32)
    office.add("A", num_prompt=200)
    office.add("B", num_prompt=200)
    office.step()
    for _ in range(5):
        assert office.step().num_tokens == [16, 16]
    finish(office.rig)


def test_several_prompts_of_one_tenant_get_no_more_than_the_one_of_another():
    office = Office(num_blocks=400, max_num_batched_tokens=64)
    for _ in range(3):
        office.add("A", num_prompt=100)
    for _ in range(2):
        office.step()
    office.add("B", num_prompt=100)
    before = office.served["A"]
    office.step()
    assert office.served["B"] in {31, 32}
    assert office.served["A"] - before <= 33
    finish(office.rig)


def test_fairness_does_not_change_answers():
    tokens = []
    for policy in ("fcfs", "fair"):
        rig = make_rig(scheduling_policy=policy, max_num_seqs=2, num_blocks=200)
        for number in range(6):
            prompt = range(100 * number, 100 * number + 9)
            tenant = "A" if number < 4 else "B"
            rig.add(make_request(str(number), prompt, max_tokens=90, tenant=tenant))
        finish(rig)
        tokens.append([rig.tokens_of(str(number)) for number in range(6)])
    assert tokens[0] == tokens[1]


def test_without_tenants_fair_is_priority(new_rig: MakeRig):
    rig = new_rig(scheduling_policy="fair", max_num_seqs=1)
    for name, priority in (("c", 2), ("a", 0), ("b", 1)):
        rig.add(make_request(name, [ord(name)], priority=priority))
    rig.finish()
    assert [one.request_id for one in rig.deltas if one.finish_reason] == ["a", "b", "c"]


def test_many_choices_of_one_prompt_leave_another_tenant_its_turn():
    """Choices enter together with their prompt, but not before a tenant that was served less."""
    office = Office(max_num_seqs=3, num_blocks=100, max_num_batched_tokens=64)
    first = office.add("A", num_prompt=100, max_tokens=6)
    prompt = office.rig.scheduler.requests[first].token_ids.tolist()
    for number in range(6):
        name = f"choice {number}"
        office.rig.add(make_request(name, prompt, max_tokens=6, tenant="A", fork_of=first))
    office.step()
    office.add("B", max_tokens=6)
    office.step()
    rows = Counter(request.tenant for request in office.rig.scheduler.running)
    assert rows == {"A": 1, "B": 1}
    finish(office.rig)
    assert len(office.rig.tokens_of("choice 5")) == 6


def test_a_beam_search_is_charged_for_all_its_beams():
    office = Office(max_num_seqs=4, num_blocks=100)
    beam = BeamSpec(beam_width=3, num_returned=1)
    office.rig.add(make_request("search", [1, 2, 3, 4], max_tokens=9, tenant="A", beam=beam))
    office.add("B", max_tokens=9)
    office.step()
    office.add("C", num_prompt=4)  # waits for a row, so that debts are kept
    for _ in range(6):
        office.step()
    shares = office.rig.scheduler.shares
    assert shares is not None
    assert shares.ledger.served("A") >= 2 * 5 + shares.ledger.served("B")
    finish(office.rig)


SIZES = st.tuples(st.integers(1, 40), st.integers(1, 30))


@example(sizes=[(39, 14), (28, 1)], num_rows=3, num_blocks=22)  # small ones used to pass and pass
@example(sizes=[(1, 1), (6, 1)], num_rows=4, num_blocks=20)  # three small ones start in one step
@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(SIZES, min_size=2, max_size=4),
    num_rows=st.integers(1, 6),
    num_blocks=st.integers(20, 60),
)
def test_backlogged_tenants_are_served_alike(
    sizes: list[tuple[int, int]], num_rows: int, num_blocks: int
):
    """Whatever the sizes of their requests: the difference has a bound that time does not move.

    A tenant may be ahead by a quantum, by what it runs when it is overtaken, and by one step.
    """
    office = Office(max_num_seqs=num_rows, num_blocks=num_blocks, max_num_batched_tokens=32)
    by_tenant = {chr(ord("A") + place): size for place, size in enumerate(sizes)}
    office.run_backlogged(by_tenant, 150)
    bound = QUANTUM + 32 + num_rows * max(sum(size) for size in sizes)
    assert max(office.served.values()) - min(office.served[name] for name in by_tenant) <= bound
    for request_id in list(office.rig.scheduler.requests):
        office.rig.abort(request_id)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ABC"), SIZES, st.integers(0, 3)), min_size=1, max_size=25),
    st.integers(1, 4),
    st.integers(18, 40),
)
def test_everybody_ends_and_no_tenant_is_remembered(
    arrivals: list[tuple[str, tuple[int, int], int]], num_rows: int, num_blocks: int
):
    office = Office(max_num_seqs=num_rows, num_blocks=num_blocks, max_num_batched_tokens=16)
    for tenant, (num_prompt, max_tokens), num_steps in arrivals:
        office.add(tenant, num_prompt, max_tokens)
        for _ in range(num_steps):
            office.step()
    finish(office.rig)
    ends = [one for one in office.rig.deltas if one.finish_reason == "length"]
    assert len(ends) == len(arrivals)
    office.step()
    shares = office.rig.scheduler.shares
    assert shares is not None
    assert shares.ledger.num_entries == 0
