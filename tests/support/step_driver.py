"""Drives a runner with step plans, as a scheduler would, one small question at a time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.contracts.kv_plan import KVPlan, MemoryPlan
from octavo.contracts.step import (
    NewRow,
    PoolingMethod,
    SamplingSpec,
    StepPlan,
    StepResult,
    TokenLogprobs,
)
from octavo.logits_processors import AdapterLogitsProcessor
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
    num_host_slots: int = 0
    swap_dir: str | None = None
    activation_dtype: str = "float32"
    threads: int = 1  # tiny models are done before a second thread is awake
    logits_processors: tuple[type[AdapterLogitsProcessor], ...] = ()


def start_runner(make_runner: MakeRunner, checkpoint: Checkpoint, sizes: RunnerSizes) -> Runner:
    """A runner with its weights read and its pool made, without a look at the machine's memory."""
    config = EngineConfig(
        model=ModelConfig(
            dtype=sizes.dtype,
            activation_dtype=sizes.activation_dtype,
            max_model_len=sizes.max_model_len,
            threads=sizes.threads,
            logits_processors=sizes.logits_processors,
        ),
        cache=CacheConfig(
            block_size=sizes.block_size,
            kv_cache_dtype=sizes.kv_cache_dtype,
            swap_space=1.0 if sizes.swap_dir else 0.0,  # the plan below says how much it is
            swap_dir=sizes.swap_dir,
        ),
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
            groups=needs.kv_groups,
            num_host_slots=sizes.num_host_slots,
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
    tables: list[list[int]]  # of each KV group
    sampling: SamplingSpec
    pooling: PoolingMethod | None = None
    second_segment: int = -1
    is_known: bool = False  # to the runner
    twin: int = -1  # the row that it is forked from in its first step


@dataclass(frozen=True)
class Swapped:
    """A request without a row, its entries in host slots."""

    request: _Request
    slots: list[list[int]]  # parallel to the tables; -1 where no block was


class StepDriver:
    """Adds requests to rows and advances them by any number of tokens.

    Blocks are handed out in a shuffled order, so that no test depends on neighbouring blocks. Those
    that a window has passed are released, those that others hold too are copied before a write.
    With `poison_slot` released blocks are overwritten with that host slot.
    """

    def __init__(
        self, runner: Runner, sizes: RunnerSizes, *, poison_slot: int | None = None
    ) -> None:
        self.runner = runner
        self._groups = runner.needs.kv_groups
        self._block_size = sizes.block_size
        self._free_blocks = list(range(sizes.num_blocks))
        random.Random(4).shuffle(self._free_blocks)
        self._num_holders: Counter[int] = Counter()  # of a block: places in block tables
        self._free_slots = [slot for slot in range(sizes.num_host_slots) if slot != poison_slot]
        self._poison_slot = poison_slot
        self._free_rows = list(range(sizes.max_num_seqs))
        self._requests: dict[int, _Request] = {}
        self.plan = StepPlan(step_id=1)  # what the next step will be; tests may add moves
        self.num_poisoned = 0

    def add(
        self,
        token_ids: Sequence[int],
        sampling: SamplingSpec | None = None,
        *,
        num_prompt: int | None = None,
        num_computed: int = 0,
        tables: Sequence[Sequence[int]] = (),
        pooling: PoolingMethod | None = None,
        second_segment: int = -1,
    ) -> int:
        """A request; some of its tokens may be computed already, in blocks of another one."""
        return self._enter(
            _Request(
                token_ids=list(token_ids),
                num_prompt=num_prompt or len(token_ids),
                num_computed=num_computed,
                tables=[list(table) for table in tables or [[] for _ in self._groups]],
                sampling=sampling or SamplingSpec(),
                pooling=pooling,
                second_segment=second_segment,
            )
        )

    def fork(self, row: int, sampling: SamplingSpec | None = None) -> int:
        """A twin of a row, for a step in which that one computes its last token and this one 0."""
        parent = self._requests[row]
        twin = replace(parent, token_ids=list(parent.token_ids), tables=[[] for _ in self._groups])
        twin.sampling = sampling or parent.sampling
        twin.is_known, twin.twin, twin.num_computed = False, row, len(twin.token_ids)
        return self._enter(twin)

    def step(
        self,
        work: Mapping[int, int],
        copies: Sequence[tuple[int, int]] = (),
        drafts: Mapping[int, list[int]] | None = None,
    ) -> StepResult:
        """Compute so many further known tokens of each row; sample where that is all of them.

        `drafts` of a row are computed and tested behind these.
        """
        drafts = drafts or {}
        plan = self.plan
        plan.copy_from += [source for source, _ in copies]
        plan.copy_to += [target for _, target in copies]
        for row, num_tokens in work.items():
            self._schedule(plan, row, num_tokens, drafts.get(row, []))
        self.plan = StepPlan(step_id=plan.step_id + 1)
        result = self.runner.run(plan)
        assert plan.step_id == result.step_id
        drawn, accepted = iter(result.sampled), iter(result.accepted)
        for row, num_tokens, samples in zip(plan.rows, plan.num_tokens, plan.samples, strict=True):
            num_drafts = len(drafts.get(row, []))
            num_accepted = next(accepted) if num_drafts else 0
            self._requests[row].num_computed += num_tokens - num_drafts + num_accepted
            if samples:
                tokens = [next(drawn) for _ in range(1 + num_accepted)]
                if row not in result.errors:
                    self._requests[row].token_ids += tokens
        assert not [*drawn, *accepted]
        return result

    def finish(self, row: int) -> list[int]:
        """End a request; the answer is all of its tokens."""
        request = self._requests.pop(row)
        if request.is_known:
            self.plan.freed_rows.append(row)
        self._free_rows.append(row)
        for table in request.tables:
            for block in table:
                self._let_go(block)
        return request.token_ids

    def replace_newest(self, row: int, token_id: int) -> None:
        """The token that was sampled last is another one."""
        self._requests[row].token_ids[-1] = token_id
        self.plan.replaced_rows.append(row)
        self.plan.replaced_token_ids.append(token_id)

    def swap_out(self, row: int) -> Swapped:
        """With the next step a request leaves its row and its blocks for host slots."""
        request = self._requests[row]
        slots = [
            [-1 if block < 0 else self._free_slots.pop() for block in table]
            for table in request.tables
        ]
        self.plan.swap_out_from += [
            block for table in request.tables for block in table if block >= 0
        ]
        self.plan.swap_out_to += [slot for table in slots for slot in table if slot >= 0]
        self.finish(row)
        return Swapped(request, slots)

    def swap_in(self, swapped: Swapped) -> int:
        """With the next step it enters a row again; the slots are free after that step."""
        request, slots = swapped.request, swapped.slots
        request.tables = [
            [-1 if slot < 0 else self.take_block() for slot in table] for table in slots
        ]
        request.is_known = False
        self.plan.swap_in_from += [slot for table in slots for slot in table if slot >= 0]
        self.plan.swap_in_to += [block for table in request.tables for block in table if block >= 0]
        self._free_slots[:0] = [slot for table in slots for slot in table if slot >= 0]
        return self._enter(request)

    def remaining(self, row: int) -> int:
        """Known tokens of a row that are not computed yet."""
        request = self._requests[row]
        return len(request.token_ids) - request.num_computed

    def tokens(self, row: int) -> list[int]:
        """All known tokens of a row."""
        return list(self._requests[row].token_ids)

    def tables(self, row: int) -> list[list[int]]:
        """The block tables of a row; -1 where a window has passed."""
        return [list(table) for table in self._requests[row].tables]

    def take_block(self) -> int:
        """A free block, for copies."""
        return self._free_blocks.pop()

    def _enter(self, request: _Request) -> int:
        row = self._free_rows.pop()
        self._requests[row] = request
        for table in request.tables:
            self._num_holders.update(block for block in table if block >= 0)
        return row

    def _let_go(self, block: int) -> None:
        if block < 0:
            return
        self._num_holders[block] -= 1
        if self._num_holders[block]:
            return
        self._free_blocks.insert(0, block)
        if self._poison_slot is not None:
            self.num_poisoned += 1
            self.plan.swap_in_from.append(self._poison_slot)
            self.plan.swap_in_to.append(block)

    def _schedule(self, plan: StepPlan, row: int, num_tokens: int, drafts: list[int]) -> None:
        request = self._requests[row]
        num_tokens += len(drafts)
        end = request.num_computed + num_tokens
        if request.twin >= 0 and not request.is_known:
            request.tables = self.tables(request.twin)
            for table in request.tables:
                self._num_holders.update(block for block in table if block >= 0)
        for group in range(len(self._groups)):
            for place, block in self._changes(plan, request, group, end):
                if request.is_known:
                    plan.table_rows.append(row)
                    plan.table_groups.append(group)
                    plan.table_places.append(place)
                    plan.table_block_ids.append(block)
        if not request.is_known:
            plan.new_rows.append(self._new_row(row, request))
            request.is_known = True
        plan.rows.append(row)
        plan.num_tokens.append(num_tokens)
        is_complete = end - len(drafts) == len(request.token_ids)
        plan.samples.append(is_complete and request.pooling is None)
        if drafts:
            plan.draft_rows.append(row)
            plan.draft_token_ids.append(drafts)

    def _changes(
        self, plan: StepPlan, request: _Request, group: int, end: int
    ) -> list[tuple[int, int]]:
        """Make a table ready for the tokens up to `end`; the (place, block) that changed."""
        table, size, window = request.tables[group], self._block_size, self._groups[group].window
        changes = []
        num_passed = max(0, request.num_computed + 1 - window) // size if window else 0
        for place in range(min(num_passed, len(table))):
            if table[place] >= 0:
                self._let_go(table[place])
                table[place] = -1
                changes.append((place, -1))
        written = self._groups[group].written_places(request.num_computed, end, size)
        for place in written if request.num_computed < end else ():
            if place < len(table) and self._num_holders[table[place]] == 1:
                continue
            block = self.take_block()
            self._num_holders[block] += 1
            if place < len(table):
                plan.copy_from.append(table[place])
                plan.copy_to.append(block)
                self._let_go(table[place])
            table[place : place + 1] = [block]
            changes.append((place, block))
        return changes

    def _new_row(self, row: int, request: _Request) -> NewRow:
        return NewRow(
            row=row,
            request_id=f"request-{row}",
            token_ids=list(request.token_ids),
            num_prompt_tokens=request.num_prompt,
            num_computed_tokens=request.num_computed,
            block_ids=[list(table) for table in request.tables],
            sampling=request.sampling,
            twin_row=request.twin if request.num_computed == len(request.token_ids) else -1,
            pooling=request.pooling,
            second_segment=request.second_segment,
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
        entries += result.logprobs.get(row, [])
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
