"""InlineExecutor: the model runs in this process, in whatever thread calls `run`.

Owns the start: runner, memory plan, weights, disk tier. Knows neither back end; the registry finds
the runner.
"""

from __future__ import annotations

from pathlib import Path

from octavo.config.engine import AUTO_LENGTH, EngineConfig, ModelConfig
from octavo.config.model_facts import ModelFacts
from octavo.contracts.kv_plan import MemoryPlan
from octavo.contracts.kv_tier import KVTier
from octavo.contracts.progress import ReportProgress
from octavo.contracts.step import StepPlan, StepResult
from octavo.errors import ConfigError, EngineDeadError
from octavo.executor.registry import FOREIGN_RUNNERS, RUNNERS, TIER
from octavo.runner.base import Runner
from octavo.runner.memory_plan import plan_memory
from octavo.weights.blame import about
from octavo.weights.checkpoint import Checkpoint

# What to do when a module that a back end is made of is not there.
_MISSING = {
    "octavo._native": "the native back end is not built; reinstall octavo, or run scripts/build in "
    "a source folder",
    "torch": "--backend torch needs PyTorch; install it with pip install 'octavo[torch]'",
}


def _longest(config: EngineConfig, facts: ModelFacts) -> int:
    """Tokens that the checkpoint promises; of which `auto` takes what a step can hold at once."""
    scheduler = config.scheduler
    if config.model.max_model_len == AUTO_LENGTH and not scheduler.enable_chunked_prefill:
        return min(facts.max_position, scheduler.max_num_batched_tokens)
    return facts.max_position


class InlineExecutor:
    """An `Executor` of one rank."""

    def __init__(self, config: EngineConfig, checkpoint: Checkpoint) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._runner: Runner | None = None
        self._tier: KVTier | None = None

    def start(self, report: ReportProgress) -> MemoryPlan:
        """See `Executor`. What does not fit is refused before the weights are read."""
        assert self._runner is None, "start() is called once"
        config, facts = self._config, self._checkpoint.facts
        if (folder := self._offload_folder()) is not None:
            TIER.load("check")(folder)
        where = self._checkpoint.where
        with about(where):
            runner = _runner_class(config.model)(config, self._checkpoint)
        plan = plan_memory(
            model=config.model,
            cache=config.cache,
            max_position=_longest(config, facts),
            max_num_seqs=config.scheduler.max_num_seqs,
            needs=runner.needs,
        )
        with about(where):
            runner.allocate(plan, report)
        self._runner = runner
        self._tier = self._make_tier(runner)
        return plan

    def run(self, plan: StepPlan) -> StepResult:
        """See `Executor`."""
        if self._runner is None:
            raise EngineDeadError("the executor is not running")
        return self._runner.run(plan)

    @property
    def compute_s(self) -> float:
        """See `Executor`."""
        return 0.0 if self._runner is None else self._runner.compute_s

    def kv_tier(self) -> KVTier | None:
        """See `Executor`."""
        return self._tier

    def describe(self) -> str:
        """See `Executor`."""
        assert self._runner is not None, "start() comes first"
        return self._runner.describe()

    def stop(self) -> None:
        """See `Executor`."""
        if self._tier is not None:
            self._tier.close()  # before the slots that it still writes away
            self._tier = None
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _make_tier(self, runner: Runner) -> KVTier | None:
        """The disk tier, for blocks of exactly these weights, types, layout and kernels."""
        folder = self._offload_folder()
        if folder is None:
            return None
        weights = TIER.load("fingerprint")(self._checkpoint.tensors)
        tier: KVTier = TIER.load("open")(
            folder,
            self._config.cache.max_offload_bytes,
            weights + runner.kv_fingerprint.encode(),
            runner.host_slot,
        )
        return tier

    def _offload_folder(self) -> Path | None:
        named = self._config.cache.kv_offload_dir
        return None if named is None else Path(named).expanduser()


def _runner_class(model: ModelConfig) -> type[Runner]:
    runners = FOREIGN_RUNNERS if model.model_impl == "transformers" else RUNNERS
    try:
        return runners.load(model.backend)
    except ModuleNotFoundError as error:
        if error.name in _MISSING:
            raise ConfigError(_MISSING[error.name]) from error
        raise
