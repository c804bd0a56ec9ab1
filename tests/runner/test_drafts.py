"""Drafts of a plan: what a row keeps of guesses of its next tokens, on both back ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from octavo.backends.torch.runner import TorchRunner
from octavo.contracts.step import SamplingSpec, TokenLogprobs
from octavo.runner.native_runner import NativeRunner
from tests.support.random_checkpoint import VOCAB_SIZE, RandomCheckpoint
from tests.support.step_driver import MakeRunner, RunnerSizes, StepDriver, start_runner

BACKENDS: dict[str, MakeRunner] = {"native": NativeRunner, "torch": TorchRunner}
SIZES = RunnerSizes()
PROMPT = [(5 * i * i + i + 3) % VOCAB_SIZE for i in range(13)]
NUM_NEW = 20
SPECS = {
    "greedy": SamplingSpec(num_logprobs=2),
    "seeded": SamplingSpec(temperature=1.5, seed=4, top_p=0.9, num_logprobs=2),
    "restricted": SamplingSpec(
        temperature=1.5,
        seed=9,
        bad_words=[[3], [5, 7], [20, 21, 22]],
        allowed_token_ids=list(range(40)),
        min_tokens=9,
        stop_token_ids=[1, 2, 4, 6, 8],
        bias_token_ids=[11, 12],
        bias_values=[2.0, -3.0],
    ),
}


@pytest.fixture(params=list(BACKENDS))
def driver(request: pytest.FixtureRequest) -> StepDriver:
    return StepDriver(start_runner(BACKENDS[request.param], RandomCheckpoint(), SIZES), SIZES)


def answer(
    driver: StepDriver, spec: SamplingSpec, guess: Callable[[list[int]], list[int]]
) -> tuple[list[int], list[TokenLogprobs], int]:
    """The answer to PROMPT with these guesses; logprobs; how many steps it took."""
    row, entries, num_steps = driver.add(PROMPT, spec), list[TokenLogprobs](), 0
    while len(driver.tokens(row)) < len(PROMPT) + NUM_NEW:
        guesses = guess(driver.tokens(row)) if num_steps else []
        result = driver.step({row: driver.remaining(row)}, drafts={row: guesses})
        assert not result.errors
        entries += result.logprobs.get(row, [])
        num_steps += 1
    tokens = driver.finish(row)[len(PROMPT) :][:NUM_NEW]
    return tokens, entries[:NUM_NEW], num_steps


def guesses_of(tokens: list[int], wrong_at: int) -> Callable[[list[int]], list[int]]:
    """Four guesses; those at every `wrong_at`-th place of the answer are wrong, 0: none."""
    whole = [*PROMPT, *tokens]

    def guess(known: list[int]) -> list[int]:
        return [
            (whole[place] + (wrong_at > 0 and place % wrong_at == 0)) % VOCAB_SIZE
            for place in range(len(known), min(len(known) + 4, len(whole)))
        ]

    return guess


@pytest.mark.parametrize("name", SPECS)
def test_guesses_change_neither_tokens_nor_logprobs(driver: StepDriver, name: str) -> None:
    """All right, all wrong, and some of both; torch computes the numbers in another order."""
    spec = SPECS[name]
    tokens, entries, num_steps = answer(driver, spec, lambda known: [])
    assert num_steps == NUM_NEW
    for wrong_at in (0, 1, 2, 3, 5):
        again, other, fewer = answer(driver, spec, guesses_of(tokens, wrong_at))
        assert again == tokens
        assert [one.token_ids[0] for one in other] == [one.token_ids[0] for one in entries]
        for one, two in zip(entries, other, strict=True):
            assert one.logprobs == pytest.approx(two.logprobs, abs=1e-4)
        assert fewer == {0: 5, 1: NUM_NEW}.get(wrong_at, fewer) < NUM_NEW + 1


def test_native_logprobs_have_the_same_bits_with_guesses() -> None:
    """A token at a guess is computed as in a step of its own."""
    driver = StepDriver(start_runner(NativeRunner, RandomCheckpoint(), SIZES), SIZES)
    for spec in SPECS.values():
        tokens, entries, _ = answer(driver, spec, lambda known: [])
        assert (tokens, entries) == answer(driver, spec, guesses_of(tokens, 3))[:2]


def test_rows_with_and_without_guesses_share_a_step(driver: StepDriver) -> None:
    """A prompt, a row that decodes, and two with guesses, one of them wrong at once."""
    spec = SPECS["seeded"]
    alone = answer(driver, spec, lambda known: [])[0]
    rows = [driver.add(PROMPT, spec) for _ in range(3)]
    driver.step(dict.fromkeys(rows, 13))
    late = driver.add(PROMPT, spec)
    guess, wrong = guesses_of(alone, 0), guesses_of(alone, 1)
    work = {rows[0]: 1, rows[1]: 1, late: 13, rows[2]: 1}
    known = driver.tokens(rows[0])
    result = driver.step(work, drafts={rows[1]: guess(known), rows[2]: wrong(known)})

    assert result.accepted == [4, 0]
    kept = [len(driver.tokens(row)) - 13 for row in (*rows, late)]
    assert kept == [2, 6, 2, 1]
    for row, count in zip((*rows, late), kept, strict=True):
        assert driver.tokens(row)[13:] == alone[:count]
