"""Engine core with a disk tier: what the prefix cache holds goes down, and comes back."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.contracts.kv_tier import TierKey
from octavo.engine.core import EngineCore
from octavo.errors import EngineDeadError
from octavo.executor.scripted import Block, ScriptedExecutor
from octavo.foundation.clock import ManualClock
from tests.support.builders import make_kv_plan, make_request
from tests.support.cores import SCRIPT, make_core, run_until_idle, tokens_of
from tests.support.dict_tier import DictTier


def make_executor(kept: dict[TierKey, Block], tier: type[DictTier] = DictTier) -> ScriptedExecutor:
    """Eight blocks, two host slots, and a tier that keeps blocks in `kept`."""
    plan = make_kv_plan(8, num_host_slots=2)
    return ScriptedExecutor(SCRIPT, plan, tier=lambda slots: tier(slots, kept))


def is_closed(executor: ScriptedExecutor) -> bool:
    """Whether the tier was closed, as the executor does it when it stops."""
    tier = executor.kv_tier()
    assert isinstance(tier, DictTier)
    return tier.is_closed


class TestTier:
    """What the prefix cache holds goes to the tier at the end, and comes back after a restart."""

    def make(self, kept: dict[TierKey, Block], **limits: Any) -> EngineCore:
        return make_core(make_executor(kept), **limits)

    def test_a_stop_sends_down_more_blocks_than_there_are_slots(self):
        kept: dict[TierKey, Block] = {}
        core = self.make(kept)
        core.add_request(make_request("a", range(20), max_tokens=1))
        run_until_idle(core)
        core.stop()
        assert len(kept) == 5

    def test_the_next_engine_finds_them(self):
        kept: dict[TierKey, Block] = {}
        first = self.make(kept)
        first.add_request(make_request("a", range(9), max_tokens=1))
        expected = run_until_idle(first)
        first.stop()
        second = self.make(kept)
        second.add_request(make_request("a", range(9), max_tokens=1))
        deltas = run_until_idle(second)
        assert deltas[-1].num_cached_tokens == 8
        assert tokens_of(expected, "a") == tokens_of(deltas, "a")

    def test_without_prefix_caching_there_is_no_tier(self):
        kept: dict[TierKey, Block] = {}
        core = self.make(kept, enable_prefix_caching=False)
        core.add_request(make_request("a", range(9), max_tokens=1))
        run_until_idle(core)
        core.stop()
        assert not kept

    def test_a_dead_engine_sends_nothing_down(self):
        kept: dict[TierKey, Block] = {}
        executor = make_executor(kept)
        core = make_core(executor)
        core.add_request(make_request("a", range(9), max_tokens=1))
        run_until_idle(core)
        core.add_request(make_request("b", range(50, 59)))
        executor.fail_run(EngineDeadError("gone"))
        with pytest.raises(EngineDeadError):
            core.step()
        core.stop()
        assert not kept

    def test_a_stop_comes_to_its_end_though_the_executor_fails(self):
        kept: dict[TierKey, Block] = {}
        executor = make_executor(kept)
        core = make_core(executor)
        core.add_request(make_request("a", range(9), max_tokens=1))
        run_until_idle(core)
        executor.fail_run(RuntimeError("no more"))
        core.stop()
        assert is_closed(executor)
        assert not kept

    def test_a_disk_that_writes_nothing_is_given_up(self):
        clock, kept = ManualClock(), dict[TierKey, Block]()

        class StuckTier(DictTier):
            """Takes blocks, and never says that one is written; each look takes a second."""

            def take_stored(self) -> list[int]:
                clock.advance(1.0)
                return []

        executor = make_executor(kept, StuckTier)
        core = make_core(executor, clock)
        core.add_request(make_request("a", range(20), max_tokens=1))
        run_until_idle(core)
        core.stop()
        assert is_closed(executor)
        assert len(kept) == 2
