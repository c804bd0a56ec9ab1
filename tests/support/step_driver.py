"""Drives a runner with step plans, as a scheduler would, one small question at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.contracts.kv_plan import KVPlan, MemoryPlan
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan, StepResult, TokenLogprobs
from octavo.runner.base import Runner
from octavo.weights.checkpoint import Checkpoint

MakeRunner = Callable[[EngineConfig, Checkpoint], Runner]


@dataclass(frozen=True)
class RunnerSizes:
    """What a test needs a runner to hold."""

    max_model_len: int = 128
    num_blocks: int = 64
    block_size: int = 8
    max_num_seqs: int = 4
    max_num_batched_tokens: int = 64
    kv_cache_dtype: str = "float32"
    dtype: str = "auto"
    activation_dtype: str = "float32"
    threads: int = 1  # tiny models are done before a second thread is awake


def start_runner(make_runner: MakeRunner, checkpoint: Checkpoint, sizes: RunnerSizes) -> Runner:
    """A runner with its weights read and its pool made, without a look at the machine's memory."""
    config = EngineConfig(
        model=ModelConfig(
            dtype=sizes.dtype,
            activation_dtype=sizes.activation_dtype,
            max_model_len=sizes.max_model_len,
            threads=sizes.threads,
        ),
        cache=CacheConfig(block_size=sizes.block_size, kv_cache_dtype=sizes.kv_cache_dtype),
        scheduler=SchedulerConfig(
            max_num_batched_tokens=sizes.max_num_batched_tokens, max_num_seqs=sizes.max_num_seqs
        ),
    )
    runner = make_runner(config, checkpoint)
    needs = runner.needs
    plan = MemoryPlan(
        limit_bytes=0,
        usable_bytes=0,
        weights_bytes=needs.weights_bytes,
        workspace_bytes=needs.workspace_bytes,
        kv=KVPlan(
            num_blocks=sizes.num_blocks,
            block_size=sizes.block_size,
            bytes_per_block=needs.bytes_per_block,
        ),
        max_model_len=sizes.max_model_len,
    )
    runner.allocate(plan, lambda phase, done: None)
    return runner


@dataclass
class _Request:
    token_ids: list[int]
    num_prompt: int
    num_computed: int
    block_ids: list[int]
    sampling: SamplingSpec
    is_known: bool = False  # to the runner


