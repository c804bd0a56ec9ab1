"""NativeRunner: step plans on the native back end.

Owns the order in which a model comes to life here: ask for weights, record, optimise, place, pack,
allocate. A step is one call into C++, which keeps the rows, runs the program and samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from octavo import _native
from octavo.backends.native.operations import Recording
from octavo.backends.native.passes import optimise, round_inputs
from octavo.backends.native.placement import Placement, StepSize, place
from octavo.backends.native.program import attention_layers, build_program
from octavo.backends.native.recorder import record
from octavo.backends.native.sampling import native_spec
from octavo.backends.native.weights import NativeWeights
from octavo.backends.native.without_states import refuse_states
from octavo.config.engine import EngineConfig
from octavo.contracts.kv_plan import LOGIT_ROWS, KVPlan, MemoryNeeds, MemoryPlan
from octavo.contracts.progress import ReportProgress
from octavo.contracts.step import NewRow, StepPlan, StepResult, TokenLogprobs
from octavo.errors import ConfigError
from octavo.foundation import env
from octavo.foundation.machine import cpu_count
from octavo.logits_processors.rows import RowProcessors
from octavo.models.kv_fingerprint import kv_fingerprint
from octavo.models.kv_groups import kv_groups
from octavo.models.registry import model_class
from octavo.ops.activation_types import refuse_activation_dtype
from octavo.ops.kv_types import kv_type
from octavo.weights.checkpoint import Checkpoint, TensorView, WeightType

_FLOAT_TYPES = {
    "float32": WeightType.F32,
    "bfloat16": WeightType.BF16,
    "float16": WeightType.F16,
}
_POOLING = {
    None: _native.Pooling.NONE,
    "first": _native.Pooling.FIRST,
    "last": _native.Pooling.LAST,
    "mean": _native.Pooling.MEAN,
    "all": _native.Pooling.ALL,
}


class _Layout(msgspec.Struct, frozen=True):
    """A program and the memory that it needs, for one context length."""

    program: _native.Program
    placement: Placement


class NativeRunner:
    """A `Runner` on the CPU."""

    def __init__(self, config: EngineConfig, checkpoint: Checkpoint) -> None:
        self._facts = checkpoint.facts
        if self._facts.state is not None:
            refuse_states()
        self._scheduler = config.scheduler
        self._block_size = config.cache.block_size
        self._kv_type = kv_type(config.cache.kv_cache_dtype, is_causal=self._facts.is_causal)
        self._num_threads = config.model.threads or cpu_count()
        self._kernels = _chosen_kernels()
        self._float_type = config.model.dtype
        self._weights = NativeWeights(checkpoint.tensors, _FLOAT_TYPES.get(self._float_type))
        self._activation_dtype = config.model.activation_dtype
        self._activations = "float32"  # what they are multiplied as
        asked_len = config.model.max_model_len or 0
        self._longest = asked_len if asked_len > 0 else self._facts.max_position
        self._draft = self._lay_out(self._longest)  # the same size for every context length
        self._max_model_len = self._longest
        layers = attention_layers(self._draft.placement)
        self._kv_shapes = [(spec.num_kv_heads, spec.head_dim) for spec in layers]
        windows = [(spec.window or 0) if spec.is_causal else 0 for spec in layers]
        self._kv_groups = kv_groups(windows, self._kv_shapes, self._longest)
        self._swap_dir = config.cache.swap_dir or ""
        self._host: _native.HostPool | None = None
        self._session: _native.Session | None = None
        self._compute_s = 0.0
        self._processors = RowProcessors(config, self._facts.vocab_size)
        self._weight_types = _types_by_size(checkpoint.tensors.values())

    @property
    def needs(self) -> MemoryNeeds:
        """See `Runner`."""
        return MemoryNeeds(
            weights_bytes=self._weights.num_bytes,
            workspace_bytes=_native.Forward.workspace_bytes(
                self._draft.program,
                self._kernels,
                self._num_threads,
                max_rows=self._scheduler.max_num_seqs,
                max_len=self._longest,
            ),
            bytes_per_block=_native.KvPool.bytes_per_block(
                self._kv_type, self._block_size, self._kv_shapes, self._layers_of_groups
            ),
            kv_groups=self._kv_groups,
        )

    def allocate(self, plan: MemoryPlan, report: ReportProgress) -> None:
        """See `Runner`."""
        layout = self._draft
        if plan.max_model_len != self._longest:
            layout = self._lay_out(plan.max_model_len)
        # Pinned threads were no faster, and two engines would be pinned to the same cores.
        threads = _native.ThreadPool(self._num_threads, pin=False)
        self._weights.load(threads, lambda share: report("weights", share))
        kv = _native.KvPool(
            self._kv_type,
            plan.kv.num_blocks,
            plan.kv.block_size,
            self._kv_shapes,
            self._layers_of_groups,
        )
        self._host = self._make_host_pool(plan.kv)
        self._max_model_len = plan.max_model_len
        max_rows, max_len = self._scheduler.max_num_seqs, plan.max_model_len
        forward = _native.Forward(
            layout.program, self._kernels, threads, kv, max_rows=max_rows, max_len=max_len
        )
        self._session = _native.Session(
            forward,
            self._host,
            max_rows=max_rows,
            max_len=max_len,
            has_idle_core=self._num_threads < cpu_count(),
        )

    def run(self, plan: StepPlan) -> StepResult:
        """See `Runner`."""
        assert self._session is not None, "allocate() comes before run(), close() after it"
        processors = self._processors
        processed_rows, stages = processors.begin(plan) if processors else ([], [])
        answer = self._session.step(
            plan.freed_rows,
            [_native_row(entry) for entry in plan.new_rows],
            plan.table_rows,
            plan.table_groups,
            plan.table_places,
            plan.table_block_ids,
            plan.replaced_rows,
            plan.replaced_token_ids,
            plan.swap_out_from,
            plan.swap_out_to,
            plan.swap_in_from,
            plan.swap_in_to,
            plan.copy_from,
            plan.copy_to,
            plan.rows,
            plan.num_tokens,
            plan.samples,
            plan.mask_rows,
            plan.masks,
            plan.draft_rows,
            plan.draft_token_ids,
            processed_rows,
            stages,
            processors.scratch,
            processors.process,
        )
        sampled, accepted, logprobs, prompt_logprobs, pooled, errors, *times = answer
        seconds, swap_s, sample_s = times
        self._compute_s += seconds
        result = StepResult(
            step_id=plan.step_id,
            sampled=sampled,
            accepted=accepted,
            swap_s=swap_s,
            sample_s=sample_s,
        )
        for row, entry in logprobs:
            result.logprobs.setdefault(row, []).append(TokenLogprobs(*entry))
        for row, entry in prompt_logprobs:
            result.prompt_logprobs.setdefault(row, []).append(TokenLogprobs(*entry))
        if pooled:
            result.pooled = dict(pooled)
        if errors:
            result.errors = dict(errors)
        if processors:
            processors.end(plan, result)
        return result

    @property
    def compute_s(self) -> float:
        """See `Runner`."""
        return self._compute_s

    @property
    def kv_fingerprint(self) -> str:
        """See `Runner`."""
        return kv_fingerprint(
            self._facts,
            max_model_len=self._max_model_len,
            block_size=self._block_size,
            kv_type=self._kv_type.layout,
            groups=self._kv_groups,
            arithmetic=f"native {self._kernels.name} {self._float_type} {self._activation_dtype}",
        )

    def host_slot(self, slot: int) -> memoryview:
        """See `Runner`."""
        assert self._host is not None, "there are no host slots"
        return self._host.slot(slot)

    def describe(self) -> str:
        """See `Runner`."""
        threads = "1 thread" if self._num_threads == 1 else f"{self._num_threads} threads"
        return (
            f"{self._kernels.name}, {threads}, weights {self._weight_types}, "
            f"activations {self._activations}, KV cache {self._kv_type.name}"
        )

    def close(self) -> None:
        """See `Runner`."""
        self._session = self._host = None

    @property
    def _layers_of_groups(self) -> list[list[int]]:
        return [list(group.layers) for group in self._kv_groups]

    def _make_host_pool(self, kv: KVPlan) -> _native.HostPool | None:
        if not kv.num_host_slots:
            return None
        try:
            return _native.HostPool(kv.num_host_slots, kv.bytes_per_block, self._swap_dir)
        except RuntimeError as error:
            raise ConfigError(
                f"--swap-dir: {error}; name another folder or lower --swap-space"
            ) from None

    def _lay_out(self, max_model_len: int) -> _Layout:
        model = model_class(self._facts.architecture)(self._facts, self._weights, max_model_len)
        self._weights.verify()
        max_tokens = self._scheduler.max_num_batched_tokens
        size = StepSize(max_tokens=max_tokens, wanted_rows=min(LOGIT_ROWS, max_tokens))
        placement = place(self._rounded(optimise(record(model))), size)
        return _Layout(build_program(placement, self._weights.native), placement)

    def _rounded(self, recording: Recording) -> Recording:
        """With products of rounded activations, as the option says."""
        asked = self._activation_dtype
        if asked == "float32":
            return recording
        inputs = self._weights.rounded_inputs("int8" if asked == "auto" else asked)
        if inputs.matrices:
            self._activations = "int8" if asked == "auto" else asked
        elif asked != "auto":
            refuse_activation_dtype(asked)
        return round_inputs(recording, inputs)


def _types_by_size(tensors: Iterable[TensorView]) -> str:
    """The types of a checkpoint's tensors, the largest share first."""
    sizes: Counter[str] = Counter()
    for tensor in tensors:
        sizes[tensor.type.name] += tensor.num_bytes
    return "/".join(name for name, _ in sizes.most_common())


def _chosen_kernels() -> _native.Kernels:
    try:
        return _native.find_kernels(env.value(env.CPU_ISA) or "")
    except ValueError as error:
        raise ConfigError(f"{env.CPU_ISA.name}: {error}") from None


def _native_row(entry: NewRow) -> _native.NewRow:
    return _native.NewRow(
        entry.row,
        entry.token_ids,
        entry.num_prompt_tokens,
        entry.num_computed_tokens,
        entry.block_ids,
        native_spec(entry.sampling),
        entry.twin_row,
        _POOLING[entry.pooling],
        entry.second_segment,
    )
