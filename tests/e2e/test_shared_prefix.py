"""Rows that share a prefix read it once, and each gets the bits that it gets alone.

On the real default model: logprobs are compared as numbers, without a tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from octavo.outputs import CompletionOutput
from tests.support.data import smollm2_path

BLOCK_SIZE = 16
SYSTEM = (
    "You keep the log of a lighthouse. Each entry names the wind, the ships that passed, what was "
    "repaired and who came to visit; nothing is left out and nothing is made up. "
) * 18
QUESTIONS = [
    "Who came?",
    "Which ships passed the light on the night of the storm?",
    "Why?",
    "And then?",
]
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, logprobs=2)


def make(**options: Any) -> LLM:
    defaults: dict[str, Any] = {"block_size": BLOCK_SIZE, "max_model_len": 1024}
    return LLM(model=str(smollm2_path()), **(defaults | options))


def answer(llm: LLM, prompts: str | list[str], params: SamplingParams) -> list[CompletionOutput]:
    outputs = llm.generate(prompts, params, use_tqdm=False)
    return [choice for output in outputs for choice in output.outputs]


def numbers(choices: list[CompletionOutput]) -> list[tuple[list[int], list[dict[int, float]]]]:
    """Tokens of each choice, and the logprobs of the candidates at each place."""
    return [
        (
            list(choice.token_ids),
            [
                {token: one.logprob for token, one in place.items()}
                for place in choice.logprobs or []
            ],
        )
        for choice in choices
    ]


@pytest.fixture(scope="module", params=["auto", "int8"])
def kv_type(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def alone(kv_type: str) -> Iterator[LLM]:
    """An engine in which no two rows share a block: each request runs by itself."""
    with make(enable_prefix_caching=False, kv_cache_dtype=kv_type) as llm:
        yield llm


def test_rows_behind_one_system_prompt_answer_as_each_alone(alone: LLM, kv_type: str) -> None:
    """Rows of different lengths, more than a small tile holds; the prefix is in the cache."""
    prompts = [SYSTEM + question * (1 + i % 3) for i, question in enumerate(QUESTIONS * 3)]
    expected = [answer(alone, prompt, GREEDY)[0] for prompt in prompts]

    with make(kv_cache_dtype=kv_type) as llm:
        answer(llm, SYSTEM, GREEDY)  # fills the cache
        found = answer(llm, prompts, GREEDY)

    assert numbers(found) == numbers(expected)


def test_eight_choices_answer_as_eight_requests_alone(alone: LLM, kv_type: str) -> None:
    """Choice i of n is seeded with the seed plus i."""
    several = SamplingParams(
        n=8, temperature=0.8, seed=77, max_tokens=12, ignore_eos=True, logprobs=2
    )
    singles = []
    for number in range(8):
        single = several.clone()
        single.n, single.seed = 1, 77 + number
        singles.append(single)
    expected = [answer(alone, SYSTEM, single)[0] for single in singles]

    with make(kv_cache_dtype=kv_type) as llm:
        found = answer(llm, SYSTEM, several)

    assert numbers(found) == numbers(expected)
