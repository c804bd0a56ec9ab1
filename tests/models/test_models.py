"""Every architecture, from every kind of file, on both back ends, gives transformers' numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from gguf import GGMLQuantizationType as GgmlType

from octavo.contracts.step import SamplingSpec
from octavo.runner.native_runner import NativeRunner
from octavo.runner.torch_runner import TorchRunner
from tests.models.conftest import TinyModel, TinyModels
from tests.support.step_driver import (
    MakeRunner,
    RunnerSizes,
    StepDriver,
    all_logprobs,
    generate,
    start_runner,
)
from tests.support.tiny_gguf import ChooseType, all_of, k_quant_mix
from tests.support.tiny_models import CASES, PROMPT, VOCAB_SIZE

BACKENDS: dict[str, MakeRunner] = {"torch": TorchRunner, "native": NativeRunner}
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
]
FILES: dict[str, tuple[str, str, ChooseType | None]] = {
    **{f"{case}-folder": (case, "folder", None) for case in CASES},
    **{f"{case}-{name}.gguf": (case, f"{name}.gguf", choose) for case, name, choose in GGUF_TYPES},
}
# Frequencies of `dynamic` depend on the longest sequence: ours are fixed for it, those of
# transformers follow the sequence. They agree where it is that long, and nowhere else.
LIMITS = {"llama_rope_dynamic-folder": len(PROMPT)}


@dataclass
class Running:
    """A tiny model on a back end."""

    model: TinyModel
    driver: StepDriver


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def running(
    request: pytest.FixtureRequest, backend: str, tiny_models: TinyModels
) -> Iterator[Running]:
    model = tiny_models(*FILES[request.param])
    sizes = RunnerSizes(max_model_len=LIMITS.get(request.param, 128))
    runner = start_runner(BACKENDS[backend], model.checkpoint, sizes)
    yield Running(model, StepDriver(runner, sizes))
    runner.close()


@pytest.mark.parametrize("running", FILES, indirect=True)
def test_logprobs_of_a_prompt_are_those_of_transformers_however_it_is_cut(running: Running) -> None:
    """In one go, in uneven chunks, token by token: the same numbers within float32's noise."""
    for chunks in CHUNKS:
        ours = all_logprobs(running.driver, PROMPT, chunks, VOCAB_SIZE)

        difference = (running.model.logprobs - ours).abs().max()
        assert difference < LARGEST_DIFFERENCE, chunks


@pytest.mark.parametrize("backend", ["native"], indirect=True)
@pytest.mark.parametrize("running", FILES, indirect=True)
def test_native_logprobs_are_the_same_bits_however_a_prompt_is_cut(running: Running) -> None:
    """On one thread and on several, with a KV cache in half precision."""
    results = []
    for threads, chunks in zip((1, 2, 3), CHUNKS, strict=True):
        sizes = RunnerSizes(
            max_model_len=len(PROMPT), kv_cache_dtype="bfloat16", threads=threads
        )
        runner = start_runner(NativeRunner, running.model.checkpoint, sizes)
        results.append(all_logprobs(StepDriver(runner, sizes), PROMPT, chunks, VOCAB_SIZE))
        runner.close()

    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.parametrize("running", [file for file in FILES if file not in LIMITS], indirect=True)
def test_greedy_tokens_are_those_of_transformers(running: Running) -> None:
    """Each from the cache, where transformers computes everything anew."""
    prompt = PROMPT[:19]  # beyond the original context of the longrope case
    expected = running.model.oracle_greedy(prompt, NUM_NEW)

    assert expected == generate(running.driver, prompt, NUM_NEW)
    assert expected == generate(running.driver, prompt, NUM_NEW, chunk=3)


@pytest.mark.parametrize("case", ["llama", "gemma3", "qwen3", "mistral_window"])
def test_a_row_gets_the_same_tokens_in_a_mixed_batch_as_alone(
    case: str, backend: str, tiny_models: TinyModels
) -> None:
    """Prompts of several lengths, some still in prefill while others decode."""
    model = tiny_models(case, "folder", None)
    sizes = RunnerSizes()
    driver = StepDriver(start_runner(BACKENDS[backend], model.checkpoint, sizes), sizes)
    prompts = [PROMPT[:3], PROMPT[5:40], PROMPT[20:29]]
    alone = [generate(driver, prompt, 12) for prompt in prompts]

    rows = [driver.add(prompt) for prompt in prompts]
    while min(len(driver.tokens(row)) - len(p) for row, p in zip(rows, prompts, strict=True)) < 12:
        driver.step({row: min(4, driver.remaining(row)) for row in rows})
    batched = [driver.finish(row)[len(p) :][:12] for row, p in zip(rows, prompts, strict=True)]

    assert alone == batched
    assert [model.oracle_greedy(prompt, 12) for prompt in prompts] == batched


