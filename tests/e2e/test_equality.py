"""The permanent equality test: machinery never changes an answer.

Alone = batched = chunked = warm prefix cache = preempted = swapped = forked = restored from disk =
speculated: the same tokens, on the real default model, greedy and with a seeded draw.
`test_window_equality.py` has more ways, on tiny models.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from tests.support.data import smollm2_path

NUM_PROMPTS = 24
NEW_TOKENS = 20
BLOCK_SIZE = 16
Answers = list[list[int]]

GREEDY = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.8, seed=1234, max_tokens=NEW_TOKENS, ignore_eos=True)
SPECULATION = {
    "method": "ngram",
    "num_speculative_tokens": 5,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 1,
}
STORY = (
    "Mira kept a small shop at the corner of the old harbour and every morning she swept the step "
    "before the fishermen came in for rope and lamps and news of the night "
)


def prompts() -> list[str]:
    """24 prompts from a few to about 300 tokens; every third shares its beginning with another."""
    words = (STORY * 10).split()
    made = []
    for number in range(NUM_PROMPTS):
        start = 0 if number % 3 == 0 else number
        made.append(" ".join(words[start : start + 3 + 11 * number]))
    return made


def answers(llm: LLM, params: SamplingParams) -> Answers:
    """The tokens of all prompts in one batch."""
    outputs = llm.generate(prompts(), params, use_tqdm=False)
    return [output.outputs[0].token_ids for output in outputs]


def make(**options: Any) -> LLM:
    """The default model with the default KV type."""
    defaults: dict[str, Any] = {"block_size": BLOCK_SIZE, "max_model_len": 512}
    return LLM(model=str(smollm2_path()), **(defaults | options))


@pytest.fixture(scope="module")
def alone() -> Iterator[dict[str, Answers]]:
    """Each prompt by itself, without a prefix cache: what the others are compared with."""
    with make(enable_prefix_caching=False) as llm:
        yield {
            name: [
                llm.generate(prompt, params, use_tqdm=False)[0].outputs[0].token_ids
                for prompt in prompts()
            ]
            for name, params in (("greedy", GREEDY), ("sampled", SAMPLED))
        }


PARAMS = pytest.mark.parametrize(
    ("name", "params"), [("greedy", GREEDY), ("sampled", SAMPLED)], ids=["greedy", "sampled"]
)


@PARAMS
def test_a_batch_gives_the_answers_of_requests_alone(
    alone: dict[str, Answers], name: str, params: SamplingParams
) -> None:
    """24 requests of mixed lengths in one batch."""
    with make(enable_prefix_caching=False) as llm:
        assert answers(llm, params) == alone[name]


@PARAMS
def test_chunked_prefill_changes_nothing(
    alone: dict[str, Answers], name: str, params: SamplingParams
) -> None:
    """A budget of 32 tokens cuts nearly every prompt, beside running decodes."""
    with make(enable_prefix_caching=False, max_num_batched_tokens=32) as llm:
        assert answers(llm, params) == alone[name]


@PARAMS
def test_a_warm_prefix_cache_changes_nothing(
    alone: dict[str, Answers], name: str, params: SamplingParams
) -> None:
    """The second run finds the blocks of the first, and shared beginnings of its own."""
    with make() as llm:
        cold = answers(llm, params)
        before = llm.llm_engine.engine.core.stats().prefix_hit_tokens
        warm = answers(llm, params)
        hits = llm.llm_engine.engine.core.stats().prefix_hit_tokens - before

    assert cold == alone[name]
    assert warm == alone[name]
    assert hits > 1000


def small_pool() -> int:
    """Blocks for a quarter of what the batch needs at once."""
    with make(enable_prefix_caching=False) as llm:
        tokenizer = llm.get_tokenizer()
        tokens = sum(len(tokenizer.encode(prompt)) + NEW_TOKENS for prompt in prompts())
    return max(tokens // BLOCK_SIZE // 4, 512 // BLOCK_SIZE)


@pytest.mark.parametrize("mode", ["recompute", "swap"])
@PARAMS
def test_preemption_changes_nothing(
    alone: dict[str, Answers], name: str, params: SamplingParams, mode: str
) -> None:
    """Some requests compute again, or their blocks leave and return."""
    options = {"preemption_mode": mode, "swap_space": 0.25}
    with make(num_gpu_blocks_override=small_pool(), **options) as llm:
        found = answers(llm, params)
        stats = llm.llm_engine.engine.core.stats()

    assert stats.num_preemptions > 0
    assert (stats.num_swaps > 0) == (mode == "swap")
    assert found == alone[name]


def test_forks_answer_what_requests_of_their_own_answer(alone: dict[str, Answers]) -> None:
    """Choice i of n is seeded with the seed plus i; the prompt is computed once."""
    several, second = SAMPLED.clone(), SAMPLED.clone()
    several.n, second.seed = 2, 1235
    with make(enable_prefix_caching=False) as llm:
        expected = answers(llm, second)
        before = llm.llm_engine.engine.core.stats().num_step_tokens
        outputs = llm.generate(prompts(), several, use_tqdm=False)
        computed = llm.llm_engine.engine.core.stats().num_step_tokens - before
        prompt_tokens = sum(len(output.prompt_token_ids or ()) for output in outputs)

    assert [output.outputs[0].token_ids for output in outputs] == alone["sampled"]
    assert [output.outputs[1].token_ids for output in outputs] == expected
    assert computed < prompt_tokens + 2 * NUM_PROMPTS * NEW_TOKENS


@PARAMS
def test_speculation_changes_nothing(
    alone: dict[str, Answers], name: str, params: SamplingParams
) -> None:
    """Each prompt by itself, where many tokens are drafted; then all in a batch."""
    with make(speculative_config=SPECULATION) as llm:
        core = llm.llm_engine.engine.core
        for prompt, expected in list(zip(prompts(), alone[name], strict=True))[::4]:
            (output,) = llm.generate(prompt, params, use_tqdm=False)
            assert output.outputs[0].token_ids == expected
        one_by_one = core.stats()
        assert answers(llm, params) == alone[name]

    assert one_by_one.num_accepted_tokens > 0
    assert one_by_one.num_draft_tokens > one_by_one.num_accepted_tokens
    assert core.stats().num_drafts > one_by_one.num_drafts


@PARAMS
def test_speculation_under_pressure_changes_nothing(
    alone: dict[str, Answers], name: str, params: SamplingParams
) -> None:
    """Small steps, preemption by swaps, and two choices of each prompt where they may differ."""
    several = params.clone()
    several.n = 2 if name == "sampled" else 1
    options: dict[str, Any] = {
        "num_gpu_blocks_override": small_pool(),
        "max_num_batched_tokens": 48,
        "preemption_mode": "swap",
        "swap_space": 0.25,
    }
    with make(speculative_config=SPECULATION, **options) as llm:
        outputs = llm.generate(prompts(), several, use_tqdm=False)
        stats = llm.llm_engine.engine.core.stats()

    assert [output.outputs[0].token_ids for output in outputs] == alone[name]
    assert stats.num_swaps > 0
    assert stats.num_accepted_tokens > 0


def test_blocks_from_disk_change_nothing_after_a_restart(
    alone: dict[str, Answers], tmp_path: Path
) -> None:
    """What the first engine evicts, the second one finds."""
    options: dict[str, Any] = {
        "kv_offload_dir": str(tmp_path),
        "num_gpu_blocks_override": small_pool(),
    }
    with make(**options) as llm:
        assert answers(llm, GREEDY) == alone["greedy"]
    with make(**options) as llm:
        found = answers(llm, GREEDY)
        hits = llm.llm_engine.engine.core.stats().external_hit_tokens

    assert hits > 0
    assert found == alone["greedy"]


def test_the_number_of_threads_changes_nothing(alone: dict[str, Answers]) -> None:
    """One thread and three give the bits of the default."""
    for threads in (1, 3):
        with make(threads=threads) as llm:
            assert answers(llm, GREEDY) == alone["greedy"]


def test_two_engines_in_one_process_do_not_know_each_other(alone: dict[str, Answers]) -> None:
    """Interleaved use of two engines gives both the answers of one."""
    with make() as one, make(max_num_batched_tokens=64) as two:
        first, second = answers(one, GREEDY), answers(two, GREEDY)
        again = answers(one, GREEDY)

    assert first == second == again == alone["greedy"]
