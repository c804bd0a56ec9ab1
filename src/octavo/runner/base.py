"""The contract of a runner: one model on one device, with the state of its rows.

A runner comes to life in two moves, so that a model that does not fit is refused before its weights
are read: the constructor looks every tensor up and says how much memory is needed; `allocate` reads
the weights and makes the KV pool and the host slots as the memory plan decided in between.
"""

from __future__ import annotations

from typing import Protocol

from octavo.config.engine import EngineConfig
from octavo.contracts.kv_plan import MemoryNeeds, MemoryPlan
from octavo.contracts.progress import ReportProgress
from octavo.contracts.step import StepPlan, StepResult
from octavo.weights.checkpoint import Checkpoint


class Runner(Protocol):
    """Runs plans in order. Reads `max_num_seqs`, `max_num_batched_tokens`, block size and types."""

    def __init__(self, config: EngineConfig, checkpoint: Checkpoint) -> None:
        """Build the model. Reads names, shapes and small vectors, no matrices.

        Raises ModelFileError, or ConfigError for an option that this runner cannot serve.
        """

    @property
    def needs(self) -> MemoryNeeds:
        """Known after construction, for the memory plan."""

    def allocate(self, plan: MemoryPlan, report: ReportProgress) -> None:
        """Read the weights and make the KV pool. Once, before the first `run`."""

    def run(self, plan: StepPlan) -> StepResult:
        """Run one step; returns when its tokens are known. A fault of one row is in `errors`."""

    @property
    def compute_s(self) -> float:
        """Seconds spent computing so far."""

    @property
    def kv_fingerprint(self) -> str:
        """All that the bytes of a KV block depend on, besides tokens and weights.

        After `allocate`. Equal lines, in whatever process: equal bytes.
        """

    def host_slot(self, slot: int) -> memoryview:
        """The writable bytes of a host slot, which they keep alive. After `allocate`.

        They may be used by another thread while steps run that do not name the slot.
        """

    def describe(self) -> str:
        """Device and types in a few words. After `allocate`."""

    def close(self) -> None:
        """Give threads and memory back. May be called twice."""
