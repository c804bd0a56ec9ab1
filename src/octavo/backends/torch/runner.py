"""TorchRunner: step plans on the reference back end.

Owns the rows: their tokens, block tables and samplers. The arithmetic is `backends/torch`; tokens
are drawn by the same native sampler that the CPU back end uses, so a draw has one definition.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo import _native
from octavo.backends.native.sampling import native_spec
from octavo.backends.torch.kv_cache import TorchKvCache
from octavo.backends.torch.reference import TorchOps
from octavo.backends.torch.weights import Stack, TorchWeights
from octavo.config.engine import EngineConfig
from octavo.contracts.kv_plan import MemoryNeeds, MemoryPlan
from octavo.contracts.progress import ReportProgress
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan, StepResult, TokenLogprobs
from octavo.errors import ConfigError
from octavo.models.base import CausalLM
from octavo.models.registry import model_class
from octavo.ops.batch import BatchRow, StepBatch
from octavo.weights.checkpoint import Checkpoint

logger = logging.getLogger(__name__)

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_KV_DTYPES = {**_DTYPES, "auto": torch.bfloat16}


@dataclass(slots=True)
class _Row:
    """A live request."""

    token_ids: list[int]  # all known tokens
    num_prompt: int
    num_computed: int
    block_ids: list[int]
    spec: SamplingSpec
    sampler: _native.RowSampler


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Logits that are needed: those of the token at `position` of a row."""

    row: int
    position: int
    token: int  # index into the step's tokens
    draws: bool  # draw the next token; else score the known one


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
        self._kv_dtype = _KV_DTYPES[config.cache.kv_cache_dtype]
        self._int8 = config.model.activation_dtype == "int8"
        self._weights = TorchWeights(
            checkpoint.tensors, _DTYPES.get(config.model.dtype), int8_activations=self._int8
        )
        self._make_model(self._facts.max_position)  # to learn which tensors it needs
        if self._int8 and not self._weights.has_quantised_matrices:
            raise ConfigError(
                "--activation-dtype int8 needs quantised weights, and this model has none; "
                "use --activation-dtype auto"
            )
        self._kernels = _native.find_kernels("")
        self._rows: dict[int, _Row] = {}
        self._loaded: _Loaded | None = None
        self._compute_s = 0.0

    @property
    def needs(self) -> MemoryNeeds:
        """See `Runner`."""
        facts, cache = self._facts, self._config.cache
        kv_width = 2 * facts.num_kv_heads * facts.head_dim
        return MemoryNeeds(
            weights_bytes=self._weights.num_bytes,
            workspace_bytes=self._workspace_bytes(),
            bytes_per_block=facts.num_layers
            * cache.block_size
            * kv_width
            * self._kv_dtype.itemsize,
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
                num_layers=facts.num_layers,
                num_blocks=plan.kv.num_blocks,
                block_size=plan.kv.block_size,
                num_kv_heads=facts.num_kv_heads,
                head_dim=facts.head_dim,
                dtype=self._kv_dtype,
                device=self._device,
            ),
        )
        unused = self._weights.unused_names
        if unused:
            logger.info("%d tensors of the model file are not used: %s", len(unused), unused[:8])

    def run(self, plan: StepPlan) -> StepResult:
        """See `Runner`."""
        assert self._loaded is not None, "allocate() comes before run()"
        self._update_rows(plan)
        self._loaded.cache.copy_blocks(plan.copy_from, plan.copy_to)
        wanted = list(self._wanted(plan))
        start = time.perf_counter()
        logits = self._forward(self._loaded, plan, wanted)
        self._compute_s += time.perf_counter() - start
        for row_id, num_tokens in zip(plan.rows, plan.num_tokens, strict=True):
            self._rows[row_id].num_computed += num_tokens
        result = StepResult(step_id=plan.step_id, sampled=[])
        for entry, scores in zip(wanted, logits, strict=True):
            self._judge(entry, scores, result)
        return result

    @property
    def compute_s(self) -> float:
        """See `Runner`. The forward passes."""
        return self._compute_s

    def describe(self) -> str:
        """See `Runner`."""
        kv_type = str(self._kv_dtype).removeprefix("torch.")
        activations = "int8" if self._int8 else "float32"
        return (
            f"PyTorch reference on {self._device}, weights float32, activations {activations}, "
            f"KV cache {kv_type}"
        )

    def close(self) -> None:
        """See `Runner`."""
        self._loaded = None
        self._rows.clear()

    def _make_model(self, max_model_len: int) -> CausalLM:
        return model_class(self._facts.architecture)(self._facts, self._weights, max_model_len)

    def _workspace_bytes(self) -> int:
        """The largest tensors of a step, twice: an operation reads one and makes another."""
        facts, config = self._facts, self._config
        num_tokens = config.scheduler.max_num_batched_tokens
        q_width = facts.num_heads * facts.head_dim
        widest = max(2 * facts.intermediate_size, q_width, facts.hidden_size)
        asked_len = config.model.max_model_len or 0
        longest = asked_len if asked_len > 0 else facts.max_position
        logits = max(num_tokens, config.scheduler.max_num_seqs) * facts.vocab_size
        scores = facts.num_heads * num_tokens * longest
        return 4 * 2 * (num_tokens * widest + max(logits, scores))

    def _update_rows(self, plan: StepPlan) -> None:
        for row_id in plan.freed_rows:
            self._rows.pop(row_id, None)  # a step that failed is freed again
        for entry in plan.new_rows:
            assert entry.row not in self._rows, f"row {entry.row} holds a request already"
            self._rows[entry.row] = self._make_row(entry)
        for row_id, block_id in zip(plan.table_rows, plan.table_block_ids, strict=True):
            self._rows[row_id].block_ids.append(block_id)

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
            block_ids=list(entry.block_ids[0]),
            spec=entry.sampling,
            sampler=sampler,
        )

    def _wanted(self, plan: StepPlan) -> Iterator[_Wanted]:
        """In order of tokens. Position p of a prompt scores the token at p + 1."""
        first_token = 0
        for row_id, num_tokens, samples in zip(
            plan.rows, plan.num_tokens, plan.samples, strict=True
        ):
            row = self._rows[row_id]
            first, end = row.num_computed, row.num_computed + num_tokens
            assert samples == (end == len(row.token_ids)), (row_id, end, len(row.token_ids))
            if row.spec.num_prompt_logprobs >= 0:
                for position in range(first, min(end, row.num_prompt - 1)):
                    yield _Wanted(row_id, position, first_token + position - first, draws=False)
            if samples:
                yield _Wanted(row_id, end - 1, first_token + num_tokens - 1, draws=True)
            first_token += num_tokens

    @torch.inference_mode()
    def _forward(self, loaded: _Loaded, plan: StepPlan, wanted: list[_Wanted]) -> Tensor:
        """Logits on the CPU: [len(wanted), vocab_size]."""
        if not plan.rows:
            return torch.empty(0, self._facts.vocab_size)
        ops = TorchOps(loaded.tensors, loaded.cache, self._batch(plan, wanted), self._device)
        return loaded.model.forward(ops).cpu()

    def _batch(self, plan: StepPlan, wanted: list[_Wanted]) -> StepBatch:
        token_ids: list[int] = []
        positions: list[int] = []
        batch_rows: list[BatchRow] = []
        for row_id, num_tokens in zip(plan.rows, plan.num_tokens, strict=True):
            row = self._rows[row_id]
            first, end = row.num_computed, row.num_computed + num_tokens
            batch_rows.append(BatchRow(len(token_ids), num_tokens, first, tuple(row.block_ids)))
            token_ids += row.token_ids[first:end]
            positions += range(first, end)
        return StepBatch(
            token_ids=tuple(token_ids),
            positions=tuple(positions),
            rows=tuple(batch_rows),
            wanted=tuple(entry.token for entry in wanted),
            block_size=self._config.cache.block_size,
        )

    def _judge(self, wanted: _Wanted, logits: Tensor, result: StepResult) -> None:
        """Draw or score one token. A fault belongs to its row and does not end the step."""
        try:
            if wanted.draws:
                self._draw(wanted, logits, result)
            else:
                self._score(wanted, logits, result)
        except RuntimeError as error:
            result.errors.setdefault(wanted.row, str(error))
            if wanted.draws:
                result.sampled.append(0)

    def _score(self, wanted: _Wanted, logits: Tensor, result: StepResult) -> None:
        row = self._rows[wanted.row]
        known = row.token_ids[wanted.position + 1]
        count = row.spec.num_prompt_logprobs
        entry = _native.top_logprobs(self._kernels, logits.numpy().data, known, count)
        result.prompt_logprobs.setdefault(wanted.row, []).append(TokenLogprobs(*entry))

    def _draw(self, wanted: _Wanted, logits: Tensor, result: StepResult) -> None:
        row = self._rows[wanted.row]
        token, chosen = row.sampler.sample(self._kernels, logits.numpy().data, row.token_ids)
        row.token_ids.append(token)
        row.sampler.append(token)
        result.sampled.append(token)
        if chosen is not None:
            result.logprobs[wanted.row] = TokenLogprobs(*chosen)
