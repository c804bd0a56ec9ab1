"""Heartbeat: is the engine alive? Alive means: no step has been running for too long.

An engine that has nothing to do is healthy, however long that lasts. No request is ever queued for
a probe, and nothing here waits for the engine.
"""

from __future__ import annotations

from octavo.foundation.clock import Clock

STALLED_AFTER_S = 600.0  # a large model's prefill step on a slow machine takes minutes


class Heartbeat:
    """Written by the engine's thread around each step, read by any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._step_began_s: float | None = None

    def begin_step(self) -> None:
        """A step starts now."""
        self._step_began_s = self._clock.now_s()

    def end_step(self) -> None:
        """The step has finished."""
        self._step_began_s = None

    def step_age_s(self) -> float:
        """Seconds since the step in flight began; 0 between steps."""
        began_s = self._step_began_s  # once: the other thread may change it at any moment
        return 0.0 if began_s is None else self._clock.now_s() - began_s
