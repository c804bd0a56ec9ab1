"""Every architecture, from every kind of file, on both back ends, gives transformers' numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from gguf import GGMLQuantizationType as GgmlType

from octavo.errors import ConfigError
from octavo.runner.native_runner import NativeRunner
from octavo.weights.gguf_checkpoint import GgufCheckpoint
from tests.models.conftest import BACKENDS, TinyModel, TinyModels
from tests.support.step_driver import (
    RunnerSizes,
    StepDriver,
    all_logprobs,
    generate,
    start_runner,
)
from tests.support.tiny_cases import CASES
from tests.support.tiny_gguf import ChooseType, all_of, k_quant_mix
from tests.support.tiny_models import PROMPT, VOCAB_SIZE

LARGEST_DIFFERENCE = 1e-3
NUM_NEW = 24
CHUNKS = ([43], [7, 16, 1, 19], [28, *[1] * 15])

GGUF_TYPES: list[tuple[str, str, ChooseType]] = [
    *(
        ("llama", type.name, all_of(type))
        for type in (
            GgmlType.F32,
            GgmlType.F16,
            GgmlType.BF16,
            GgmlType.Q4_0,
            GgmlType.Q4_1,
            GgmlType.Q5_0,
            GgmlType.Q5_1,
            GgmlType.Q8_0,
        )
    ),
    ("llama_wide", "k-mix", k_quant_mix),
    ("llama_tied_bf16_sharded", "Q4_0", all_of(GgmlType.Q4_0)),
    ("llama_biases_f16", "Q8_0", all_of(GgmlType.Q8_0)),
    ("llama_rope_linear", "F32", all_of(GgmlType.F32)),
    ("llama_rope_yarn", "F32", all_of(GgmlType.F32)),
    ("llama_rope_llama3", "F32", all_of(GgmlType.F32)),
    ("mistral", "BF16", all_of(GgmlType.BF16)),
    ("qwen2", "Q8_0", all_of(GgmlType.Q8_0)),
    ("qwen3", "Q5_1", all_of(GgmlType.Q5_1)),
    ("gemma3", "Q8_0", all_of(GgmlType.Q8_0)),
    ("gemma3_wide", "k-mix", k_quant_mix),
    ("arcee", "Q8_0", all_of(GgmlType.Q8_0)),
    ("cohere", "F16", all_of(GgmlType.F16)),
    ("cohere_qk_norm", "F16", all_of(GgmlType.F16)),
    ("cohere2", "Q8_0", all_of(GgmlType.Q8_0)),
    ("ernie4_5", "Q8_0", all_of(GgmlType.Q8_0)),
    ("falcon", "Q8_0", all_of(GgmlType.Q8_0)),
    ("falcon_grouped", "F16", all_of(GgmlType.F16)),
    ("falcon_grouped_one_norm", "Q8_0", all_of(GgmlType.Q8_0)),
    ("gemma", "BF16", all_of(GgmlType.BF16)),
    ("gemma2", "Q8_0", all_of(GgmlType.Q8_0)),
    ("glm", "Q8_0", all_of(GgmlType.Q8_0)),
    ("glm4", "Q8_0", all_of(GgmlType.Q8_0)),
    ("gpt2", "F32", all_of(GgmlType.F32)),
    ("gpt_bigcode", "Q8_0", all_of(GgmlType.Q8_0)),
    ("gpt_neox", "Q8_0", all_of(GgmlType.Q8_0)),
    ("granite", "Q8_0", all_of(GgmlType.Q8_0)),
    ("mpt", "Q8_0", all_of(GgmlType.Q8_0)),
    ("nemotron", "Q8_0", all_of(GgmlType.Q8_0)),
    ("olmo", "F16", all_of(GgmlType.F16)),
    ("olmo_clip", "F16", all_of(GgmlType.F16)),
    ("olmo2", "Q8_0", all_of(GgmlType.Q8_0)),
    ("olmo3", "F32", all_of(GgmlType.F32)),
    ("phi", "Q8_0", all_of(GgmlType.Q8_0)),
    ("phi3", "Q8_0", all_of(GgmlType.Q8_0)),
    ("phi3_longrope", "F32", all_of(GgmlType.F32)),
    ("seed_oss", "F16", all_of(GgmlType.F16)),
    ("smollm3", "Q8_0", all_of(GgmlType.Q8_0)),
    ("stablelm", "Q8_0", all_of(GgmlType.Q8_0)),
    ("stablelm_parallel", "F32", all_of(GgmlType.F32)),
    ("starcoder2_full", "Q8_0", all_of(GgmlType.Q8_0)),
    ("bloom", "Q8_0", all_of(GgmlType.Q8_0)),
    ("deepseek_v2", "F16", all_of(GgmlType.F16)),
    ("deepseek_v3", "BF16", all_of(GgmlType.BF16)),
    ("llama4_long", "Q8_0", all_of(GgmlType.Q8_0)),
    ("mixtral", "Q8_0", all_of(GgmlType.Q8_0)),
    ("mixtral_wide", "k-mix", k_quant_mix),
    ("mixtral_wide", "IQ2_XXS", all_of(GgmlType.IQ2_XXS)),
    ("qwen2_moe", "F16", all_of(GgmlType.F16)),
    ("qwen3_moe", "Q4_0", all_of(GgmlType.Q4_0)),
    ("olmoe", "Q8_0", all_of(GgmlType.Q8_0)),
    ("granitemoe", "BF16", all_of(GgmlType.BF16)),
    ("gpt_oss", "MXFP4", all_of(GgmlType.MXFP4)),
    ("gpt_oss", "Q8_0", all_of(GgmlType.Q8_0)),
    ("phimoe", "Q8_0", all_of(GgmlType.Q8_0)),
    ("glm4_moe", "Q5_1", all_of(GgmlType.Q5_1)),
]
FILES: dict[str, tuple[str, str, ChooseType | None]] = {
    **{f"{case}-folder": (case, "folder", None) for case in CASES},
    **{f"{case}-{name}.gguf": (case, f"{name}.gguf", choose) for case, name, choose in GGUF_TYPES},
}
QUANTISED = [name for name in FILES if name.partition("-")[2].startswith(("Q", "k-mix"))]
# Frequencies of `dynamic` depend on the longest sequence: ours are fixed for it, those of
# transformers follow the sequence. They agree where it is that long, and nowhere else.
LIMITS = {"llama_rope_dynamic-folder": len(PROMPT)}


@dataclass
class Running:
    """A tiny model on a back end."""

    model: TinyModel
    driver: StepDriver


@pytest.fixture
def running(
    request: pytest.FixtureRequest, backend: str, tiny_models: TinyModels
) -> Iterator[Running]:
    model = tiny_models(*FILES[request.param])
    if backend == "native" and model.checkpoint.facts.state is not None:
        pytest.skip("layers that carry a state are computed by the torch back end alone")
    sizes = RunnerSizes(max_model_len=LIMITS.get(request.param, 128))
    runner = start_runner(BACKENDS[backend], model.checkpoint, sizes)
    yield Running(model, StepDriver(runner, sizes))
    runner.close()


@pytest.mark.parametrize("running", FILES, indirect=True)
def test_logprobs_of_a_prompt_are_those_of_transformers_however_it_is_cut(
    running: Running, backend: str, record_property: Callable[[str, object], None]
) -> None:
    """In one go, in uneven chunks, token by token: the same numbers within float32's noise."""
    differences = []
    for chunks in CHUNKS:
        ours = all_logprobs(running.driver, PROMPT, chunks, VOCAB_SIZE)
        differences.append(float((running.model.logprobs - ours).abs().max()))

        assert differences[-1] < LARGEST_DIFFERENCE, chunks

    checkpoint = running.model.checkpoint  # for tools/model_table.py
    record_property("architecture", checkpoint.facts.architecture)
    record_property("file", "GGUF" if isinstance(checkpoint, GgufCheckpoint) else "folder")
    record_property("backend", backend)
    record_property("largest_difference", max(differences))


