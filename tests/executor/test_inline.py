"""The inline executor: from a configuration and a checkpoint to steps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from octavo.config.engine import (
    AUTO_LENGTH,
    CacheConfig,
    EngineConfig,
    ModelConfig,
    SchedulerConfig,
)
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan
from octavo.errors import ConfigError, DoesNotFitError, EngineDeadError
from octavo.executor.inline import InlineExecutor
from octavo.executor.registry import RUNNERS
from tests.support.imports import forget_modules
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
    expected = reference.run(PLAN)
    assert result.sample_s > 0
    expected.sample_s = result.sample_s  # the rest is no matter of time
    assert expected == result


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
    forget_modules(monkeypatch, "octavo.backends", "octavo.runner")
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(ConfigError, match=advice):
        InlineExecutor(make_config(backend), RandomCheckpoint()).start(ignore)


def test_there_is_no_tier_below_host_slots_unless_a_folder_is_named() -> None:
    """Neither before the start nor after it."""
    executor = InlineExecutor(make_config(), RandomCheckpoint())
    executor.start(ignore)

    assert executor.kv_tier() is None
    executor.stop()


KEY = bytes(range(36))


def start_with_tier(folder: Path, checkpoint: RandomCheckpoint, backend: str = "native") -> Any:
    executor = InlineExecutor(make_config(backend, kv_offload_dir=str(folder)), checkpoint)
    plan = executor.start(ignore)
    assert plan.kv.num_host_slots == 64
    tier = executor.kv_tier()
    assert tier is not None
    return executor, tier


@pytest.mark.parametrize("backend", list(RUNNERS))
def test_a_kept_block_comes_back_after_a_restart_bit_for_bit(backend: str, tmp_path: Path) -> None:
    """The prompt's block goes to disk; another engine continues from it as the first one does."""
    executor, tier = start_with_tier(tmp_path, RandomCheckpoint(), backend)
    executor.run(PLAN)
    executor.run(StepPlan(step_id=8, swap_out_from=[0], swap_out_to=[5], freed_rows=[0]))
    tier.store(KEY, 5)
    executor.stop()  # finishes writing
    executor, tier = start_with_tier(tmp_path, RandomCheckpoint(), backend)
    assert KEY in tier
    assert tier.load(KEY, 9)
    row = msgspec.structs.replace(PLAN.new_rows[0], num_computed_tokens=4, block_ids=[[3]])
    found = executor.run(
        StepPlan(
            step_id=1,
            new_rows=[row],
            swap_in_from=[9],
            swap_in_to=[3],
            rows=[0],
            num_tokens=[1],
            samples=[True],
        )
    )
    executor.stop()
    reference = InlineExecutor(make_config(backend), RandomCheckpoint())
    reference.start(ignore)

    assert reference.run(PLAN).sampled == found.sampled


@pytest.mark.parametrize(
    "other",
    [
        RandomCheckpoint(seed=2),
        RandomCheckpoint(tiny_facts(norm_eps=1e-6)),
        RandomCheckpoint(tiny_facts(sliding_windows=(9, 0))),
    ],
    ids=["weights", "arithmetic", "windows"],
)
def test_blocks_of_another_model_are_not_found(other: RandomCheckpoint, tmp_path: Path) -> None:
    """Nor lost: the first model finds its own again."""
    executor, tier = start_with_tier(tmp_path, RandomCheckpoint())
    tier.store(KEY, 5)
    executor.stop()
    executor, tier = start_with_tier(tmp_path, other)
    assert KEY not in tier
    executor.stop()
    executor, tier = start_with_tier(tmp_path, RandomCheckpoint())
    assert KEY in tier
    executor.stop()


@pytest.mark.parametrize(("enable_chunked_prefill", "expected"), [(True, 256), (False, 64)])
def test_a_context_of_auto_ends_where_a_whole_prompt_would_not_fit_a_step(
    enable_chunked_prefill: bool, expected: int
) -> None:
    config = EngineConfig(
        model=ModelConfig(threads=1, max_model_len=AUTO_LENGTH),
        cache=CacheConfig(num_gpu_blocks_override=16),
        scheduler=SchedulerConfig(
            max_num_batched_tokens=64, enable_chunked_prefill=enable_chunked_prefill
        ),
    )
    executor = InlineExecutor(config, RandomCheckpoint(tiny_facts(max_position=256)))

    plan = executor.start(ignore)
    executor.stop()

    assert plan.max_model_len == expected
