"""Two real models give the tokens and log-probabilities that were recorded from transformers.

Everything in float32 but the weights, which are what the file holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from octavo.contracts.step import SamplingSpec, TokenLogprobs
from octavo.runner.native_runner import NativeRunner
from octavo.weights.gguf_checkpoint import open_gguf
from tests.support.data import gemma3_path, reference, smollm2_path
from tests.support.step_driver import RunnerSizes, StepDriver, start_runner

MODELS: dict[str, Callable[[], Path]] = {
    "smollm2-135m-instruct-q4_1": smollm2_path,
    "gemma-3-270m-q4_k_m": gemma3_path,
}
CLOSE_CALL = 0.02  # gap between the best two logprobs below which rounding may decide
LARGEST_DIFFERENCE = 0.01
SIZES = RunnerSizes(
    max_model_len=1024,
    num_blocks=6 * 128,  # Gemma 3 has six KV groups
    block_size=32,
    max_num_seqs=24,
    max_num_batched_tokens=512,
    threads=2,
)


@dataclass(frozen=True)
class Golden:
    """A running model and what it should say."""

    driver: StepDriver
    entries: list[dict[str, Any]]


@pytest.fixture(scope="module", params=list(MODELS))
def golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    entries = reference(request.param)["entries"]
    runner = start_runner(NativeRunner, open_gguf(MODELS[request.param]()), SIZES)
    yield Golden(StepDriver(runner, SIZES), entries)
    runner.close()


def test_every_recorded_token_has_the_recorded_logprob(golden: Golden) -> None:
    """The recorded answers are read as prompts, so that one close call does not spoil the rest."""
    for entry in golden.entries:
        prompt, answer = entry["prompt_token_ids"], entry["output_token_ids"]

        entries = score(golden.driver, prompt, answer)

        assert len(answer) == len(entries)
        for token, step, found in zip(answer, entry["steps"], entries, strict=True):
            assert abs(step["logprob"] - found.logprobs[0]) < LARGEST_DIFFERENCE, entry
            if step["gap"] >= CLOSE_CALL:
                assert (token, 1) == (found.token_ids[1], found.rank), entry


def test_greedy_answers_are_the_recorded_ones_up_to_a_close_call(golden: Golden) -> None:
    """All prompts at once: long and short ones in the same steps."""
    answers = generate_together(golden.driver, golden.entries)

    for entry, answer in zip(golden.entries, answers, strict=True):
        for token, step, actual in zip(
            entry["output_token_ids"], entry["steps"], answer, strict=True
        ):
            if token != actual and step["gap"] < CLOSE_CALL:
                break  # from here on it is another text
            assert token == actual, entry["text"]


def score(driver: StepDriver, prompt: list[int], answer: list[int]) -> list[TokenLogprobs]:
    """Entries of the tokens of `answer` after `prompt`, each with the best one beside it."""
    computed = driver.add(prompt)
    while driver.remaining(computed) > 1:
        work = min(SIZES.max_num_batched_tokens, driver.remaining(computed) - 1)
        driver.step({computed: work})

    row = driver.add(
        [*prompt, *answer],
        SamplingSpec(num_prompt_logprobs=1),
        num_computed=len(prompt) - 1,
        tables=driver.tables(computed),
    )
    result = driver.step({row: driver.remaining(row)})
    driver.finish(row)
    driver.finish(computed)
    assert not result.errors
    return result.prompt_logprobs[row]


def generate_together(driver: StepDriver, entries: list[dict[str, Any]]) -> list[list[int]]:
    """Greedy answers as long as the recorded ones."""
    wanted = {
        driver.add(entry["prompt_token_ids"]): len(entry["prompt_token_ids"])
        + len(entry["output_token_ids"])
        for entry in entries
    }
    unfinished = set(wanted)
    while unfinished:
        budget = SIZES.max_num_batched_tokens
        work: dict[int, int] = {}
        for row in sorted(unfinished, key=driver.remaining):
            work[row] = min(driver.remaining(row), budget)
            budget -= work[row]
        result = driver.step({row: tokens for row, tokens in work.items() if tokens})
        assert not result.errors
        unfinished = {row for row in unfinished if len(driver.tokens(row)) < wanted[row]}
    prompts = [len(entry["prompt_token_ids"]) for entry in entries]
    return [driver.finish(row)[length:] for row, length in zip(wanted, prompts, strict=True)]
