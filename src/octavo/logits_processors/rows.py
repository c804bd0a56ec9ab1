"""The logits processors of a runner's rows: who has one, its tokens so far, and the calls.

Owns the buffer in which processors see logits. Does not know where logits come from: the sampler
fills the buffer, calls `process`, and reads it again. A row without a processor is not kept here.
"""

from __future__ import annotations

import inspect
import logging
from array import array
from functools import partial
from typing import Any

import msgspec

from octavo.config.engine import EngineConfig
from octavo.contracts.step import NewRow, StepPlan, StepResult
from octavo.logits_processors.base import AdapterLogitsProcessor
from octavo.logits_processors.loading import load_classes
from octavo.sampling_params import SamplingParams

logger = logging.getLogger(__name__)

BEFORE_PENALTIES, AFTER_TEMPERATURE = 1, 2  # bits of csrc/sampler.hpp's Stage
_WITH_PROMPT = 3  # arguments of a processor that is shown the prompt, too


class _Call(msgspec.Struct, frozen=True):
    """One processor of one row."""

    name: str  # of its class
    stage: int
    run: partial[Any]  # takes the logits


class _Row(msgspec.Struct, frozen=True):
    output_ids: list[int]  # grows with the row; the processors have the same list
    calls: list[_Call]
    stages: int  # bits of all calls


class RowProcessors:
    """The processors of one runner. The thread that runs its plans makes all calls."""

    def __init__(self, config: EngineConfig, vocab_size: int, *, device: str = "cpu") -> None:
        """Make the processors. Raises ConfigError for a class that cannot be loaded."""
        classes = load_classes(config.model.logits_processors)
        self._processors = [kind(config, device, False) for kind in classes]
        self._rows: dict[int, _Row] = {}
        self.scratch = array("f", bytes(4 * vocab_size if classes else 0))

    def __bool__(self) -> bool:
        return bool(self._processors)

    def begin(self, plan: StepPlan) -> tuple[list[int], list[int]]:
        """Forget freed rows and look at new ones: which rows to process, and at what stages."""
        for row in plan.freed_rows:
            self._rows.pop(row, None)
        for entry in plan.new_rows:
            if entry.sampling.processor_params is not None:
                self._add(entry)
        if not self._rows:
            return [], []
        rows = [
            row
            for row, samples in zip(plan.rows, plan.samples, strict=True)
            if samples and row in self._rows
        ]
        return rows, [self._rows[row].stages for row in rows]

    def stages_of(self, row: int) -> int:
        """Bits of the stages at which a row is processed; 0 for most."""
        entry = self._rows.get(row)
        return 0 if entry is None else entry.stages

    def process(self, row: int, stage: int) -> str | None:
        """Run the processors of a row on the logits in `scratch`. What went wrong, if anything."""
        view = memoryview(self.scratch)
        for call in self._rows[row].calls:
            if call.stage != stage:
                continue
            try:
                _store(call.run(view), view)
            except Exception as error:  # border: a processor is not ours, its request ends alone
                logger.exception("logits processor %s failed", call.name)
                return f"the logits processor {call.name} failed: {error!r}"
        return None

    def end(self, plan: StepPlan, result: StepResult) -> None:
        """Note the tokens that were drawn."""
        if not self._rows:
            return
        tokens, failed = iter(result.sampled), result.errors
        accepted = dict(zip(plan.draft_rows, result.accepted, strict=True))
        for row, samples in zip(plan.rows, plan.samples, strict=True):
            if not samples:
                continue
            token_id = next(tokens)
            for _ in range(accepted.get(row, 0)):  # of a row that has no processor
                next(tokens)
            if row in self._rows and row not in failed:
                self._rows[row].output_ids.append(token_id)

    def _add(self, entry: NewRow) -> None:
        prompt_ids = entry.token_ids[: entry.num_prompt_tokens]
        output_ids = entry.token_ids[entry.num_prompt_tokens :]
        params = SamplingParams(**(entry.sampling.processor_params or {}))
        calls = []
        for processor in self._processors:
            stage = AFTER_TEMPERATURE if processor.is_argmax_invariant() else BEFORE_PENALTIES
            if stage == AFTER_TEMPERATURE and not entry.sampling.temperature:
                continue
            name = type(processor).__name__
            try:
                run = _bound(processor, params, prompt_ids, output_ids)
            except Exception as error:  # border: see `process`
                logger.exception("logits processor %s cannot take a request", name)
                run = partial(_raise, error)
            if run is not None:
                calls.append(_Call(name, stage, run))
        if calls:
            stages = 0
            for call in calls:
                stages |= call.stage
            self._rows[entry.row] = _Row(output_ids, calls, stages)


def _bound(
    processor: AdapterLogitsProcessor,
    params: SamplingParams,
    prompt_ids: list[int],
    output_ids: list[int],
) -> partial[Any] | None:
    """The call of a processor for a request, short of the logits."""
    run = processor.new_req_logits_processor(params)
    if run is None:
        return None
    if len(inspect.signature(run).parameters) == _WITH_PROMPT:
        return partial(run, prompt_ids, output_ids)
    return partial(run, output_ids)


def _raise(error: Exception, _logits: memoryview) -> None:
    raise error


def _store(returned: Any, logits: memoryview) -> None:
    """Take over what a processor returned, if that is not the buffer itself.

    Raises TypeError or ValueError for what is not as many float32.
    """
    if returned is None or returned is logits:
        return
    values = memoryview(returned.numpy() if hasattr(returned, "numpy") else returned)
    if values.format != "f" or values.shape != logits.shape:
        raise ValueError(
            f"it returned {values.shape} values of type {values.format!r}, wanted "
            f"{len(logits)} float32"
        )
    logits[:] = values
