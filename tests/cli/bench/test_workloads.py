"""octavo bench on a scripted engine: which steps count, and what is no result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.cli.bench import workloads
from octavo.cli.bench.roofs import Roofs
from octavo.cli.bench.workloads import Workload, measure
from octavo.cli.main import main
from octavo.engine.build import Engine
from octavo.errors import RequestFailedError
from tests.support.scripted_engine import scripted_engine

ROOFS = Roofs(read_gb_s=10.0, fp32_gop_s=50.0, bf16_gop_s=80.0, int8_gop_s=100.0)
BATCH = Workload("batch 8", 8, 16, 4)


def test_a_batch_larger_than_the_engine_takes_is_measured_in_parts() -> None:
    """The steps that count are the fullest that there were."""
    engine = scripted_engine(scheduler={"max_num_seqs": 3})

    result = measure(engine, BATCH, num_runs=1, roofs=ROOFS)

    assert (result.num_requests, len(result.runs_s)) == (8, 1)
    assert result.new_tokens_per_s > 0


def test_a_failed_request_is_no_result() -> None:
    """A rate of tokens that were never made would be a lie."""
    engine = scripted_engine(on_executor=lambda executor: executor.fail_run(RuntimeError("broken")))

    with pytest.raises(RequestFailedError, match="broken"):
        measure(engine, BATCH, num_runs=1, roofs=ROOFS)


def test_rates_follow_from_the_runs() -> None:
    """The run that warms up is not among them."""
    engine = scripted_engine()
    try:
        result = measure(engine, Workload("four", 4, 16, 8), num_runs=3, roofs=ROOFS)
        assert not engine.core.has_work()
    finally:
        engine.core.stop()

    assert len(result.runs_s) == 3
    assert result.new_tokens_per_s > 0
    assert result.prompt_tokens_per_s == pytest.approx(2 * result.new_tokens_per_s)
    assert 0 < result.python_step_ms <= result.step_ms


def test_the_command_prints_a_table_and_writes_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One row a workload, in both."""
    monkeypatch.setattr(workloads, "WORKLOADS", (Workload("tiny", 2, 4, 3),))

    def engine(*_: object) -> Engine:
        return scripted_engine()

    monkeypatch.setattr(workloads, "build_engine", engine)
    target = tmp_path / "results.json"

    assert main(["bench", "--runs", "1", "--json", str(target)]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[-2].startswith("tiny ")
    assert table[-1] == f"written to {target}"
    document = json.loads(target.read_text())
    assert document["model"] == "tiny"
    (row,) = document["results"]
    assert (row["name"], row["num_requests"], row["new_len"]) == ("tiny", 2, 3)
