"""TransformersRunner: step plans on transformers' code.

Rows, sampling and the KV cache are those of `TorchRunner`. Owns the last look at a model before it
serves: that its sequences do not see each other.
"""

from __future__ import annotations

import hashlib

import torch
import transformers
from torch import Tensor

from octavo.backends.torch.foreign.checkpoint import ForeignCheckpoint
from octavo.backends.torch.foreign.weights import ForeignModel, ForeignWeights
from octavo.backends.torch.kv_cache import TorchKvCache
from octavo.backends.torch.reference import TorchOps
from octavo.backends.torch.runner import DTYPES, TorchRunner
from octavo.config.engine import EngineConfig
from octavo.contracts.kv_plan import MemoryPlan
from octavo.contracts.progress import ReportProgress
from octavo.errors import ConfigError, UnsupportedModelError
from octavo.models.base import CausalLM
from octavo.ops.batch import BatchRow, StepBatch
from octavo.weights.checkpoint import Checkpoint

# Beyond this share of the spread of logits a difference is no rounding.
_LARGEST_SHARE = 0.25


class TransformersRunner(TorchRunner):
    """A `Runner` of models that Octavo does not have."""

    def __init__(
        self, config: EngineConfig, checkpoint: Checkpoint, *, device: str = "cpu"
    ) -> None:
        assert isinstance(checkpoint, ForeignCheckpoint), checkpoint
        if checkpoint.facts.pooling is not None:
            raise ConfigError(
                "--model-impl transformers makes text, not vectors; leave --runner, --convert and "
                "--pooler-config out"
            )
        self._foreign = ForeignWeights(checkpoint, DTYPES.get(config.model.dtype))
        self._folder_config = checkpoint.config
        super().__init__(config, checkpoint, device=device)

    def allocate(self, plan: MemoryPlan, report: ReportProgress) -> None:
        """See `Runner`. Raises UnsupportedModelError for a model whose sequences touch."""
        super().allocate(plan, report)
        self._foreign.settle(plan.max_model_len)
        self._check_apart()

    def describe(self) -> str:
        """See `Runner`."""
        dtype = str(self._foreign.dtype).removeprefix("torch.")
        return (
            f"transformers {transformers.__version__} on {self._device}, weights and activations "
            f"{dtype}, KV cache {self._kv_type.name}"
        )

    def close(self) -> None:
        """See `Runner`."""
        super().close()
        self._foreign.close()

    def _make_weights(self, checkpoint: Checkpoint) -> ForeignWeights:
        return self._foreign

    def _make_model(self, max_model_len: int) -> CausalLM:
        return ForeignModel(self._foreign)

    @property
    def _arithmetic(self) -> str:
        config = hashlib.sha256(self._folder_config.to_json_string().encode()).hexdigest()
        return f"{super()._arithmetic} transformers {transformers.__version__} {config}"

    @torch.inference_mode()
    def _check_apart(self) -> None:
        """A sequence of two tokens, whole and one by one, beside two different neighbours."""
        whole = self._pass(self._small_cache(), ((3, 0), (2, 0)), (5, 6, 7, 2, 3))
        cache = self._small_cache()
        self._pass(cache, ((2, 0), (1, 0)), (9, 4, 2))
        parts = self._pass(cache, ((1, 2), (1, 1)), (8, 3))
        difference = float((whole - parts).square().mean().sqrt())
        if not difference <= _LARGEST_SHARE * float(whole.std()):
            raise UnsupportedModelError(
                f"transformers' code of {self._facts.architecture} cannot be served: a sequence "
                "depends on others beside it or on how it is cut, so its tokens reach each other "
                "by another way than attention"
            )

    def _small_cache(self) -> TorchKvCache:
        return TorchKvCache(
            groups=[group.layers for group in self._kv_groups],
            num_blocks=2 * len(self._kv_groups),
            block_size=self._config.cache.block_size,
            num_kv_heads=self._facts.num_kv_heads,
            head_dim=self._facts.head_dim,
            type=self._kv_type,
            device=self._device,
        )

    def _pass(
        self, cache: TorchKvCache, sizes: tuple[tuple[int, int], ...], token_ids: tuple[int, ...]
    ) -> Tensor:
        """Logits of the last token. `sizes`: tokens of each row, and those computed before."""
        group_rows = []
        for group in range(len(self._kv_groups)):
            rows: list[BatchRow] = []
            for row, (num_tokens, before) in enumerate(sizes):
                first = sum(size for size, _ in sizes[:row])
                rows.append(BatchRow(first, num_tokens, before, (2 * group + row,)))
            group_rows.append(tuple(rows))
        batch = StepBatch(
            token_ids=tuple(id_ % self._facts.vocab_size for id_ in token_ids),
            positions=tuple(
                before + place for num_tokens, before in sizes for place in range(num_tokens)
            ),
            rows=group_rows[0],
            wanted=(len(token_ids) - 1,),
            block_size=self._config.cache.block_size,
        )
        ops = TorchOps(self._foreign.tensors, cache, batch, self._device, group_rows)
        return self._foreign.forward(ops)
