"""Forecast: how long until places in a full queue are free, for those who are told to come back.

Owns: when requests ended lately, how an average request is served.
Does not know: requests, queues, a clock: numbers and times come with each call.

A queue is full only of requests that wait for rows or blocks, and one of them starts when one that
runs ends. So the measured rate of endings decides, over the time in which anybody was served;
before enough have ended, the time that an average request takes by the measured speeds does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from octavo.scheduling.pacing import MeasuredSpeed

SHORTEST_WAIT_S = 1.0
LONGEST_WAIT_S = 600.0

_NUM_ENDINGS = 16  # steps with endings that the rate is taken from
_FEWEST_ENDINGS = 4  # before so many the rate is not believed
_UNKNOWN_OUTPUT = 128  # tokens of an answer before any has ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is live."""

    num_waiting: int
    num_waiting_tokens: int  # known tokens of waiting requests that are not computed
    num_running: int


class Forecast:
    """Told of the totals before each plan; asked at any time."""

    def __init__(self, speed: MeasuredSpeed) -> None:
        self._speed = speed
        self._endings: deque[tuple[float, int]] = deque(
            maxlen=_NUM_ENDINGS
        )  # busy seconds, how many so far
        self._now_s = 0.0
        self._busy_s = 0.0
        self._num_ended = 0
        self._num_generated = 0

    def note(
        self, now_s: float, num_ended: int, num_generated: int, *, was_idle: bool = False
    ) -> None:
        """The totals so far. Time in which nothing was live at its end says nothing of a rate."""
        if not was_idle:
            self._busy_s += now_s - self._now_s
        self._now_s = now_s
        if num_ended != self._num_ended:
            self._num_ended, self._num_generated = num_ended, num_generated
            self._endings.append((self._busy_s, num_ended))

    def wait_s(self, load: Load, num_places: int = 1) -> float:
        """Seconds until so many places are free, between SHORTEST_WAIT_S and LONGEST_WAIT_S."""
        wait_s = num_places * (self._seconds_per_ending() or self._modelled_s(load))
        return min(max(wait_s, SHORTEST_WAIT_S), LONGEST_WAIT_S)

    def _seconds_per_ending(self) -> float | None:
        """By the last endings; at least as long as nothing has ended now. None if too few have."""
        if len(self._endings) < _FEWEST_ENDINGS:
            return None
        begin_s, num_before = self._endings[0]
        end_s, num_ended = self._endings[-1]
        return max((end_s - begin_s) / (num_ended - num_before), self._busy_s - end_s)

    def _modelled_s(self, load: Load) -> float:
        """Seconds between two endings if all running requests are average ones."""
        prefill_s = self._speed.prefill_s(load.num_waiting_tokens) / max(1, load.num_waiting)
        num_rows = max(1, load.num_running)
        step_s = self._speed.decode_step_s(num_rows) or 0.0
        return prefill_s + self._expected_output() * step_s / num_rows

    def _expected_output(self) -> float:
        """Tokens of an average answer."""
        return self._num_generated / self._num_ended if self._num_ended else _UNKNOWN_OUTPUT