class StepDriver:
    """Adds requests to rows and advances them by any number of tokens.

    Blocks are handed out in a shuffled order, so that no test depends on neighbouring blocks.
    """

    def __init__(self, runner: Runner, sizes: RunnerSizes) -> None:
        self.runner = runner
        self._block_size = sizes.block_size
        self._free_blocks = list(range(sizes.num_blocks))
        random.Random(4).shuffle(self._free_blocks)
        self._free_rows = list(range(sizes.max_num_seqs))
        self._freed: list[int] = []
        self._requests: dict[int, _Request] = {}
        self._step_id = 0

    def add(
        self,
        token_ids: Sequence[int],
        sampling: SamplingSpec | None = None,
        *,
        num_prompt: int | None = None,
        num_computed: int = 0,
        block_ids: Sequence[int] = (),
    ) -> int:
        """A request; some of its tokens may be computed already, in blocks of another one."""
        row = self._free_rows.pop()
        self._requests[row] = _Request(
            token_ids=list(token_ids),
            num_prompt=num_prompt or len(token_ids),
            num_computed=num_computed,
            block_ids=list(block_ids),
            sampling=sampling or SamplingSpec(),
        )
        return row

    def step(self, work: Mapping[int, int], copies: Sequence[tuple[int, int]] = ()) -> StepResult:
        """Compute so many further tokens of each row; sample where that is all of them."""
        self._step_id += 1
        plan = StepPlan(
            step_id=self._step_id,
            freed_rows=self._freed,
            copy_from=[source for source, _ in copies],
            copy_to=[target for _, target in copies],
        )
        self._freed = []
        for row, num_tokens in work.items():
            self._schedule(plan, row, num_tokens)
        result = self.runner.run(plan)
        assert plan.step_id == result.step_id
        drawn = iter(result.sampled)
        for row, num_tokens, samples in zip(plan.rows, plan.num_tokens, plan.samples, strict=True):
            self._requests[row].num_computed += num_tokens
            if samples:
                token = next(drawn)
                if row not in result.errors:
                    self._requests[row].token_ids.append(token)
        return result

    def finish(self, row: int) -> list[int]:
        """End a request; the answer is all of its tokens."""
        request = self._requests.pop(row)
        if request.is_known:
            self._freed.append(row)
        self._free_rows.append(row)
        self._free_blocks += set(request.block_ids) - set(self._free_blocks)
        return request.token_ids

    def remaining(self, row: int) -> int:
        """Known tokens of a row that are not computed yet."""
        request = self._requests[row]
        return len(request.token_ids) - request.num_computed

    def tokens(self, row: int) -> list[int]:
        """All known tokens of a row."""
        return list(self._requests[row].token_ids)

    def blocks(self, row: int) -> list[int]:
        """The block table of a row."""
        return list(self._requests[row].block_ids)

    def take_block(self) -> int:
        """A free block, for copies."""
        return self._free_blocks.pop()

    def _schedule(self, plan: StepPlan, row: int, num_tokens: int) -> None:
        request = self._requests[row]
        end = request.num_computed + num_tokens
        needed = -(-end // self._block_size) - len(request.block_ids)
        appended = [self._free_blocks.pop() for _ in range(needed)]
        request.block_ids += appended
        if request.is_known:
            plan.table_rows += [row] * len(appended)
            plan.table_block_ids += appended
        else:
            plan.new_rows.append(self._new_row(row, request))
            request.is_known = True
        plan.rows.append(row)
        plan.num_tokens.append(num_tokens)
        plan.samples.append(end == len(request.token_ids))

    def _new_row(self, row: int, request: _Request) -> NewRow:
        return NewRow(
            row=row,
            request_id=f"request-{row}",
            token_ids=list(request.token_ids),
            num_prompt_tokens=request.num_prompt,
            num_computed_tokens=request.num_computed,
            block_ids=[list(request.block_ids)],
            sampling=request.sampling,
        )


def all_logprobs(
    driver: StepDriver, token_ids: Sequence[int], chunks: Sequence[int], vocab_size: int
) -> Tensor:
    """Log-probabilities of the whole vocabulary after each token: [len(token_ids), vocab_size]."""
    assert sum(chunks) == len(token_ids)
    everything = SamplingSpec(num_logprobs=vocab_size, num_prompt_logprobs=vocab_size)
    row = driver.add(token_ids, everything)
    entries: list[TokenLogprobs] = []
    for chunk in chunks:
        result = driver.step({row: chunk})
        assert not result.errors, result.errors
        entries += result.prompt_logprobs.get(row, [])
        entries += [result.logprobs[row]] if row in result.logprobs else []
    driver.finish(row)
    return torch.stack([by_id(entry, vocab_size) for entry in entries])


def by_id(entry: TokenLogprobs, vocab_size: int) -> Tensor:
    """Log-probabilities in the order of the vocabulary; those that are not in the entry are NaN."""
    row = torch.full((vocab_size,), float("nan"))
    row[entry.token_ids] = torch.tensor(entry.logprobs)
    return row


def generate(
    driver: StepDriver,
    prompt: Sequence[int],
    num_new: int,
    sampling: SamplingSpec | None = None,
    *,
    chunk: int | None = None,
) -> list[int]:
    """`num_new` tokens after `prompt`, whose tokens are computed `chunk` at a time."""
    row = driver.add(prompt, sampling)
    while len(driver.tokens(row)) < len(prompt) + num_new:
        work = min(chunk or len(prompt), driver.remaining(row))
        result = driver.step({row: work})
        assert not result.errors, result.errors
    return driver.finish(row)[len(prompt) :]
