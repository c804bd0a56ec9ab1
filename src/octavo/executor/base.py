"""The contract between the engine core and whatever computes."""

from __future__ import annotations

from typing import Protocol

from octavo.contracts.kv_plan import MemoryPlan
from octavo.contracts.kv_tier import KVTier
from octavo.contracts.progress import ReportProgress
from octavo.contracts.step import StepPlan, StepResult


class Executor(Protocol):
    """Runs plans somewhere. `start` once, then `run` in order, `stop` at the end."""

    def start(self, report: ReportProgress) -> MemoryPlan:
        """Load the weights and make the KV pool.

        Raises ModelFileError, or DoesNotFitError with the numbers.
        """

    def run(self, plan: StepPlan) -> StepResult:
        """Run one step; returns when its tokens are known. A fault of one row is in `errors`."""

    @property
    def compute_s(self) -> float:
        """Seconds spent computing so far; the rest of the time in `run` is Python."""

    def kv_tier(self) -> KVTier | None:
        """The tier below host slots; None without one. After `start`, which also makes it.

        Its calls come from the thread that calls `run`; `stop` closes it.
        """

    def describe(self) -> str:
        """Where the model runs and in which types, for the start banner. After `start`."""

    def stop(self) -> None:
        """Give threads and memory back. May be called twice."""