def test_computed_blocks_of_one_request_serve_another(
    backend: str, tiny_models: TinyModels
) -> None:
    """A prefix hit, and a copy of a partly filled block before it is written further."""
    model = tiny_models("gemma3", "folder", None)
    sizes = RunnerSizes()
    driver = StepDriver(start_runner(BACKENDS[backend], model.checkpoint, sizes), sizes)
    expected = generate(driver, PROMPT[:30], 8)
    first = driver.add(PROMPT[:30])
    driver.step({first: 30})
    copied = driver.take_block()

    second = driver.add(PROMPT[:30], num_computed=29, block_ids=[*driver.blocks(first)[:3], copied])
    driver.step({first: 1, second: 1}, copies=[(driver.blocks(first)[3], copied)])
    while len(driver.tokens(second)) < 38:
        driver.step({first: 1, second: 1})

    assert expected == driver.finish(second)[30:]
    assert expected == driver.finish(first)[30:38]


def test_a_resumed_request_continues_with_the_same_tokens(
    backend: str, tiny_models: TinyModels
) -> None:
    """After a preemption the output so far comes back as known tokens behind the prompt."""
    model = tiny_models("qwen2", "folder", None)
    sizes = RunnerSizes()
    driver = StepDriver(start_runner(BACKENDS[backend], model.checkpoint, sizes), sizes)
    seeded = SamplingSpec(temperature=0.9, seed=17, repetition_penalty=1.2)
    expected = generate(driver, PROMPT[:10], 15, seeded)

    row = driver.add([*PROMPT[:10], *expected[:6]], seeded, num_prompt=10)
    driver.step({row: 5})
    driver.step({row: 11})
    while len(driver.tokens(row)) < 25:
        driver.step({row: 1})

    assert expected == driver.finish(row)[10:]


def test_sampled_tokens_are_the_same_on_both_back_ends(tiny_models: TinyModels) -> None:
    """One sampler defines the draw; the logits differ by noise only."""
    model = tiny_models("llama", "folder", None)
    spec = SamplingSpec(temperature=0.8, top_k=50, top_p=0.95, seed=3, presence_penalty=0.4)
    sizes = RunnerSizes()
    answers = [
        generate(
            StepDriver(start_runner(make, model.checkpoint, sizes), sizes), PROMPT[:9], 40, spec
        )
        for make in BACKENDS.values()
    ]

    assert answers[0] == answers[1]


def test_prompt_logprobs_start_at_the_second_token_and_end_with_the_prompt(
    backend: str, tiny_models: TinyModels
) -> None:
    """One entry per prompt token after the first, in whatever chunks; the output has its own."""
    model = tiny_models("llama", "folder", None)
    sizes = RunnerSizes()
    driver = StepDriver(start_runner(BACKENDS[backend], model.checkpoint, sizes), sizes)
    row = driver.add(PROMPT[:10], SamplingSpec(num_logprobs=2, num_prompt_logprobs=0))

    results = [driver.step({row: work}) for work in (4, 6, 1)]

    entries = [entry for result in results for entry in result.prompt_logprobs.get(row, [])]
    assert [[token] for token in PROMPT[1:10]] == [entry.token_ids for entry in entries]
    assert [4, 5, 0] == [len(result.prompt_logprobs.get(row, [])) for result in results]
    assert [False, True, True] == [row in result.logprobs for result in results]
    chosen = results[1].logprobs[row]
    assert 3 == len(chosen.token_ids)
    assert chosen.rank == 1
    after = torch.tensor([entry.logprobs[0] for entry in entries])
    expected = model.logprobs[range(9), PROMPT[1:10]]
    torch.testing.assert_close(expected, after, rtol=0, atol=LARGEST_DIFFERENCE)
