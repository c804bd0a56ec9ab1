"""InlineExecutor: the model runs in this process, in whatever thread calls `run`.

Owns the start: runner, memory plan, weights. Knows neither back end; the registry finds the runner.
"""

from __future__ import annotations

from octavo.config.engine import EngineConfig
from octavo.contracts.kv_plan import MemoryPlan
from octavo.contracts.progress import ReportProgress
from octavo.contracts.step import StepPlan, StepResult
from octavo.errors import ConfigError, EngineDeadError
from octavo.executor.registry import RUNNERS
from octavo.runner.base import Runner
from octavo.runner.memory_plan import plan_memory
from octavo.weights.checkpoint import Checkpoint

# What to do when a module that a back end is made of is not there.
_MISSING = {
    "octavo._native": "the native back end is not built; reinstall octavo, or run scripts/build in "
    "a source folder",
    "torch": "--backend torch needs PyTorch; install it with pip install 'octavo[torch]'",
}


class InlineExecutor:
    """An `Executor` of one rank."""

    def __init__(self, config: EngineConfig, checkpoint: Checkpoint) -> None:
        self._config = config
        self._checkpoint = checkpoint
        self._runner: Runner | None = None

    def start(self, report: ReportProgress) -> MemoryPlan:
        """See `Executor`. What does not fit is refused before the weights are read."""
        assert self._runner is None, "start() is called once"
        config, facts = self._config, self._checkpoint.facts
        runner = _runner_class(config.model.backend)(config, self._checkpoint)
        needs = runner.needs
        plan = plan_memory(
            model=config.model,
            cache=config.cache,
            max_position=facts.max_position,
            max_num_seqs=config.scheduler.max_num_seqs,
            weights_bytes=needs.weights_bytes,
            workspace_bytes=needs.workspace_bytes,
            bytes_per_block=needs.bytes_per_block,
        )
        runner.allocate(plan, report)
        self._runner = runner
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

    def describe(self) -> str:
        """See `Executor`."""
        assert self._runner is not None, "start() comes first"
        return self._runner.describe()

    def stop(self) -> None:
        """See `Executor`."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None


def _runner_class(backend: str) -> type[Runner]:
    try:
        return RUNNERS.load(backend)
    except ModuleNotFoundError as error:
        if error.name in _MISSING:
            raise ConfigError(_MISSING[error.name]) from error
        raise
