"""What int8 activations cost in quality, on real models and the beginning of a novel.

The text is from Lewis Carroll's "Alice's Adventures in Wonderland" (1865), in the public domain.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from octavo.backends.torch.dequantise import dequantise
from octavo.contracts.step import SamplingSpec
from octavo.runner.native_runner import NativeRunner
from octavo.weights.checkpoint import Checkpoint, TensorView, WeightType
from octavo.weights.gguf_checkpoint import GgufCheckpoint, open_gguf
from tests.support.data import gemma3_path, smollm2_path
from tests.support.step_driver import RunnerSizes, StepDriver, all_logprobs, start_runner

TEXT = (Path(__file__).parent / "alice.txt").read_text(encoding="utf-8")
SIZES = RunnerSizes(
    max_model_len=1024,
    num_blocks=192,  # of any group of layers
    block_size=32,
    max_num_seqs=1,
    max_num_batched_tokens=512,
    threads=2,
)
COMPARED_TOKENS = 24  # by all log-probabilities, which are many


@dataclass(frozen=True)
class Case:
    """A model and by which share its perplexity may grow."""

    checkpoint: Callable[[], GgufCheckpoint]
    limit: float


CASES = {
    "4-bit weights": Case(lambda: open_gguf(smollm2_path()), 0.01),
    "mixed K-quants": Case(lambda: open_gguf(gemma3_path()), 0.01),
    "8-bit weights": Case(lambda: with_8_bits(open_gguf(smollm2_path())), 0.005),
}


@pytest.mark.parametrize("name", CASES)
def test_perplexity_stays_within_the_limit(name: str) -> None:
    """Against float32 activations and the same weights; the distributions stay close as well."""
    checkpoint = CASES[name].checkpoint()
    token_ids = checkpoint.load_tokenizer().encode(TEXT)[: SIZES.max_model_len - 1]

    exact, exact_scores = read(checkpoint, token_ids, "float32")
    fast, fast_scores = read(checkpoint, token_ids, "int8")

    growth = fast - exact  # of the logarithm of the perplexity, when averaged
    doubt = 2 * growth.std() / math.sqrt(len(growth))  # the text is short
    assert abs(growth.mean()) - doubt < CASES[name].limit
    assert 0 < divergence(exact_scores, fast_scores) < 0.005


def read(
    checkpoint: Checkpoint, token_ids: list[int], activation_dtype: str
) -> tuple[Tensor, Tensor]:
    """Losses of all tokens but the first, and all log-probabilities of a part of the text."""
    sizes = replace(SIZES, activation_dtype=activation_dtype)
    runner = start_runner(NativeRunner, checkpoint, sizes)
    driver = StepDriver(runner, sizes)
    row = driver.add(token_ids, SamplingSpec(num_prompt_logprobs=0))
    losses: list[float] = []
    chunk = sizes.max_num_batched_tokens
    for begin in range(0, len(token_ids), chunk):
        result = driver.step({row: min(chunk, len(token_ids) - begin)})
        losses += [-entry.logprobs[0] for entry in result.prompt_logprobs.get(row, [])]
    driver.finish(row)
    part = token_ids[:COMPARED_TOKENS]
    scores = all_logprobs(driver, part, [len(part)], checkpoint.facts.vocab_size)
    runner.close()
    assert len(losses) == len(token_ids) - 1
    return torch.tensor(losses), scores


def divergence(exact: Tensor, other: Tensor) -> float:
    """Mean Kullback-Leibler divergence in nats."""
    exact, other = exact.double(), other.double()
    return float((exact.exp() * (exact - other)).sum(dim=1).mean())


def with_8_bits(checkpoint: GgufCheckpoint) -> GgufCheckpoint:
    """The same model, all matrices as Q8_0."""
    tensors = {name: as_q8_0(view) for name, view in checkpoint.tensors.items()}
    return replace(checkpoint, tensors=tensors)


def as_q8_0(view: TensorView) -> TensorView:
    """Blocks of 32: d as fp16, then bytes of x / d with d = max |x| / 127."""
    if len(view.shape) == 1 or view.type is WeightType.Q8_0:
        return view
    groups = dequantise(view).reshape(-1, 32)  # in the order of halves
    scales = (groups.abs().amax(dim=1, keepdim=True) / 127).half()
    safe = torch.where(scales == 0, 1.0, scales.float())
    quants = (groups / safe).round().clamp(-127, 127).to(torch.int8)
    data = torch.cat([scales.view(torch.int8), quants], dim=1).numpy().tobytes()
    return TensorView(view.name, WeightType.Q8_0, view.shape, memoryview(data))
