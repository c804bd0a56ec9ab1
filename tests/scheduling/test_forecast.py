"""How long a refused client should stay away."""

from __future__ import annotations

from octavo.scheduling.forecast import LONGEST_WAIT_S, SHORTEST_WAIT_S, Forecast, Load
from octavo.scheduling.pacing import MeasuredSpeed

FULL = Load(num_waiting=10, num_waiting_tokens=1000, num_running=8)


def measured() -> MeasuredSpeed:
    """10 ms per prompt token, 0.8 s for a step of eight rows."""
    speed = MeasuredSpeed()
    speed.note_step(100, 0, 1.0)
    speed.note_step(0, 8, 0.8)
    return speed


def test_without_room_the_rate_of_endings_decides():
    """Two requests end every six seconds: a place is free every three."""
    forecast = Forecast(measured())
    for step in range(10):
        forecast.note(6.0 * step, 2 * step, 100 * step)
    assert forecast.wait_s(FULL) == 3.0


def test_a_rate_that_stalls_is_not_believed():
    """Nothing has ended for a minute: the next place takes at least as long."""
    forecast = Forecast(measured())
    for step in range(10):
        forecast.note(6.0 * step, 2 * step, 100 * step)
    forecast.note(54.0 + 60.0, 18, 2000)
    assert forecast.wait_s(FULL) == 60.0


def test_idle_time_says_nothing_of_the_rate():
    """Four times two requests end in six seconds, with an hour of nothing after each."""
    forecast = Forecast(measured())
    for hour in range(5):
        forecast.note(3606.0 * hour, 2 * hour, 100 * hour, was_idle=True)
        forecast.note(3606.0 * hour + 6, 2 * hour + 2, 100 * hour + 100)
    assert forecast.wait_s(FULL) == 3.0
    forecast.note(9e6, 10, 500, was_idle=True)
    assert forecast.wait_s(FULL) == 3.0


def test_before_requests_have_ended_the_measured_speeds_decide():
    """A prompt of 100 tokens takes one second, 128 tokens beside seven others 128 x 0.8 / 8."""
    forecast = Forecast(measured())
    assert forecast.wait_s(FULL) == 1.0 + 12.8


def test_the_answers_so_far_tell_how_long_one_is():
    forecast = Forecast(measured())
    forecast.note(0.0, 2, 40)
    assert forecast.wait_s(FULL) == 1.0 + 20 * 0.1


def test_several_places_take_as_many_times_as_long():
    forecast = Forecast(measured())
    assert forecast.wait_s(FULL, 3) == 3 * (1.0 + 12.8)


def test_the_answer_is_bounded():
    slow = MeasuredSpeed()
    slow.note_step(100, 0, 1e6)
    slow.note_step(0, 8, 1e6)
    assert Forecast(slow).wait_s(FULL) == LONGEST_WAIT_S
    assert Forecast(MeasuredSpeed()).wait_s(FULL) == SHORTEST_WAIT_S
