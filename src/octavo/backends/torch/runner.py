"""TorchRunner: step plans on the reference back end.

Owns the rows: their tokens, block tables and samplers. The arithmetic is `backends/torch`; tokens
are drawn by the same native sampler that the CPU back end uses, so a draw has one definition.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo import _native
from octavo.backends.native.sampling import native_spec
from octavo.backends.torch.kv_cache import TorchKvCache
from octavo.backends.torch.reference import TorchOps
from octavo.backends.torch.weights import ModelWeights, Stack, TorchWeights
from octavo.config.engine import EngineConfig
from octavo.contracts.grammar import ConstraintError, Mask, bits_of
from octavo.contracts.kv_plan import MemoryNeeds, MemoryPlan
from octavo.contracts.progress import ReportProgress
from octavo.contracts.step import (
    UNANSWERABLE,
    NewRow,
    PoolingMethod,
    SamplingSpec,
    StepPlan,
    StepResult,
    TokenLogprobs,
)
from octavo.errors import ConfigError
from octavo.logits_processors.rows import RowProcessors
from octavo.models.base import CausalLM
from octavo.models.kv_fingerprint import kv_fingerprint
from octavo.models.kv_groups import kv_groups, with_state
from octavo.models.registry import model_class
from octavo.ops.activation_types import refuse_activation_dtype
from octavo.ops.batch import BatchRow, StepBatch
from octavo.ops.kv_types import kv_type
from octavo.weights.checkpoint import Checkpoint

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(slots=True)
class _Row:
    """A live request."""

    token_ids: list[int]  # all known tokens
    num_prompt: int
    num_computed: int
    block_tables: list[list[int]]  # of each KV group
    spec: SamplingSpec
    sampler: _native.RowSampler
    twin_row: int  # whose logits it takes in its first step, or -1
    pooling: PoolingMethod | None
    second_segment: int


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Logits that are needed: those of the token at `position` of a row."""

    row: int
    position: int
    token: int  # index into the step's tokens
    draws: bool  # draw the next token; else score the known one
    first_token: int = -1  # of a row that is pooled: the first token that this stands for
    place: int = 0  # of a row with drafts: which of its draws


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What exists once the weights are read."""

    model: CausalLM
    tensors: dict[Stack, Tensor]
    cache: TorchKvCache


class TorchRunner:
    """A `Runner`. Slow and clear; for checking the native back end, and for torch devices."""

    def __init__(
        self, config: EngineConfig, checkpoint: Checkpoint, *, device: str = "cpu"
    ) -> None:
        self._config = config
        self._facts = checkpoint.facts
        self._device = torch.device(device)
        self._kv_type = kv_type(config.cache.kv_cache_dtype, is_causal=self._facts.is_causal)
        asked = config.model.activation_dtype
        self._activations = "float32" if asked == "auto" else asked
        self._weights = self._make_weights(checkpoint)
        self._make_model(self._facts.max_position)  # to learn which tensors it needs
        self._weights.verify()
        if self._activations != "float32" and not self._weights.has_rounded_inputs:
            refuse_activation_dtype(self._activations)
        self._kernels = _native.find_kernels("")
        facts = self._facts
        # Layers that are not causal share the storage of one: see ops.AttentionSpec.
        windows = (
            [facts.window_of(i) or 0 for i in facts.attention_layers] if facts.is_causal else [0]
        )
        shapes = [(facts.num_kv_heads, facts.head_dim)] * len(windows)
        groups = kv_groups(windows, shapes, self._longest)
        num_lanes = max((len(group.layers) for group in groups), default=0)
        token_bytes = 2 * facts.num_kv_heads * self._kv_type.row_bytes(facts.head_dim)
        self._kv_groups, self._bytes_per_block = with_state(
            groups,
            num_lanes * config.cache.block_size * token_bytes,
            0 if facts.state is None else facts.state.num_bytes,
        )
        if config.cache.swap_dir is not None:
            raise ConfigError(
                "--swap-dir needs the native back end: torch keeps the swap space in memory"
            )
        self._rows: dict[int, _Row] = {}
        self._masks: dict[int, Mask] = {}  # of the step's rows that have one
        self._drafts: dict[int, list[int]] = {}  # of the step's rows that have some
        self._processors = RowProcessors(config, facts.vocab_size, device=device)
        self._loaded: _Loaded | None = None
        self._fingerprint = ""
        self._compute_s = 0.0

    @property
    def needs(self) -> MemoryNeeds:
        """See `Runner`."""
        return MemoryNeeds(
            weights_bytes=self._weights.num_bytes,
            workspace_bytes=self._workspace_bytes(),
            bytes_per_block=self._bytes_per_block,
            kv_groups=self._kv_groups,
        )

    def allocate(self, plan: MemoryPlan, report: ReportProgress) -> None:
        """See `Runner`."""
        facts = self._facts
        if self._config.model.threads is not None:  # torch knows one number for the whole process
            torch.set_num_threads(self._config.model.threads)
        self._loaded = _Loaded(
            model=self._make_model(plan.max_model_len),
            tensors=self._weights.load(self._device, lambda done: report("weights", done)),
            cache=TorchKvCache(
                groups=[group.layers for group in self._kv_groups if not group.num_state_blocks],
                num_blocks=plan.kv.num_blocks,
                block_size=plan.kv.block_size,
                num_kv_heads=facts.num_kv_heads,
                head_dim=facts.head_dim,
                type=self._kv_type,
                device=self._device,
                num_host_slots=plan.kv.num_host_slots,
                state=facts.state,
            ),
        )
        self._fingerprint = kv_fingerprint(
            facts,
            max_model_len=plan.max_model_len,
            block_size=plan.kv.block_size,
            kv_type=self._kv_type.layout,
            groups=self._kv_groups,
            arithmetic=self._arithmetic,
        )

    def run(self, plan: StepPlan) -> StepResult:
        """See `Runner`."""
        assert self._loaded is not None, "allocate() comes before run()"
        self._update_rows(plan)
        self._processors.begin(plan)
        swap_s = self._move_blocks(self._loaded.cache, plan)
        self._drafts = dict(zip(plan.draft_rows, plan.draft_token_ids, strict=True))
        wanted = list(self._wanted(plan))
        start = time.perf_counter()
        on_device = self._forward(self._loaded, plan, wanted)
        self._masks = _made_masks(plan)  # while a device computes
        logits = on_device.cpu()
        forwarded = time.perf_counter()
        for row_id, num_tokens in zip(plan.rows, plan.num_tokens, strict=True):
            self._rows[row_id].num_computed += num_tokens - len(self._drafts.get(row_id, ()))
            self._rows[row_id].twin_row = -1
        result = StepResult(step_id=plan.step_id, sampled=[], swap_s=swap_s)
        for entry, scores in zip(wanted, logits, strict=True):
            self._judge(entry, scores, result)
        for row_id, accepted in zip(plan.draft_rows, result.accepted, strict=True):
            self._rows[row_id].num_computed += accepted
        self._processors.end(plan, result)
        end = time.perf_counter()
        result.sample_s = end - forwarded
        self._compute_s += end - start
        return result

    @property
    def compute_s(self) -> float:
        """See `Runner`. The forward passes and sampling."""
        return self._compute_s

    @property
    def kv_fingerprint(self) -> str:
        """See `Runner`."""
        return self._fingerprint

    def host_slot(self, slot: int) -> memoryview:
        """See `Runner`."""
        assert self._loaded is not None, "allocate() comes first"
        return self._loaded.cache.host_slot(slot)

    def describe(self) -> str:
        """See `Runner`."""
        return (
            f"PyTorch reference on {self._device}, weights float32, "
            f"activations {self._activations}, "
            f"KV cache {self._kv_type.name}"
        )

    def close(self) -> None:
        """See `Runner`."""
        self._loaded = None
        self._rows.clear()

    def _make_weights(self, checkpoint: Checkpoint) -> ModelWeights:
        return TorchWeights(
            checkpoint.tensors,
            DTYPES.get(self._config.model.dtype),
            activation_dtype=self._activations,
        )

    def _make_model(self, max_model_len: int) -> CausalLM:
        assert isinstance(self._weights, TorchWeights), self._weights
        return model_class(self._facts.architecture)(self._facts, self._weights, max_model_len)

    @property
    def _arithmetic(self) -> str:
        """What may change a bit of the KV cache, besides the model; for its fingerprint."""
        dtypes = f"{self._config.model.dtype} {self._activations}"
        return f"torch {torch.__version__} {self._device} {dtypes}"

    @property
    def _longest(self) -> int:
        """Tokens of the longest sequence that may come."""
        asked_len = self._config.model.max_model_len or 0
        return asked_len if asked_len > 0 else self._facts.max_position

    def _workspace_bytes(self) -> int:
        """The largest tensors of a step, twice: an operation reads one and makes another."""
        facts, config = self._facts, self._config
        num_tokens = config.scheduler.max_num_batched_tokens
        q_width = facts.num_heads * facts.head_dim
        widest = max(2 * facts.intermediate_size, q_width, facts.hidden_size)
        if facts.state is not None:
            widest = max(widest, 2 * facts.state.num_channels)
        logits = max(num_tokens, config.scheduler.max_num_seqs) * facts.vocab_size
        scores = facts.num_heads * num_tokens * self._longest if facts.attention_layers else 0
        return 4 * 2 * (num_tokens * widest + max(logits, scores))

    def _update_rows(self, plan: StepPlan) -> None:
        for row_id in plan.freed_rows:
            self._rows.pop(row_id, None)  # a step that failed is freed again
        for entry in plan.new_rows:
            assert entry.row not in self._rows, f"row {entry.row} holds a request already"
            self._rows[entry.row] = self._make_row(entry)
        for row_id, group, place, block_id in zip(
            plan.table_rows,
            plan.table_groups,
            plan.table_places,
            plan.table_block_ids,
            strict=True,
        ):
            self._rows[row_id].block_tables[group][place : place + 1] = [block_id]
        for row_id, token_id in zip(plan.replaced_rows, plan.replaced_token_ids, strict=True):
            row = self._rows[row_id]
            assert row.num_computed < len(row.token_ids), f"row {row_id} has no newest token"
            row.sampler.replace(row.token_ids[-1], token_id)
            row.token_ids[-1] = token_id

    def _move_blocks(self, cache: TorchKvCache, plan: StepPlan) -> float:
        """Swaps, then copies. Returns the seconds of the swaps."""
        start = time.perf_counter()
        cache.swap_out(plan.swap_out_from, plan.swap_out_to)
        cache.swap_in(plan.swap_in_from, plan.swap_in_to)
        swap_s = time.perf_counter() - start if plan.swap_out_from or plan.swap_in_from else 0.0
        cache.copy_blocks(plan.copy_from, plan.copy_to)
        return swap_s

    def _make_row(self, entry: NewRow) -> _Row:
        sampler = _native.RowSampler(
            native_spec(entry.sampling),
            entry.token_ids,
            entry.num_prompt_tokens,
            self._facts.vocab_size,
        )
        return _Row(
            token_ids=list(entry.token_ids),
            num_prompt=entry.num_prompt_tokens,
            num_computed=entry.num_computed_tokens,
            block_tables=[list(table) for table in entry.block_ids],
            twin_row=entry.twin_row,
            spec=entry.sampling,
            sampler=sampler,
            pooling=entry.pooling,
            second_segment=entry.second_segment,
        )

    def _wanted(self, plan: StepPlan) -> Iterator[_Wanted]:
        """In order of tokens. Position p of a prompt scores the token at p + 1."""
        first_token = 0
        last_tokens: dict[int, int] = {}  # of rows that sample
        for row_id, num_tokens, samples in zip(
            plan.rows, plan.num_tokens, plan.samples, strict=True
        ):
            row = self._rows[row_id]
            if row.twin_row >= 0:
                assert num_tokens == 0, f"row {row_id} is a fork and computes"
                assert self._rows[row.twin_row].token_ids == row.token_ids, row_id
                token = last_tokens[row.twin_row]
                yield _Wanted(row_id, len(row.token_ids) - 1, token, draws=True)
                continue
            num_drafts = len(self._drafts.get(row_id, ()))
            first, end = row.num_computed, row.num_computed + num_tokens - num_drafts
            is_complete = end == len(row.token_ids)
            assert samples == (is_complete and row.pooling is None), (row_id, end, row)
            assert samples or not num_drafts, f"row {row_id} has drafts and does not sample"
            if row.pooling is not None:
                assert row.pooling == "last" or (first == 0 and is_complete), (row_id, first, end)
                yield from _pooled(row_id, row, first_token, num_tokens) if is_complete else ()
                first_token += num_tokens
                continue
            if row.spec.num_prompt_logprobs >= 0:
                for position in range(first, min(end, row.num_prompt - 1)):
                    yield _Wanted(row_id, position, first_token + position - first, draws=False)
            if samples:
                last = last_tokens[row_id] = first_token + end - first - 1
                for place in range(1 + num_drafts):
                    yield _Wanted(row_id, end - 1 + place, last + place, draws=True, place=place)
            first_token += num_tokens

    @torch.inference_mode()
    def _forward(self, loaded: _Loaded, plan: StepPlan, wanted: list[_Wanted]) -> Tensor:
        """Logits [len(wanted), vocab_size], which a device may still be computing."""
        if not plan.rows:
            return torch.empty(0, self._facts.vocab_size)
        group_rows = [self._batch_rows(plan, group) for group in range(len(self._kv_groups))]
        batch = self._batch(plan, group_rows[0], wanted)
        ops = TorchOps(loaded.tensors, loaded.cache, batch, self._device, group_rows)
        return loaded.model.forward(ops)

    def _batch_rows(self, plan: StepPlan, group: int) -> tuple[BatchRow, ...]:
        """The rows that compute, with their block tables of one KV group."""
        batch_rows: list[BatchRow] = []
        first_token = 0
        for row_id, num_tokens in zip(plan.rows, plan.num_tokens, strict=True):
            if num_tokens:
                row = self._rows[row_id]
                table = tuple(row.block_tables[group])
                batch_rows.append(BatchRow(first_token, num_tokens, row.num_computed, table))
                first_token += num_tokens
        return tuple(batch_rows)

    def _batch(
        self, plan: StepPlan, batch_rows: tuple[BatchRow, ...], wanted: list[_Wanted]
    ) -> StepBatch:
        token_ids: list[int] = []
        positions: list[int] = []
        segments: list[int] = []
        for row_id, num_tokens in zip(plan.rows, plan.num_tokens, strict=True):
            row = self._rows[row_id]
            first, end = row.num_computed, row.num_computed + num_tokens
            token_ids += [*row.token_ids[first:], *self._drafts.get(row_id, ())][:num_tokens]
            positions += range(first, end)
            second = row.second_segment
            segments += [int(0 <= second <= position) for position in range(first, end)]
        return StepBatch(
            token_ids=tuple(token_ids),
            positions=tuple(positions),
            rows=batch_rows,
            wanted=tuple(entry.token for entry in wanted),
            block_size=self._config.cache.block_size,
            segments=tuple(segments),
            wanted_first=tuple(
                entry.token if entry.first_token < 0 else entry.first_token for entry in wanted
            ),
        )

    def _judge(self, wanted: _Wanted, logits: Tensor, result: StepResult) -> None:
        """Draw or score one token. A fault belongs to its row and does not end the step."""
        try:
            if wanted.first_token >= 0:
                _keep_vector(wanted.row, logits, result)
            elif wanted.draws:
                if self._follows(wanted, result):
                    self._draw(wanted, logits, result)
            else:
                self._score(wanted, logits, result)
        except (RuntimeError, ConstraintError) as error:
            is_ours = isinstance(error, RuntimeError)
            result.errors.setdefault(
                wanted.row, str(error) if is_ours else f"{UNANSWERABLE}: {error}"
            )
            if wanted.draws:
                self._keep(wanted, 0, result)

    def _score(self, wanted: _Wanted, logits: Tensor, result: StepResult) -> None:
        row = self._rows[wanted.row]
        known = row.token_ids[wanted.position + 1]
        count = row.spec.num_prompt_logprobs
        entry = _native.top_logprobs(self._kernels, logits.numpy().data, known, count)
        result.prompt_logprobs.setdefault(wanted.row, []).append(TokenLogprobs(*entry))

    def _follows(self, wanted: _Wanted, result: StepResult) -> bool:
        """Whether the row's tokens so far are those that the logits belong to: all drafts before
        are what was drawn in their place."""
        row = self._rows[wanted.row]
        if not wanted.place:
            return True
        draft = self._drafts[wanted.row][wanted.place - 1]
        is_next = len(row.token_ids) == wanted.position + 1
        return wanted.row not in result.errors and is_next and row.token_ids[-1] == draft

    def _draw(self, wanted: _Wanted, logits: Tensor, result: StepResult) -> None:
        row = self._rows[wanted.row]
        mask = self._masks.get(wanted.row)
        token, chosen = row.sampler.sample(
            self._kernels,
            logits.numpy().data,
            row.token_ids,
            None if mask is None else bits_of(mask),
            wanted.row,
            self._processors.stages_of(wanted.row),
            self._processors.scratch,
            self._processors.process,
        )
        row.token_ids.append(token)
        row.sampler.append(token)
        self._keep(wanted, token, result)
        if chosen is not None:
            result.logprobs.setdefault(wanted.row, []).append(TokenLogprobs(*chosen))

    def _keep(self, wanted: _Wanted, token: int, result: StepResult) -> None:
        result.sampled.append(token)
        if wanted.place:
            result.accepted[-1] += 1
        elif wanted.row in self._drafts:
            result.accepted.append(0)


def _made_masks(plan: StepPlan) -> dict[int, Mask]:
    """Masks by row. One that cannot be made stays as it is, and fails its row when it is used."""
    masks: dict[int, Mask] = {}
    for row_id, mask in zip(plan.mask_rows, plan.masks, strict=True):
        try:
            masks[row_id] = bits_of(mask)
        except ConstraintError:
            masks[row_id] = mask
    return masks


def _pooled(row_id: int, row: _Row, first_token: int, num_tokens: int) -> Iterator[_Wanted]:
    """The vectors of a row whose prompt is complete."""
    last_token = first_token + num_tokens - 1
    spans = {
        "first": [(first_token, first_token)],
        "last": [(last_token, last_token)],
        "mean": [(first_token, last_token)],
        "all": [(token, token) for token in range(first_token, last_token + 1)],
    }
    assert row.pooling is not None, row_id
    for first, last in spans[row.pooling]:
        yield _Wanted(row_id, -1, last, draws=False, first_token=first)


def _keep_vector(row_id: int, vector: Tensor, result: StepResult) -> None:
    """Raises RuntimeError for a vector with numbers that are none."""
    if not bool(torch.isfinite(vector).all()):
        raise RuntimeError("the model made a vector that is not finite")
    result.pooled[row_id] = result.pooled.get(row_id, b"") + vector.numpy().tobytes()
