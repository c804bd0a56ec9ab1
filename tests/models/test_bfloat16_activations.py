"""Models of BF16 weights whose activations are rounded to bfloat16."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from gguf import GGMLQuantizationType as GgmlType
from torch import Tensor

from octavo.errors import ConfigError
from octavo.runner.native_runner import NativeRunner
from tests.models.conftest import BACKENDS, TinyModel, TinyModels
from tests.support.step_driver import (
    MakeRunner,
    RunnerSizes,
    StepDriver,
    all_logprobs,
    start_runner,
)
from tests.support.tiny_gguf import all_of
from tests.support.tiny_models import PROMPT, VOCAB_SIZE

DENSE = ("llama", "gemma")
EXPERTS = ("deepseek_v3", "granitemoe")
CHUNKS = ([43], [7, 16, 1, 19], [28, *[1] * 15])
SIZES = RunnerSizes(max_model_len=len(PROMPT), activation_dtype="bfloat16")


@pytest.fixture(params=(*DENSE, *EXPERTS))
def model(request: pytest.FixtureRequest, tiny_models: TinyModels) -> TinyModel:
    return tiny_models(request.param, "BF16.gguf", all_of(GgmlType.BF16))


def logprobs(
    make_runner: MakeRunner, model: TinyModel, sizes: RunnerSizes, chunks: list[int] = CHUNKS[0]
) -> Tensor:
    """After each token of PROMPT: [len(PROMPT), vocab_size]."""
    runner = start_runner(make_runner, model.checkpoint, sizes)
    found = all_logprobs(StepDriver(runner, sizes), PROMPT, chunks, VOCAB_SIZE)
    runner.close()
    return found


def rms(difference: Tensor) -> float:
    return float(difference.square().mean().sqrt())


def test_they_keep_their_bits_however_a_prompt_is_cut(model: TinyModel) -> None:
    """Each row is rounded by itself, and multiplied in one order."""
    results = [
        logprobs(NativeRunner, model, replace(SIZES, threads=threads), chunks)
        for threads, chunks in zip((1, 2, 3), CHUNKS, strict=True)
    ]

    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_they_mean_the_same_on_both_back_ends(model: TinyModel) -> None:
    """But for numbers that float32's noise rounds to the neighbour, layer by layer."""
    native, torch_ = (logprobs(make_runner, model, SIZES) for make_runner in BACKENDS.values())

    assert rms(native - torch_) < rms(native - model.logprobs)


@pytest.mark.parametrize("model", DENSE, indirect=True)
def test_they_are_nearer_to_float32_than_transformers_in_bfloat16(model: TinyModel) -> None:
    """Which rounds the same inputs, and norms, sums and attention besides."""
    half = replace(model, oracle=deepcopy(model.oracle).bfloat16())
    theirs = half.oracle_logits(PROMPT).float().log_softmax(dim=-1)

    ours = logprobs(NativeRunner, model, SIZES)

    assert 0 < rms(ours - model.logprobs) < rms(theirs - model.logprobs)
    assert rms(ours - theirs) < 2 * rms(theirs - model.logprobs)


@pytest.mark.parametrize("model", EXPERTS, indirect=True)
def test_they_stay_near_to_float32_where_a_router_chooses(model: TinyModel) -> None:
    """A rounded activation may send a token to another expert, which is no small step."""
    ours = logprobs(NativeRunner, model, SIZES)

    assert 0 < rms(ours - model.logprobs) < 0.3 * float(model.logprobs.std())


@pytest.mark.parametrize("backend", BACKENDS)
def test_they_need_weights_in_bfloat16(tiny_models: TinyModels, backend: str) -> None:
    """The error says what would work, and it does."""
    model = tiny_models("llama", "F32.gguf", all_of(GgmlType.F32))

    with pytest.raises(ConfigError, match=r"dtype bfloat16 needs BF16 .* add --dtype bfloat16"):
        start_runner(BACKENDS[backend], model.checkpoint, SIZES)

    runner = start_runner(BACKENDS[backend], model.checkpoint, replace(SIZES, dtype="bfloat16"))
    assert "activations bfloat16" in runner.describe()


def test_auto_leaves_them_exact(tiny_models: TinyModels) -> None:
    """Where nothing was asked for, float weights get float32 activations."""
    model = tiny_models("llama", "BF16.gguf", all_of(GgmlType.BF16))

    asked, auto = (
        logprobs(NativeRunner, model, replace(SIZES, activation_dtype=dtype))
        for dtype in ("float32", "auto")
    )

    assert torch.equal(asked, auto)
