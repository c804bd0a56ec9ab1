"""The two small measurements, on engines without a model."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from benchmarks import load_time, long_prompt, resident_memory, scheduler_cost, speculation
from benchmarks.long_prompt import Shape, measure, run
from benchmarks.record import quantile, spread
from benchmarks.scheduler_cost import measure_caching, step_costs
from octavo.config.engine import SchedulerConfig
from octavo.contracts.step import StepPlan
from tests.benchmarks.support import engine_machine, entry
from tests.support.data import smollm2_path
from tests.support.scripted_engine import scripted_async_llm

SHAPE = Shape(
    num_decoding=3,
    decoding_prompt_len=4,
    long_prompt_len=100,
    decoding_len=40,
    tokens_before=3,
)
SLOW_PROMPTS = {"max_num_batched_tokens": 16}


def take_a_moment(_plan: StepPlan) -> None:
    """What a step of a real engine takes, so that readers see its tokens apart."""
    time.sleep(0.002)


def test_a_step_of_all_requests_decoding_is_what_is_measured() -> None:
    """As many times as steps; the assertion inside refuses any other step."""
    costs = step_costs(8, 20, has_prefix_caching=True)

    assert 20 == len(costs)
    assert all(cost > 0 for cost in costs)


def test_caching_is_compared_on_prompts_that_share_nothing() -> None:
    """A hit would raise. The tiny vocabulary has room for few different prompts."""
    machine = engine_machine()
    try:
        found = measure_caching(
            machine,
            SchedulerConfig(max_num_seqs=2, max_num_batched_tokens=64),
            entry(prompt_len=17, output_len=3),
            num_rounds=2,
        )
    finally:
        machine.close()

    assert found["tokens_per_s_on"]["min"] > 0
    assert found["cost_percent"]["min"] < 100


async def test_a_quiet_run_has_every_gap_of_every_request() -> None:
    """After the tokens that do not count, all decode side by side."""
    engine = scripted_async_llm(before_run=take_a_moment)
    try:
        quiet = await run(engine, SHAPE, 0, disturbs=False)
    finally:
        await engine.shutdown()

    assert 0 < len(quiet.gaps) <= SHAPE.num_decoding * SHAPE.decoding_len
    assert all(gap >= 0 for gap in quiet.gaps)


async def test_a_disturbed_run_is_over_when_all_have_ended() -> None:
    """The prompt has its first token, and the engine is empty."""
    engine = scripted_async_llm(scheduler=SLOW_PROMPTS, before_run=take_a_moment)
    try:
        disturbed = await run(engine, SHAPE, 1, disturbs=True)
        stats = await engine.stats()
    finally:
        await engine.shutdown()

    assert disturbed.first_token_s > 0
    assert len(disturbed.gaps) > SHAPE.num_decoding
    assert 0 == stats.num_running


async def test_rounds_are_summed_up() -> None:
    """Ratios are taken round by round."""
    engine = scripted_async_llm(scheduler=SLOW_PROMPTS, before_run=take_a_moment)
    try:
        found = await asyncio.wait_for(measure(engine, SHAPE, 2), 60)
    finally:
        await engine.shutdown()

    assert found["p99_over_quiet_median"]["min"] > 0
    assert found["quiet_median_ms"]["min"] <= found["quiet_median_ms"]["max"]


def test_the_command_for_step_costs_writes_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All six settings."""
    out = tmp_path / "cost.json"

    scheduler_cost.main(f"--parts steps --steps 3 --rounds 1 --out {out}".split())

    assert 6 == len(json.loads(out.read_text())["steps"])
    assert "256 decoding" in capsys.readouterr().out


def test_the_help_of_the_long_prompt_says_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Rounds, prompt and requests can be changed."""
    with pytest.raises(SystemExit):
        long_prompt.main(["--help"])

    assert "--prompt-len" in capsys.readouterr().out


def test_quantiles_and_spreads() -> None:
    """The smallest value that enough values do not exceed."""
    values = [float(number) for number in range(1, 101)]

    assert (50.0, 99.0, 100.0) == tuple(quantile(values, share) for share in (0.5, 0.99, 1.0))
    assert 0.0 == quantile([], 0.5)
    assert {"median": 2.0, "min": 1.0, "max": 3.0} == spread([3.0, 1.0, 2.0])


def test_speculation_is_compared_on_the_same_answers(tmp_path: Path) -> None:
    """Both engines compute the same tokens, and only one of them drafts."""
    out = tmp_path / "found.json"
    options = ["--rounds", "1", "--tokens", "12", "--batches", "1", "--out", str(out)]
    speculation.main(["--model", str(smollm2_path()), *options])

    copy, chat = json.loads(out.read_text())["results"]
    assert (copy["kind"], chat["kind"]) == ("copy", "chat")
    assert copy["off"]["drafted"]["max"] == 0
    assert copy["on"]["num_steps"]["max"] <= copy["off"]["num_steps"]["max"]
    assert copy["on"]["tokens_per_s"]["min"] > 0


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="memory is counted by Linux")
def test_a_load_is_measured_from_the_start_of_a_process(tmp_path: Path) -> None:
    """Once without the file in the page cache, once with it; the peak is near what stays."""
    words = ["--model", str(smollm2_path()), "--runs", "1", "--out", str(tmp_path / "load.json")]

    assert load_time.main(words) == 0

    found = json.loads((tmp_path / "load.json").read_text(encoding="utf-8"))
    for kind in ("cold", "warm"):
        median = {name: entry["median"] for name, entry in found[kind].items()}
        assert median["first_token_ms"] > median["load_ms"] > median["pack_ms"] > 0
        assert 1 <= median["peak_by_resident"] < load_time.MOST
    assert found["serve"]["answer_ms"]["median"] > found["warm"]["load_ms"]["median"]


def test_what_is_resident_is_weights_keys_and_values_and_a_rest(tmp_path: Path) -> None:
    """The pool has been written, the rest is all that is left; too large a rest is exit code 1."""
    out = tmp_path / "resident.json"
    words = ["--model", str(smollm2_path()), "--out", str(out)]

    assert 1 == resident_memory.main([*words, "--most", "1"])

    found = json.loads(out.read_text())
    assert 30 < found["kv_mb"] < 35
    assert found["resident_mb"] - found["loaded_mb"] > 0.8 * found["kv_mb"]
    beside = found["weights_mb"] + found["kv_mb"]
    for kind in ("", "server_"):
        resident, rest = found[f"{kind}resident_mb"], found[f"{kind}rest_mb"]
        assert beside + rest == pytest.approx(resident, abs=0.2)
        assert found["workspace_mb"] < rest < 100
    assert 1 < found["libraries_mb"] < found["rest_mb"]
    assert not found["is_met"]