@pytest.mark.parametrize("backend", ["native"], indirect=True)
@pytest.mark.parametrize("running", FILES, indirect=True)
def test_native_logprobs_are_the_same_bits_however_a_prompt_is_cut(running: Running) -> None:
    """On one thread and on several, with a KV cache in half precision."""
    results = []
    for threads, chunks in zip((1, 2, 3), CHUNKS, strict=True):
        sizes = RunnerSizes(max_model_len=len(PROMPT), kv_cache_dtype="bfloat16", threads=threads)
        runner = start_runner(NativeRunner, running.model.checkpoint, sizes)
        results.append(all_logprobs(StepDriver(runner, sizes), PROMPT, chunks, VOCAB_SIZE))
        runner.close()

    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("backend", ["native"], indirect=True)
@pytest.mark.parametrize("running", QUANTISED, indirect=True)
def test_int8_activations_keep_their_bits_however_a_prompt_is_cut(running: Running) -> None:
    """Each row is quantised by itself; the numbers are near those of float32 activations."""
    results = {}
    for threads, chunks in zip((1, 2, 3), CHUNKS, strict=True):
        sizes = RunnerSizes(
            max_model_len=len(PROMPT),
            threads=threads,
            activation_dtype="int8" if threads < 3 else "auto",
        )
        runner = start_runner(NativeRunner, running.model.checkpoint, sizes)
        results[threads] = all_logprobs(StepDriver(runner, sizes), PROMPT, chunks, VOCAB_SIZE)
        runner.close()

    assert torch.equal(results[1], results[2])
    assert torch.equal(results[1], results[3])
    exact = running.model.logprobs
    # With experts a rounded activation may send a token to another one.
    most = 0.1 if running.model.checkpoint.facts.moe is None else 0.3
    assert 0.001 * exact.std() < rms(results[1] - exact) < most * exact.std()


