"""The policies by name, each as a core on any executor.

| Name | Batching | Slots of a request |
|---|---|---|
| static | batches that run until their last request ends | the longest possible sequence |
| orca-max | every step | the longest possible sequence |
| orca-pow2 | every step | the prompt and the next power of two of the answer's length |
| orca-oracle | every step | the exact final length, known in advance |
| paged | every step | a block at a time (Octavo as it is) |

Names with `-first-fit` cut holes to size instead of rounding to powers of two (buddy), which is
kinder than what the paper assumes for Orca.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.drive import Core
from benchmarks.kv_meter import KVMeter
from benchmarks.serving_policies.contiguous import ContiguousScheduler
from benchmarks.serving_policies.slot_ranges import Buddy, FirstFit, SlotRanges
from octavo.config.engine import CacheConfig, EngineConfig, SchedulerConfig
from octavo.contracts.delta import TokenDelta
from octavo.contracts.kv_plan import MemoryPlan
from octavo.contracts.request import EngineRequest
from octavo.engine.build import start_core
from octavo.executor.base import Executor
from octavo.foundation.clock import Clock

PAGED = "paged"


@dataclass(frozen=True, slots=True)
class ContiguousPolicy:
    """What distinguishes the contiguous policies."""

    reserve: Callable[[EngineRequest, int], int]  # (request, longest sequence) -> slots
    make_ranges: Callable[[int], SlotRanges]
    has_static_batches: bool = False


def _longest(request: EngineRequest, max_model_len: int) -> int:
    return max_model_len


def _power_of_two(request: EngineRequest, max_model_len: int) -> int:
    answer = 1 << (request.max_tokens - 1).bit_length()
    return min(len(request.prompt_token_ids) + answer, max_model_len)


def _exact(request: EngineRequest, max_model_len: int) -> int:
    """The last token of an answer is never computed."""
    return max(len(request.prompt_token_ids) + request.max_tokens - 1, 1)


CONTIGUOUS = {
    "static": ContiguousPolicy(_longest, FirstFit, has_static_batches=True),
    "orca-max": ContiguousPolicy(_longest, FirstFit),
    "orca-pow2": ContiguousPolicy(_power_of_two, Buddy),
    "orca-oracle": ContiguousPolicy(_exact, Buddy),
    "orca-pow2-first-fit": ContiguousPolicy(_power_of_two, FirstFit),
    "orca-oracle-first-fit": ContiguousPolicy(_exact, FirstFit),
}
POLICIES = (*CONTIGUOUS, PAGED)


class ContiguousCore:
    """A contiguous scheduler on an executor, seen as an engine core."""

    def __init__(self, scheduler: ContiguousScheduler, executor: Executor, meter: KVMeter) -> None:
        self._scheduler = scheduler
        self._executor = executor
        self._meter = meter

    def add_request(self, request: EngineRequest) -> None:
        """See `Core`."""
        self._scheduler.add(request)

    def has_work(self) -> bool:
        """See `Core`."""
        return self._scheduler.has_work()

    def step(self) -> list[TokenDelta]:
        """See `Core`."""
        plan = self._scheduler.plan()
        self._meter.num_lost_blocks = self._scheduler.num_lost_blocks
        return self._scheduler.commit(plan, self._executor.run(plan))


def make_core(
    policy: str,
    config: SchedulerConfig,
    cache: CacheConfig,
    executor: Executor,
    clock: Clock,
    meter: KVMeter,
) -> Core:
    """A core that decides by `policy`. Raises ValueError for a name that is none."""
    if policy == PAGED:
        engine_config = EngineConfig(scheduler=config, cache=cache)
        return start_core(engine_config, executor, clock, _ignore)
    if policy not in CONTIGUOUS:
        raise ValueError(f"no policy {policy!r}; choose from {', '.join(POLICIES)}")
    memory_plan = executor.start(_ignore)
    scheduler = contiguous_scheduler(CONTIGUOUS[policy], config, memory_plan)
    return ContiguousCore(scheduler, executor, meter)


def contiguous_scheduler(
    policy: ContiguousPolicy, config: SchedulerConfig, memory_plan: MemoryPlan
) -> ContiguousScheduler:
    """A scheduler of a contiguous policy for one pool."""
    max_model_len = memory_plan.max_model_len
    return ContiguousScheduler(
        memory_plan.kv,
        policy.make_ranges(memory_plan.kv.num_blocks),
        lambda request: policy.reserve(request, max_model_len),
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        has_static_batches=policy.has_static_batches,
    )


def _ignore(phase: str, share: float) -> None:
    """Progress that nobody watches."""
