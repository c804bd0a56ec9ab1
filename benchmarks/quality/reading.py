"""A text read by a model in one arrangement of types: losses of its tokens, and distributions.

Owns the runner and the way from a piece of text to log-probabilities of the whole vocabulary. Works
below the engine: a piece is one row of one step, of which the runner gives all vectors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from octavo.config.engine import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from octavo.contracts.kv_plan import KVPlan, MemoryPlan
from octavo.contracts.step import NewRow, SamplingSpec, StepPlan
from octavo.runner.native_runner import NativeRunner
from octavo.weights.checkpoint import Checkpoint

ROWS_AT_ONCE = 64  # of logits that are normalised


@dataclass(frozen=True, slots=True)
class Types:
    """What is stored and multiplied as what."""

    activation_dtype: str = "float32"
    kv_cache_dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one arrangement makes of a text."""

    losses: Tensor  # of each scored token, in nats
    distributions: Tensor  # log-probabilities at every so manieth place, [places, vocab_size]
    weight_bytes: int
    kv_bytes_per_token: float


def read(
    checkpoint: Checkpoint, pieces: Sequence[Sequence[int]], types: Types, every: int
) -> Reading:
    """Losses of all tokens of all pieces but the first of each; distributions at each `every`."""
    reader = _Reader(checkpoint, types, max(map(len, pieces)))
    try:
        losses, distributions = [], []
        for piece in pieces:
            for first, scores in reader.scores(piece):
                following = torch.tensor(
                    piece[first + 1 : first + 1 + len(scores)], dtype=torch.long
                )
                scored = scores[: len(following)]
                losses.append(-scored.gather(1, following[:, None]).squeeze(1))
                distributions.append(scored[-first % every :: every].clone())
        needs = reader.needs
        token_bytes = needs.bytes_per_block * len(needs.kv_groups) / reader.block_size
        return Reading(
            torch.cat(losses).double(), torch.cat(distributions), needs.weights_bytes, token_bytes
        )
    finally:
        reader.close()


def compare(base: Reading, other: Reading) -> dict[str, float]:
    """Perplexity, its growth in percent with its standard error, and the mean divergence in nats.

    Growth is the mean difference of the losses of the same token; the error says how much the text
    matters.
    """
    growth = other.losses - base.losses
    return {
        "perplexity": math.exp(other.losses.mean()),
        "growth_percent": 100 * math.expm1(growth.mean()),
        "standard_error_percent": 100 * float(growth.std()) / math.sqrt(len(growth)),
        "divergence_nats": divergence(base.distributions, other.distributions),
        "weight_bytes": other.weight_bytes,
        "kv_bytes_per_token": other.kv_bytes_per_token,
    }


def divergence(base: Tensor, other: Tensor) -> float:
    """Mean Kullback-Leibler divergence of rows of log-probabilities, in nats."""
    total = 0.0
    for exact, rounded in zip(
        torch.split(base, ROWS_AT_ONCE), torch.split(other, ROWS_AT_ONCE), strict=True
    ):
        total += float((exact.exp() * (exact - rounded)).sum(dtype=torch.float64))
    return total / len(base)


class _Reader:
    """One runner with room for one piece."""

    block_size = 32

    def __init__(self, checkpoint: Checkpoint, types: Types, longest: int) -> None:
        length = longest + 1
        config = EngineConfig(
            model=ModelConfig(activation_dtype=types.activation_dtype, max_model_len=length),
            cache=CacheConfig(block_size=self.block_size, kv_cache_dtype=types.kv_cache_dtype),
            scheduler=SchedulerConfig(max_num_batched_tokens=length, max_num_seqs=1),
        )
        self._vocab_size = checkpoint.facts.vocab_size
        self._runner = NativeRunner(config, checkpoint)
        self.needs = self._runner.needs
        self._num_blocks = -(-length // self.block_size)  # of each group
        num_groups = len(self.needs.kv_groups)
        kv = KVPlan(
            num_blocks=self._num_blocks * num_groups,
            block_size=self.block_size,
            bytes_per_block=self.needs.bytes_per_block,
            groups=self.needs.kv_groups,
        )
        plan = MemoryPlan(
            limit_bytes=0,
            usable_bytes=0,
            weights_bytes=self.needs.weights_bytes,
            workspace_bytes=self.needs.workspace_bytes,
            kv=kv,
            max_model_len=length,
        )
        self._runner.allocate(plan, lambda phase, done: None)
        self._tables = [
            list(range(self._num_blocks * group, self._num_blocks * (group + 1)))
            for group in range(num_groups)
        ]
        self._step = 0

    def scores(self, piece: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
        """(first place, log-probabilities after it and the places behind it), some at a time."""
        self._step += 1
        row = NewRow(
            row=0,
            request_id="text",
            token_ids=list(piece),
            num_prompt_tokens=len(piece),
            num_computed_tokens=0,
            block_ids=self._tables,
            sampling=SamplingSpec(),
            pooling="all",
        )
        plan = StepPlan(
            step_id=self._step,
            freed_rows=[0],
            new_rows=[row],
            rows=[0],
            num_tokens=[len(piece)],
            samples=[False],
        )
        result = self._runner.run(plan)
        assert not result.errors, result.errors
        logits = torch.frombuffer(bytearray(result.pooled[0]), dtype=torch.float32)
        rows = logits.view(-1, self._vocab_size)
        for index, part in enumerate(torch.split(rows, ROWS_AT_ONCE)):
            yield index * ROWS_AT_ONCE, part.log_softmax(dim=1)

    def close(self) -> None:
        """Give everything back."""
        self._runner.close()