@pytest.mark.parametrize("backend", ["native"], indirect=True)
@pytest.mark.parametrize("running", QUANTISED, indirect=True)
def test_int8_activations_mean_the_same_on_both_back_ends(running: Running) -> None:
    """But for activations that float32's noise rounds to the neighbouring integer, layer by layer.

    One op alone is compared more closely in tests/ops.
    """
    sizes = RunnerSizes(max_model_len=len(PROMPT), activation_dtype="int8")
    results = []
    for make_runner in BACKENDS.values():
        runner = start_runner(make_runner, running.model.checkpoint, sizes)
        driver = StepDriver(runner, sizes)
        results.append(all_logprobs(driver, PROMPT, [len(PROMPT)], VOCAB_SIZE))
        runner.close()

    exact = running.model.logprobs
    assert rms(results[0] - results[1]) < rms(results[0] - exact)


@pytest.mark.parametrize("running", ["llama-folder", "llama-BF16.gguf"], indirect=True)
def test_int8_activations_without_quantised_weights_are_refused(
    running: Running, backend: str
) -> None:
    """The error says what would work."""
    sizes = RunnerSizes(activation_dtype="int8")

    with pytest.raises(ConfigError, match=r"dtype int8 .* use --activation-dtype auto"):
        start_runner(BACKENDS[backend], running.model.checkpoint, sizes)


@pytest.mark.parametrize("running", [file for file in FILES if file not in LIMITS], indirect=True)
def test_greedy_tokens_are_those_of_transformers(running: Running) -> None:
    """Each from the cache, where transformers computes everything anew."""
    prompt = PROMPT[:19]  # beyond the original context of the longrope case
    expected = running.model.oracle_greedy(prompt, NUM_NEW)

    assert expected == generate(running.driver, prompt, NUM_NEW)
    assert expected == generate(running.driver, prompt, NUM_NEW, chunk=3)


def rms(values: torch.Tensor) -> float:
    return float(values.square().mean().sqrt())
