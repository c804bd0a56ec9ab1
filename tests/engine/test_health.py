"""Heartbeat: the age of the step in flight."""

from __future__ import annotations

from octavo.engine.health import Heartbeat
from octavo.foundation.clock import ManualClock


def test_an_idle_engine_is_never_old() -> None:
    """Nothing to do is healthy, before the first step and between steps."""
    clock = ManualClock()
    heartbeat = Heartbeat(clock)
    clock.advance(1000.0)
    assert heartbeat.step_age_s() == 0.0

    heartbeat.begin_step()
    heartbeat.end_step()
    clock.advance(1000.0)

    assert heartbeat.step_age_s() == 0.0


def test_a_step_in_flight_grows_old() -> None:
    """By the clock."""
    clock = ManualClock()
    heartbeat = Heartbeat(clock)

    heartbeat.begin_step()
    clock.advance(7.0)

    assert heartbeat.step_age_s() == 7.0
