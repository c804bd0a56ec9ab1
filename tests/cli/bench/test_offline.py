"""octavo bench latency and throughput on a scripted engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.bench import offline
from octavo.cli.bench.offline import reached, work_of
from octavo.cli.bench.roofs import Roofs, measure_roofs, step_ops
from octavo.cli.main import main
from octavo.engine.build import Engine
from octavo.foundation.clock import SystemClock
from octavo.llm import LLM
from octavo.sampling_params import SamplingParams
from tests.support.scripted_engine import scripted_engine

ROOFS = Roofs(read_gb_s=10.0, fp32_gop_s=50.0, bf16_gop_s=80.0, int8_gop_s=100.0)


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model, no probes."""

    def engine(*_: Any) -> Engine:
        return scripted_engine()

    monkeypatch.setattr(offline, "build_engine", engine)
    monkeypatch.setattr(offline, "measure_roofs", lambda threads: ROOFS)


def test_latency_writes_the_keys_of_vllm(tmp_path: Path) -> None:
    """As many latencies as iterations."""
    target = tmp_path / "latency.json"
    words = "--input-len 6 --output-len 4 --batch-size 3 --num-iters 4 --num-iters-warmup 1"

    assert 0 == main(["bench", "latency", *words.split(), "--output-json", str(target)])

    found = json.loads(target.read_text())
    assert 4 == len(found["latencies"])
    assert found["avg_latency"] == pytest.approx(sum(found["latencies"]) / 4)
    assert ["10", "25", "50", "75", "90", "99"] == list(found["percentiles"])
    assert found["percentiles"]["99"] <= max(found["latencies"])


def test_latency_of_a_beam_search_is_measured_too(capsys: pytest.CaptureFixture[str]) -> None:
    """With as many beams as --n says."""
    words = "--input-len 6 --output-len 4 --batch-size 2 --n 2 --num-iters 1 --num-iters-warmup 0"

    assert 0 == main(["bench", "latency", "--use-beam-search", *words.split()])
    assert "Avg latency:" in capsys.readouterr().out


def test_throughput_counts_prompts_and_answers(tmp_path: Path) -> None:
    """Answers have their full length."""
    target = tmp_path / "throughput.json"
    words = "--random-input-len 10 --random-output-len 5 --num-prompts 6 --n 2"

    assert 0 == main(["bench", "throughput", *words.split(), "--output-json", str(target)])

    found = json.loads(target.read_text())
    assert (60, 60, 120) == tuple(
        found[name] for name in ("total_input_tokens", "total_output_tokens", "total_num_tokens")
    )
    assert found["tokens_per_second"] == pytest.approx(120 / found["elapsed_time"])
    assert found["requests_per_second"] == pytest.approx(6 / found["elapsed_time"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("latency --input-len 0", "--input-len must be at least 1"),
        ("latency --input-len 200 --output-len 100", "--max-model-len"),
        ("throughput --random-input-len 300", "--max-model-len"),
        ("throughput --dataset-name custom", "--dataset-path"),
        ("throughput --num-prompts 0", "--num-prompts"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and the flag to change."""
    assert 2 == main(["bench", *words.split()])
    assert message in capsys.readouterr().err


def test_shares_of_the_roofs_follow_from_the_steps() -> None:
    """One prompt of 8 tokens and 4 answer tokens: 4 steps over 11 tokens with 4 rows of logits."""
    engine = scripted_engine()
    llm = LLM.from_engine(engine, SystemClock())
    before = work_of(engine)
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    llm.generate([{"prompt_token_ids": list(range(5, 13))}], params, use_tqdm=False)

    found = reached(engine, ROOFS, before, 2.0)

    assert found["read_gb_s"] == 4 * engine.memory_plan.weights_bytes / 2.0 / 1e9
    assert found["gop_s"] == pytest.approx(step_ops(engine.facts, 11, 4) / 2.0 / 1e9)
    assert found["gop_share"] == pytest.approx(found["gop_s"] / ROOFS.fp32_gop_s)


def test_operations_of_a_step_are_those_of_its_matrices() -> None:
    """Tiny model: q, k, v, o of 8 x 8, three matrices of 8 x 16, and the head."""
    facts = scripted_engine().facts

    layer = 4 * 8 * 8 + 3 * 8 * 16
    assert 2 * 5 * layer == step_ops(facts, 5, 0)
    assert 2 * 8 * facts.vocab_size == step_ops(facts, 0, 1)


def test_the_probes_find_a_machine() -> None:
    """All rates are above nothing."""
    roofs = measure_roofs(1)

    assert min(roofs.read_gb_s, roofs.fp32_gop_s, roofs.bf16_gop_s, roofs.int8_gop_s) > 0
    assert "GB/s" in roofs.line()
