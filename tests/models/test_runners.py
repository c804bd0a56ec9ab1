"""Both runners mean the same by a step plan: rows, blocks, copies, draws, logprobs, faults."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from octavo.contracts.step import SamplingSpec
from octavo.ops.kv_types import KV_TYPES
from octavo.runner.base import Runner
from tests.models.conftest import BACKENDS, TinyModel, TinyModels
from tests.support.step_driver import (
    RunnerSizes,
    StepDriver,
    all_logprobs,
    by_id,
    generate,
    start_runner,
)
from tests.support.tiny_models import PROMPT, VOCAB_SIZE

LARGEST_DIFFERENCE = 1e-3
EVERYTHING = SamplingSpec(num_logprobs=VOCAB_SIZE)


class Drawn:
    """The log-probabilities from which each row drew its tokens."""

    def __init__(self, driver: StepDriver) -> None:
        self._driver = driver
        self._entries: dict[int, list[Tensor]] = {}

    def step(self, work: dict[int, int], copies: Sequence[tuple[int, int]] = ()) -> None:
        result = self._driver.step(work, copies)
        for row, entries in result.logprobs.items():
            self._entries.setdefault(row, []).extend(by_id(one, VOCAB_SIZE) for one in entries)

    def count(self, row: int) -> int:
        return len(self._entries.get(row, []))

    def assert_as(self, model: TinyModel, row: int) -> None:
        """Those of transformers, given the same tokens."""
        logits = model.oracle_logits(self._driver.tokens(row)[:-1])
        expected = logits.log_softmax(dim=-1)[-self.count(row) :]
        assert (expected - torch.stack(self._entries[row])).abs().max() < LARGEST_DIFFERENCE


def drive(backend: str, model: TinyModel, sizes: RunnerSizes | None = None) -> StepDriver:
    sizes = sizes or RunnerSizes()
    return StepDriver(start_runner(BACKENDS[backend], model.checkpoint, sizes), sizes)


@pytest.mark.parametrize("case", ["llama", "gemma3", "qwen3", "mistral_window"])
def test_rows_of_a_mixed_batch_do_not_see_each_other(
    case: str, backend: str, tiny_models: TinyModels
) -> None:
    """Prompts of several lengths, some still in prefill while others decode."""
    model = tiny_models(case, "folder", None)
    driver = drive(backend, model)
    rows = [driver.add(prompt, EVERYTHING) for prompt in (PROMPT[:3], PROMPT[5:40], PROMPT[20:29])]
    drawn = Drawn(driver)

    for _ in range(14):
        drawn.step({row: min(4, driver.remaining(row)) for row in rows})

    assert [14, 6, 12] == [drawn.count(row) for row in rows]
    for row in rows:
        drawn.assert_as(model, row)


def test_computed_blocks_of_one_request_serve_another(
    backend: str, tiny_models: TinyModels
) -> None:
    """A prefix hit, and a copy of a partly filled block before both write into theirs."""
    model = tiny_models("llama", "folder", None)
    driver = drive(backend, model)
    drawn = Drawn(driver)
    first = driver.add(PROMPT[:30], EVERYTHING)
    drawn.step({first: 30})
    copied, shared = driver.take_block(), driver.tables(first)[0]

    second = driver.add(
        [*PROMPT[:30], 99], EVERYTHING, num_computed=30, tables=[[*shared[:3], copied]]
    )
    drawn.step({first: 1, second: 1}, copies=[(shared[3], copied)])
    for _ in range(8):
        drawn.step({first: 1, second: 1})

    for row in (first, second):
        drawn.assert_as(model, row)


def test_a_resumed_request_continues_with_the_same_tokens(
    backend: str, tiny_models: TinyModels
) -> None:
    """After a preemption the output so far comes back as known tokens behind the prompt."""
    model = tiny_models("qwen2", "folder", None)
    driver = drive(backend, model)
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
    answers = [generate(drive(name, model), PROMPT[:9], 40, spec) for name in BACKENDS]

    assert answers[0] == answers[1]


def test_prompt_logprobs_start_at_the_second_token_and_end_with_the_prompt(
    backend: str, tiny_models: TinyModels
) -> None:
    """One entry per prompt token after the first, in whatever chunks; the output has its own."""
    model = tiny_models("llama", "folder", None)
    driver = drive(backend, model)
    row = driver.add(PROMPT[:10], SamplingSpec(num_logprobs=2, num_prompt_logprobs=0))

    results = [driver.step({row: work}) for work in (4, 6, 1)]

    entries = [entry for result in results for entry in result.prompt_logprobs.get(row, [])]
    assert [[token] for token in PROMPT[1:10]] == [entry.token_ids for entry in entries]
    assert [4, 5, 0] == [len(result.prompt_logprobs.get(row, [])) for result in results]
    assert [False, True, True] == [row in result.logprobs for result in results]
    chosen = results[1].logprobs[row][0]
    assert 3 == len(chosen.token_ids)
    assert chosen.rank == 1
    after = torch.tensor([entry.logprobs[0] for entry in entries])
    expected = model.logprobs[range(9), PROMPT[1:10]]
    torch.testing.assert_close(expected, after, rtol=0, atol=LARGEST_DIFFERENCE)


def test_asked_tokens_have_the_logprobs_that_they_have_among_all(
    backend: str, tiny_models: TinyModels
) -> None:
    """Behind the drawn one, in the order in which they were asked for."""
    driver, asked = drive(backend, tiny_models("llama", "folder", None)), [7, 3]
    entries = []
    for spec in (EVERYTHING, SamplingSpec(num_logprobs=0, logprob_token_ids=asked)):
        row = driver.add(PROMPT[:10], spec)
        entries.append(driver.step({row: 10}).logprobs[row][0])
        driver.finish(row)

    everything, some = entries
    known = dict(zip(everything.token_ids, everything.logprobs, strict=True))
    assert some.token_ids == [everything.token_ids[0], *asked]
    assert some.logprobs == [known[token] for token in some.token_ids]
    assert some.rank == 1


def test_a_row_without_a_token_to_draw_fails_alone(backend: str, tiny_models: TinyModels) -> None:
    """Its neighbour in the same step gets what it gets without it."""
    model = tiny_models("llama", "folder", None)
    driver = drive(backend, model)
    expected = generate(driver, PROMPT[:8], 5)
    hopeless = SamplingSpec(allowed_token_ids=[7], bad_words=[[7]])
    failing, healthy = driver.add(PROMPT[:5], hopeless), driver.add(PROMPT[:8])

    result = driver.step({failing: 5, healthy: 8})

    assert [failing] == list(result.errors)
    assert 2 == len(result.sampled)
    driver.finish(failing)
    while len(driver.tokens(healthy)) < 13:
        driver.step({healthy: 1})
    assert expected == driver.finish(healthy)[8:]


def test_a_row_is_free_for_the_next_request(backend: str, tiny_models: TinyModels) -> None:
    """Nothing of the old request is left: neither tokens nor penalties."""
    model = tiny_models("llama", "folder", None)
    spec = SamplingSpec(temperature=0.7, seed=5, frequency_penalty=1.0)
    sizes = RunnerSizes(max_num_seqs=1, num_blocks=8)
    expected = generate(drive(backend, model, sizes), PROMPT[:12], 20, spec)
    driver = drive(backend, model, sizes)

    for _ in range(3):
        assert expected == generate(driver, PROMPT[:12], 20, spec)


def test_matrices_are_rounded_to_the_wanted_type(backend: str, tiny_models: TinyModels) -> None:
    """As if the checkpoint had been saved in it; vectors stay."""
    model = tiny_models("llama", "folder", None)
    rounded = copy.deepcopy(model.oracle)
    for parameter in rounded.parameters():
        if parameter.dim() > 1:
            parameter.data = parameter.data.to(torch.bfloat16).float()

    ours = all_logprobs(
        drive(backend, model, RunnerSizes(dtype="bfloat16")), PROMPT, [43], VOCAB_SIZE
    )

    expected = TinyModel(rounded, model.checkpoint).logprobs
    assert (expected - ours).abs().max() < LARGEST_DIFFERENCE
    assert (model.logprobs - ours).abs().max() > LARGEST_DIFFERENCE


@pytest.mark.parametrize("kv_cache_dtype", KV_TYPES)
def test_both_runners_ask_for_the_same_memory_per_block(
    kv_cache_dtype: str, tiny_models: TinyModels
) -> None:
    """Keys and values of a group, here one of seven layers, in the type of the cache."""
    model = tiny_models("gemma3", "folder", None)
    facts, sizes = model.checkpoint.facts, RunnerSizes(kv_cache_dtype=kv_cache_dtype)
    runners: list[Runner] = [drive(name, model, sizes).runner for name in BACKENDS]

    head_bytes = KV_TYPES[kv_cache_dtype].row_bytes(facts.head_dim)
    expected = 2 * facts.num_kv_heads * head_bytes * sizes.block_size
    assert [expected] * 2 == [runner.needs.bytes_per_block for runner in runners]
    assert all(runner.needs.weights_bytes > 0 for runner in runners)
    assert all(runner.needs.workspace_bytes > 0 for runner in runners)
