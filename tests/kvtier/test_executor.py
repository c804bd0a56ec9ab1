"""The inline executor with --kv-offload-dir: its tier, and whose blocks it finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.engine.build import start_core
from octavo.errors import ConfigError
from octavo.executor.inline import InlineExecutor
from octavo.executor.registry import RUNNERS
from octavo.foundation.clock import SystemClock
from octavo.kvtier.kv_files import KVFiles
from tests.kvtier.slots import key
from tests.support.builders import make_request
from tests.support.random_checkpoint import RandomCheckpoint


def make_config(folder: Path | None, backend: str = "native", **cache: Any) -> EngineConfig:
    return EngineConfig(
        model=ModelConfig(backend=backend, threads=1, max_model_len=128),
        cache=CacheConfig(
            kv_offload_dir=str(folder) if folder else None,
            **({"num_gpu_blocks_override": 16, "kv_cache_dtype": "float32"} | cache),
        ),
        scheduler=SchedulerConfig(max_num_seqs=2, max_num_batched_tokens=64),
    )


def start(
    folder: Path | None, *, backend: str = "native", seed: int = 0, **cache: Any
) -> InlineExecutor:
    """A started executor of a tiny random model."""
    phases: list[str] = []
    config = make_config(folder, backend, **cache)
    executor = InlineExecutor(config, RandomCheckpoint(seed=seed))
    try:
        executor.start(lambda phase, share: phases.append(phase))
    except ConfigError:
        assert phases == [], "the weights were read before the folder was tried"
        raise
    return executor


def has_block(folder: Path, **options: Any) -> bool:
    """Whether an executor finds block 1 of the folder."""
    executor = start(folder, **options)
    found = key(1) in executor.kv_tier()
    executor.stop()
    return found


def test_without_the_flag_there_is_no_tier() -> None:
    executor = start(None)
    assert executor.kv_tier() is None
    executor.stop()


@pytest.mark.parametrize("backend", list(RUNNERS))
def test_the_same_model_finds_its_blocks_and_another_does_not(tmp_path: Path, backend: str) -> None:
    first = start(tmp_path, backend=backend)
    tier = first.kv_tier()
    assert isinstance(tier, KVFiles)
    tier.store(key(1), 0)
    first.stop()

    assert has_block(tmp_path, backend=backend)
    assert has_block(tmp_path, backend=backend, num_gpu_blocks_override=20)
    assert not has_block(tmp_path, backend=backend, seed=1)
    assert not has_block(tmp_path, backend=backend, block_size=16)
    assert not has_block(tmp_path, backend=backend, kv_cache_dtype="bfloat16")
    other = next(name for name in RUNNERS if name != backend)
    assert not has_block(tmp_path, backend=other)


def test_a_bad_folder_is_refused_before_the_weights_are_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with pytest.raises(ConfigError, match="--kv-offload-dir"):
        start(path)


def answers(folder: Path | None, backend: str) -> tuple[list[list[int]], int]:
    """What one engine, started and stopped, says to some prompts, and how much of them was cached.

    Prompts have nothing in common, so what is cached comes from disk.
    """
    config = make_config(folder, backend, block_size=8)
    executor = InlineExecutor(config, RandomCheckpoint())
    core = start_core(config, executor, SystemClock(), lambda phase, share: None)
    said: list[list[int]] = []
    for number in range(4):
        prompt = [(number * place) % 69 for place in range(40 + number)]
        core.add_request(make_request(str(number), prompt, max_tokens=8))
        said.append([])
        while core.has_work():
            for delta in core.step():
                assert delta.finish_reason in (None, "length")
                said[-1] += delta.token_ids
    stats = core.stats()
    assert stats.pool_hit_tokens < 10
    core.stop()
    return said, stats.prefix_hit_tokens


@pytest.mark.parametrize("backend", list(RUNNERS))
def test_an_engine_restored_from_disk_says_the_same(tmp_path: Path, backend: str) -> None:
    """The second start finds whole prompts; half of them were evicted, half saved at the end."""
    expected, _ = answers(None, backend)
    first, num_cached = answers(tmp_path, backend)
    assert num_cached < 10
    second, num_cached = answers(tmp_path, backend)
    assert num_cached >= 4 * 32
    assert expected == first == second
