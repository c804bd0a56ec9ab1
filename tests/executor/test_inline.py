"""The inline executor: from a configuration and a checkpoint to steps."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan
from octavo.errors import ConfigError, DoesNotFitError, EngineDeadError
from octavo.executor.inline import InlineExecutor
from octavo.executor.registry import RUNNERS
from tests.support.random_checkpoint import RandomCheckpoint, tiny_facts

PLAN = StepPlan(
    step_id=7,
    new_rows=[
        NewRow(
            row=0,
            request_id="a",
            token_ids=[3, 1, 4, 1, 5],
            num_prompt_tokens=5,
            num_computed_tokens=0,
            block_ids=[[0]],
            sampling=SamplingSpec(),
        )
    ],
    rows=[0],
    num_tokens=[5],
    samples=[True],
)


def make_config(backend: str = "native", **cache: Any) -> EngineConfig:
    return EngineConfig(
        model=ModelConfig(backend=backend, threads=1),
        cache=CacheConfig(num_gpu_blocks_override=16, kv_cache_dtype="float32", **cache),
        scheduler=SchedulerConfig(max_num_seqs=2, max_num_batched_tokens=64),
    )


def ignore(phase: str, share: float) -> None:
    """Progress that nobody watches."""


@pytest.mark.parametrize("backend", list(RUNNERS))
def test_every_backend_starts_with_a_memory_plan_and_runs_steps(backend: str) -> None:
    """Both draw the same greedy token from the same weights."""
    executor = InlineExecutor(make_config(backend), RandomCheckpoint())
    reports: list[tuple[str, float]] = []
    plan = executor.start(lambda phase, share: reports.append((phase, share)))
    result = executor.run(PLAN)
    executor.stop()
    reference = InlineExecutor(make_config(), RandomCheckpoint())
    reference.start(ignore)

    assert 16 == plan.kv.num_blocks
    assert 256 == plan.max_model_len
    assert ("weights", 1.0) == reports[-1]
    assert reference.run(PLAN) == result


def test_what_does_not_fit_is_refused_before_the_weights_are_read() -> None:
    """No report of progress comes before the refusal."""
    reports: list[float] = []
    executor = InlineExecutor(make_config(), RandomCheckpoint(tiny_facts(max_position=1 << 20)))

    with pytest.raises(DoesNotFitError, match="--max-model-len"):
        executor.start(lambda phase, share: reports.append(share))
    assert [] == reports


def test_a_stopped_executor_runs_nothing_and_may_be_stopped_again() -> None:
    """Also one that never started."""
    executor = InlineExecutor(make_config(), RandomCheckpoint())
    executor.stop()
    executor.start(ignore)
    executor.stop()
    executor.stop()

    with pytest.raises(EngineDeadError):
        executor.run(PLAN)


@pytest.mark.parametrize(
    ("backend", "module", "advice"),
    [("native", "octavo._native", "scripts/build"), ("torch", "torch", r"octavo\[torch\]")],
)
def test_a_back_end_that_is_not_installed_says_how_to_get_it(
    backend: str, module: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one sentence, instead of an import error."""
    hidden = [name for name in sys.modules if name.startswith(("octavo.backends", "octavo.runner"))]
    for name in hidden:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(ConfigError, match=advice):
        InlineExecutor(make_config(backend), RandomCheckpoint()).start(ignore)
