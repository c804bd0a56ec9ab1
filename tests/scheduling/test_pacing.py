"""Pacing: what is learnt from steps, and how many prompt tokens it allows beside decoding rows.

A toy machine stands in for the real one: its step times are a formula, so each bound is exact.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.scheduling.pacing import MIN_CHUNK, MeasuredSpeed, RecentMedian

SLOWDOWN = 1.7


def step_s(num_prefill: int, num_rows: int, token_s: float = 0.001) -> float:
    """10 ms to read the weights, half a millisecond per row, a millisecond per prompt token."""
    return 0.010 + 0.0005 * num_rows + token_s * num_prefill


def learnt(num_rows: int = 8) -> MeasuredSpeed:
    """Estimates after one prompt and some steps of decoding."""
    speed = MeasuredSpeed()
    speed.note_step(100, 0, step_s(100, 0))
    for _ in range(3):
        speed.note_step(0, num_rows, step_s(0, num_rows))
    return speed


def pace(
    speed: MeasuredSpeed,
    num_tokens: int,
    num_rows: int = 8,
    machine: Callable[[int, int], float] = step_s,
) -> list[float]:
    """Compute a prompt beside rows that decode; the time of each step."""
    times = []
    while num_tokens > 0:
        limit = speed.prefill_limit(num_rows, 1, SLOWDOWN)
        chunk = min(num_tokens, 512 if limit is None else limit)
        times.append(machine(chunk, num_rows))
        speed.note_step(chunk, num_rows, times[-1])
        num_tokens -= chunk
    return times


def test_before_anything_is_measured_nothing_is_limited():
    assert MeasuredSpeed().prefill_limit(8, 1, SLOWDOWN) is None


def test_without_decoding_rows_nothing_is_limited():
    assert learnt().prefill_limit(0, 5, SLOWDOWN) is None


def test_a_slowdown_of_zero_turns_pacing_off():
    assert learnt().prefill_limit(8, 1, 0) is None


def test_the_first_step_with_decoding_rows_is_measured_alone():
    """A limit needs to know what decoding costs, and one step without the prompt tells it."""
    speed = MeasuredSpeed()
    speed.note_step(100, 0, step_s(100, 0))
    assert speed.prefill_limit(8, 1, SLOWDOWN) == 0
    speed.note_step(0, 8, step_s(0, 8))
    assert speed.prefill_limit(8, 1, SLOWDOWN) not in (None, 0)


def test_a_long_prompt_keeps_every_step_within_the_slowdown():
    """From its first chunk on: the speed of prompts is known from the requests before it."""
    times = pace(learnt(), 4000)
    assert max(times) <= SLOWDOWN * step_s(0, 8)


def test_the_allowance_is_used():
    """Steps are not shorter than they must be: the prompt is done as early as the bound allows."""
    times = pace(learnt(), 4000)
    assert sorted(times)[len(times) // 2] > 0.85 * SLOWDOWN * step_s(0, 8)


def test_growing_attention_is_followed():
    """The last tokens of this prompt cost three times as much as the first ones."""
    num_done = 0

    def machine(chunk: int, num_rows: int) -> float:
        nonlocal num_done
        num_done += chunk
        return step_s(chunk, num_rows, token_s=0.001 * (1 + num_done / 2000))

    assert max(pace(learnt(), 4000, machine=machine)) <= 1.1 * SLOWDOWN * step_s(0, 8)


def test_decoding_is_measured_again_now_and_then_beside_a_long_prompt():
    """Its own cost changes meanwhile; a step in 64 is given to measuring it."""
    speed, num_alone = learnt(), 0
    for _ in range(640):
        chunk = speed.prefill_limit(8, 1, SLOWDOWN)
        assert chunk is not None
        num_alone += chunk == 0
        speed.note_step(chunk, 8, step_s(chunk, 8))
    assert 9 <= num_alone <= 10


@given(st.lists(st.integers(1, 200), min_size=1, max_size=200))
def test_a_prompt_progresses_whatever_happens_to_the_rows(rows: list[int]):
    """Steps that only measure are never close together, though each number of rows is new."""
    speed = learnt()
    limits = []
    for num_rows in rows:
        limits.append(speed.prefill_limit(num_rows, 1, SLOWDOWN))
        speed.note_step(limits[-1] or 0, num_rows, step_s(limits[-1] or 0, num_rows))
    assert all(limit == 0 or limit is None or limit >= MIN_CHUNK for limit in limits)
    assert limits.count(0) <= 1 + len(rows) // 32


def test_a_prompt_progresses_on_a_machine_too_slow_for_the_bound():
    speed = learnt()
    for _ in range(9):
        speed.note_step(MIN_CHUNK, 8, 10.0)
    assert speed.prefill_limit(8, 1, SLOWDOWN) == MIN_CHUNK


def test_one_hiccup_counts_nothing_and_a_lasting_change_counts_soon():
    median = RecentMedian()
    for sample in (1.0, 1.0, 1.0, 50.0):
        median.add(sample)
    assert median.value == 1.0
    for _ in range(3):
        median.add(2.0)
    assert median.value == 2.0


def test_a_step_faster_than_decoding_alone_does_not_lift_the_limit_at_once():
    """Noise can make a mixed step look free; believing it would cost one very long step."""
    speed = learnt()
    pace(speed, 500)
    before = speed.prefill_limit(8, 1, SLOWDOWN)
    speed.note_step(8, 8, 0.5 * step_s(0, 8))
    speed.note_step(8, 8, 0.5 * step_s(0, 8))
    speed.note_step(8, 8, 0.5 * step_s(0, 8))
    after = speed.prefill_limit(8, 1, SLOWDOWN)
    assert before is not None
    assert after is not None
    assert after <= 2 * before + MIN_CHUNK


def test_a_backlog_is_computed_at_full_speed():
    """The more requests wait for each decoding one, the longer a step may take."""
    speed = learnt()
    limits = [speed.prefill_limit(8, stalled, SLOWDOWN) or 0 for stalled in (1, 8, 16, 800)]
    assert limits[0] == limits[1] < limits[2] < limits[3]
    assert limits[3] > 512


def test_decode_speed_between_and_beyond_measured_numbers_of_rows():
    speed = MeasuredSpeed()
    assert speed.decode_step_s(8) is None
    speed.note_step(0, 4, 0.010)
    speed.note_step(0, 8, 0.020)
    assert speed.decode_step_s(6) == pytest.approx(0.015)
    assert speed.decode_step_s(64) == 0.020
    assert speed.decode_step_s(2) == pytest.approx(0.0075)


def test_moves_of_blocks_are_measured_apart():
    speed = learnt()
    decode_s = speed.decode_step_s(8)
    speed.note_step(0, 8, 9.0, num_moved_blocks=4, swap_s=8.0)
    assert speed.block_s == 2.0
    assert speed.decode_step_s(8) == decode_s


def test_steps_without_a_time_teach_nothing():
    """A scripted executor takes no time."""
    speed = MeasuredSpeed()
    speed.note_step(100, 0, 0.0)
    speed.note_step(0, 8, 0.0)
    assert speed.token_s is None
    assert speed.prefill_s(1000) == 0.0
    assert speed.prefill_limit(8, 1, SLOWDOWN) is None


def test_the_predicted_time_of_a_prompt_is_never_too_long():
    """It decides who is given up: of a step, only what the prompt added to it counts."""
    speed = learnt()
    speed.note_step(100, 8, step_s(100, 8))
    speed.note_step(100, 8, 2 * step_s(100, 8))
    assert speed.prefill_s(1000) == pytest.approx(1.0)


def test_short_prompts_say_nothing_about_the_time_of_a_long_one():
    """A step of two tokens takes 12 ms, and one of 600 tokens does not take 3.6 s."""
    speed = MeasuredSpeed()
    for num_tokens in (2, 3, 5, 9, 17, 31) * 2:
        speed.note_step(num_tokens, 0, step_s(num_tokens, 0))
    assert speed.prefill_s(600) <= 600 * 0.001
