"""The simulator: real decisions on virtual time."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from benchmarks.cost_model import MeasuredStep
from benchmarks.simulator.__main__ import main
from benchmarks.simulator.fit import fit_usable, record_steps
from benchmarks.simulator.simulate import simulate
from octavo.config.engine import CacheConfig, SchedulerConfig
from tests.benchmarks.support import FLAT, SCHEDULER, engine_machine, entry, virtual_machine


def test_a_simulation_takes_virtual_time_and_counts_everything() -> None:
    """One second a step."""
    trace = [entry(0.0), entry(0.0, output_len=9), entry(20.0)]

    found = simulate(trace, virtual_machine(), SCHEDULER, CacheConfig())

    assert 3 == found.requests["num_requests"]
    assert 26.0 == found.requests["duration_s"]
    assert 15 == found.engine["num_steps"]
    assert 15.0 == pytest.approx(found.engine["compute_s"])


def test_a_small_pool_preempts_and_still_ends_every_request() -> None:
    """Ten requests of 46 tokens on 128 slots."""
    trace = [entry(0.0, prompt_len=6, output_len=40) for _ in range(10)]

    found = simulate(trace, virtual_machine(), SCHEDULER, CacheConfig())

    assert 10 == found.requests["num_requests"]
    assert 0 < found.engine["num_preemptions"]
    assert found.engine["num_preemptions"] == found.requests["num_preemptions"]


def test_a_shared_prefix_is_found_in_the_cache() -> None:
    """All requests but the first begin with 32 tokens that are there."""
    trace = [entry(10.0 * i, prompt_len=40, prefix_len=32) for i in range(5)]

    found = simulate(trace, virtual_machine(), SCHEDULER, CacheConfig())

    assert 4 * 32 / (5 * 40) == pytest.approx(found.engine["prefix_hit_rate"])


def test_priorities_of_the_trace_reach_the_scheduler() -> None:
    """One at a time: the better one, which came later, is first of those that wait."""
    trace = [entry(0.0), entry(0.1, priority=5), entry(0.2, output_len=3)]
    one_by_one = SchedulerConfig(
        max_num_seqs=1, max_num_batched_tokens=64, scheduling_policy="priority"
    )

    found = simulate(trace, virtual_machine(), one_by_one, CacheConfig())

    assert 15 - 0.1 == pytest.approx(found.requests["latency_p99_s"])


def test_steps_of_a_real_engine_are_recorded_with_their_size() -> None:
    """Rows, tokens and context of a tiny model."""
    machine = engine_machine()
    try:
        steps = record_steps(
            machine, SCHEDULER, rates=[1000.0], num_requests=6, workload="instruct"
        )
    finally:
        machine.close()

    assert 6 == max(step.num_rows for step in steps)
    assert all(step.num_tokens >= step.num_rows for step in steps)
    assert all(step.num_context_tokens >= step.num_tokens for step in steps)
    assert all(step.seconds > 0 for step in steps)


def test_warm_up_and_outliers_do_not_spoil_a_fit() -> None:
    """Twenty slow steps at the start, and one in a hundred later."""
    steps = [MeasuredStep(9.0, 1, 1, 10)] * 20
    for number in range(1, 401):
        seconds = 1.0 if number % 100 == 0 else 0.01 + 0.001 * number
        steps.append(MeasuredStep(seconds, number, 1 + number % 7, 13 * number % 501))

    found = fit_usable(steps, "a test")

    assert 396 == found.num_steps
    assert 0.01 == pytest.approx(found.model.base_s)
    assert 0.001 == pytest.approx(found.model.token_s)


def test_swapping_is_never_free(tmp_path: Path) -> None:
    """A fitted cost model knows nothing of moved blocks."""
    path = tmp_path / "cost.json"
    path.write_bytes(msgspec.json.encode(FLAT))
    flags = f"--cost-model {path} --workload instruct --num-requests 3 --host-slots 8"

    with pytest.raises(ValueError, match="give --moved-block-s"):
        main(flags.split())
    main(f"{flags} --moved-block-s 0.01 --preemption-mode swap".split())


def test_the_command_writes_a_trace_simulates_it_and_writes_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a user does."""
    trace, out = tmp_path / "trace.jsonl", tmp_path / "out.json"
    main(f"--workload instruct --rate 5 --num-requests 40 --write-trace {trace}".split())

    main(f"--trace {trace} --blocks 200 --policy fair --out {out}".split())

    found = json.loads(out.read_text())
    shown = capsys.readouterr().out
    assert 40 == found["requests"]["num_requests"]
    assert "fair" == found["scheduler"]["scheduling_policy"]
    assert {"commit", "command", "wall_s"} <= set(found)
    for word in ("requests/s", "p99", "waste", "preemptions", "prefix hits", "simulated in"):
        assert word in shown
