"""Every architecture answers the same with a prefix cache, without one, and in chunks.

By way of LLM, on each back end that computes it: greedy tokens are those of transformers, and each
has the log-probability that it has without a cache, on the native back end to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from tests.models.conftest import TinyModels
from tests.support.equality import Answer, answers, stats
from tests.support.tiny_cases import CASES
from tests.support.tiny_models import PROMPT

NEW_TOKENS = 10
NUM_SHARED = 29  # tokens of both prompts: not whole blocks, beyond every small window
BLOCK_SIZE = 8
SMALL_BUDGET = 12  # tokens of a step: prompts are cut, and inside blocks
CLOSE = 1e-3  # on torch the order of sums in a product may depend on the number of rows
PROMPTS = [list(PROMPT[:38]), [*PROMPT[:NUM_SHARED], *PROMPT[3:11]]]
GREEDY = SamplingParams(temperature=0.0, logprobs=0, max_tokens=NEW_TOKENS, ignore_eos=True)
# Frequencies of `dynamic` follow the sequence in transformers, here the longest one allowed.
OTHER_FREQUENCIES = ("llama_rope_dynamic",)

Ask = Callable[..., tuple[list[Answer], int]]


@pytest.fixture
def ask(request: pytest.FixtureRequest, backend: str, tiny_models: TinyModels) -> Ask:
    """(order of prompts, options) -> answers of a new engine one by one, tokens it found cached."""
    checkpoint = tiny_models(request.param, "folder", None).checkpoint
    if backend == "native" and checkpoint.facts.state is not None:
        pytest.skip("layers that carry a state are computed by the torch back end alone")

    def run(order: Sequence[int], **options: Any) -> tuple[list[Answer], int]:
        with LLM(
            model=checkpoint.where,
            backend=backend,
            kv_cache_dtype="float32",
            block_size=BLOCK_SIZE,
            max_model_len=48,
            num_gpu_blocks_override=150,
            threads=1,
            **options,
        ) as llm:
            found = [answers(llm, GREEDY, [PROMPTS[number]])[0] for number in order]
            return found, stats(llm).prefix_hit_tokens

    return run


@pytest.mark.parametrize(
    ("ask", "case"), [(case, case) for case in CASES], ids=list(CASES), indirect=["ask"]
)
def test_a_prefix_cache_and_chunks_change_nothing(
    ask: Ask, case: str, backend: str, tiny_models: TinyModels
) -> None:
    """The second prompt begins like the first, then both come again. States are never cached."""
    model = tiny_models(case, "folder", None)
    expected, _ = ask([0, 1], enable_prefix_caching=False)
    if case not in OTHER_FREQUENCIES:
        tokens = [[token for token, _ in answer] for answer in expected]
        assert [model.oracle_greedy(tuple(prompt), NEW_TOKENS) for prompt in PROMPTS] == tokens

    cached, num_hits = ask([0, 1, 0, 1])
    chunked, _ = ask([0, 1], enable_prefix_caching=False, max_num_batched_tokens=SMALL_BUDGET)
    both, num_hits_chunked = ask([1, 0, 1], max_num_batched_tokens=SMALL_BUDGET)

    assert_same(cached, expected * 2, backend)
    assert_same(chunked, expected, backend)
    assert_same(both, [expected[1], *expected], backend)
    if model.checkpoint.facts.state is not None:
        assert (num_hits, num_hits_chunked) == (0, 0)
        return
    again = [len(prompt) - 1 for prompt in PROMPTS]  # the last token is always computed
    assert num_hits == NUM_SHARED + sum(again)
    assert num_hits_chunked == NUM_SHARED + again[1]


def assert_same(found: list[Answer], expected: list[Answer], backend: str) -> None:
    if backend == "native":
        assert found == expected
        return
    for ours, theirs in zip(found, expected, strict=True):
        assert [token for token, _ in ours] == [token for token, _ in theirs]
        assert [one for _, one in ours] == pytest.approx([one for _, one in theirs], abs=CLOSE)
