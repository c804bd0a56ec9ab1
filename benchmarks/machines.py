"""Machines: what a run of a serving benchmark happens on.

    VirtualMachine   a pool of any size and a cost model; a run takes as long as its Python takes
    EngineMachine    the native engine on this machine, in real time; the model is loaded once

Both give out the parts of one run: an executor, a meter, a clock that can wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from benchmarks.cost_model import CostModel
from benchmarks.drive import Pacer, RealPacer, VirtualPacer
from benchmarks.executors import CostExecutor, WatchedExecutor
from benchmarks.kv_meter import FinalLength, KVMeter
from octavo.config.engine import EngineConfig
from octavo.contracts.kv_plan import KVPlan
from octavo.executor.base import Executor
from octavo.executor.inline import InlineExecutor
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.source import open_checkpoint

VIRTUAL_VOCABULARY = 1 << 30  # enough for prompts that are all different


@dataclass(frozen=True, slots=True)
class RunParts:
    """What one run needs, made for it alone."""

    executor: Executor
    meter: KVMeter
    pacer: Pacer


class Machine(Protocol):
    """Somewhere to run."""

    kv_plan: KVPlan
    max_model_len: int
    vocab_size: int

    def parts(self, final_len: FinalLength) -> RunParts:
        """The parts of a new run; the run before it is over."""

    def describe(self) -> str:
        """For people. Also after `close`."""

    def close(self) -> None:
        """Give memory back."""


class VirtualMachine:
    """A `Machine` that computes nothing."""

    vocab_size = VIRTUAL_VOCABULARY

    def __init__(self, cost: CostModel, kv_plan: KVPlan, max_model_len: int) -> None:
        self.kv_plan = kv_plan
        self.max_model_len = max_model_len
        self._cost = cost

    def parts(self, final_len: FinalLength) -> RunParts:
        """See `Machine`."""
        meter, pacer = KVMeter(self.kv_plan, final_len), VirtualPacer()
        executor = CostExecutor(
            self._cost, self.kv_plan, pacer, meter, max_model_len=self.max_model_len
        )
        return RunParts(executor, meter, pacer)

    def describe(self) -> str:
        """See `Machine`."""
        return f"virtual time; {self._cost.origin}"

    def close(self) -> None:
        """See `Machine`."""


class EngineMachine:
    """A `Machine` that is this one."""

    def __init__(self, config: EngineConfig, checkpoint: Checkpoint | None = None) -> None:
        """Load the model. Raises what loading raises."""
        checkpoint = checkpoint or open_checkpoint(config.model.model)
        self._executor = InlineExecutor(config, checkpoint)
        memory_plan = self._executor.start(lambda phase, share: None)
        self.watched = WatchedExecutor(self._executor, memory_plan)
        self.kv_plan = memory_plan.kv
        self.max_model_len = memory_plan.max_model_len
        self.vocab_size = checkpoint.facts.vocab_size
        self._description = (
            f"this machine in real time; {checkpoint.name}, {self._executor.describe()}"
        )

    def parts(self, final_len: FinalLength) -> RunParts:
        """See `Machine`."""
        meter = KVMeter(self.kv_plan, final_len)
        self.watched.use_meter(meter)
        return RunParts(self.watched, meter, RealPacer())

    def describe(self) -> str:
        """See `Machine`."""
        return self._description

    def close(self) -> None:
        """See `Machine`."""
        self._executor.stop()
