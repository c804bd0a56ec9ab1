"""The equality test on tiny models, where every way to compute an answer can be tried.

Two models: one that sees everything, and Gemma 3 with windows of 9 tokens, whose layers form seven
KV groups; every type of keys and values with one of them. Alone = batched = chunked =
cached = partly cached = preempted = swapped = forked =
restored from disk after a restart = displaced by a better priority.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, SamplingParams
from tests.support.data import gemma3_path
from tests.support.equality import (
    Answer,
    answer_of,
    answers,
    displaced,
    overlapping_prompts,
    pool_for_a_third,
    stats,
)
from tests.support.tiny_models import make_oracle, save_folder

MODELS = {  # kind of model, type of keys and values
    "llama": ("llama", "auto"),
    "gemma3": ("gemma3", "auto"),
    "int8": ("gemma3", "int8"),
    "fp8_e4m3": ("gemma3", "fp8_e4m3"),
    "fp8_e5m2": ("llama", "fp8_e5m2"),
    "int4": ("llama", "int4"),
}
NEW_TOKENS = 30
BLOCK_SIZE = 8
PARAMS = {
    "greedy": SamplingParams(
        temperature=0.0, repetition_penalty=1.3, logprobs=0, max_tokens=NEW_TOKENS, ignore_eos=True
    ),
    "sampled": SamplingParams(
        temperature=2.0,
        logprobs=0,
        seed=77,
        top_p=0.97,
        presence_penalty=0.6,
        max_tokens=NEW_TOKENS,
        ignore_eos=True,
    ),
}
FEW = [5, 9, 31]  # tokens of answers that often repeat themselves
PLAIN = {  # without penalties, which keep a request from drafting
    "greedy": SamplingParams(
        temperature=0.0,
        logprobs=0,
        allowed_token_ids=FEW,
        max_tokens=NEW_TOKENS,
        ignore_eos=True,
    ),
    "sampled": SamplingParams(
        temperature=0.7,
        seed=7,
        top_p=0.9,
        logprobs=0,
        allowed_token_ids=FEW,
        max_tokens=NEW_TOKENS,
        ignore_eos=True,
    ),
}
SPECULATION = {
    "method": "ngram",
    "num_speculative_tokens": 5,
    "prompt_lookup_max": 3,
    "prompt_lookup_min": 1,
}
PROMPTS = overlapping_prompts(12, 6, 11)  # of up to 127 tokens


@dataclass(frozen=True)
class Model:
    """A model with random weights, and the type in which its keys and values are stored."""

    path: Path
    kv_cache_dtype: str = "auto"


def make(model: Model, **options: Any) -> LLM:
    defaults: dict[str, Any] = {
        "kv_cache_dtype": model.kv_cache_dtype,
        "block_size": BLOCK_SIZE,
        "max_model_len": 200,
        "num_gpu_blocks_override": 1500,
        "threads": 1,
    }
    return LLM(model=str(model.path), **(defaults | options))


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    kind, kv_cache_dtype = MODELS[request.param]
    path = tmp_path_factory.mktemp("model") / kind
    save_folder(make_oracle(kind), kind, path)
    return Model(path, kv_cache_dtype)


@pytest.fixture(scope="module")
def alone(model: Model) -> Iterator[dict[str, list[Answer]]]:
    """Each prompt by itself, without a prefix cache: what the others are compared with."""
    with make(model, enable_prefix_caching=False) as llm:
        yield {
            name: [answers(llm, params, [prompt])[0] for prompt in PROMPTS]
            for name, params in PARAMS.items()
        }


@pytest.fixture(params=list(PARAMS))
def name(request: pytest.FixtureRequest) -> str:
    """A name in PARAMS."""
    return str(request.param)


def small_pool(model: Model) -> int:
    """Blocks for a third of what all prompts hold."""
    with make(model) as llm:
        return pool_for_a_third(llm, PROMPTS, NEW_TOKENS, longest=200)


@pytest.mark.parametrize("budget", [512, 16])
def test_batches_and_chunks_change_nothing(
    model: Model, alone: dict[str, list[Answer]], name: str, budget: int
) -> None:
    """A budget of 16 tokens cuts nearly every prompt, beside running decodes."""
    with make(model, enable_prefix_caching=False, max_num_batched_tokens=budget) as llm:
        assert answers(llm, PARAMS[name], PROMPTS) == alone[name]


def test_a_warm_cache_changes_nothing(
    model: Model, alone: dict[str, list[Answer]], name: str
) -> None:
    """The second run finds the blocks of the first."""
    with make(model) as llm:
        assert answers(llm, PARAMS[name], PROMPTS) == alone[name]
        before = stats(llm).prefix_hit_tokens
        assert answers(llm, PARAMS[name], PROMPTS) == alone[name]
        assert stats(llm).prefix_hit_tokens - before > 300


def test_a_block_that_is_found_in_part_changes_nothing(
    model: Model, alone: dict[str, list[Answer]], name: str
) -> None:
    """One prompt after the other: each parts from the one before inside a block."""
    with make(model) as llm:
        found = [answers(llm, PARAMS[name], [prompt])[0] for prompt in PROMPTS]
        now = stats(llm)

    assert found == alone[name]
    assert now.num_blocks_copied > 0
    assert now.prefix_hit_tokens % BLOCK_SIZE != 0


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption_changes_nothing(
    model: Model, alone: dict[str, list[Answer]], name: str, mode: str
) -> None:
    """A pool for a third of the batch; victims compute again, or come back from host slots."""
    pool = small_pool(model)
    options: dict[str, Any] = {"preemption_mode": mode, "swap_space": 0.01}
    with make(model, num_gpu_blocks_override=pool, **options) as llm:
        assert answers(llm, PARAMS[name], PROMPTS) == alone[name]
        now = stats(llm)

    assert now.num_preemptions > 0
    assert (now.num_swaps > 0) == (mode == "swap")
    assert now.num_used_blocks == 0


def test_a_better_request_displaces_without_changing_anything(
    model: Model, alone: dict[str, list[Answer]], name: str
) -> None:
    """The later half is better and arrives while the first half fills the pool."""
    pool = small_pool(model)
    with make(model, num_gpu_blocks_override=pool, scheduling_policy="priority") as llm:
        found = displaced(llm, PARAMS[name], PROMPTS, 6, 8)
        assert stats(llm).num_preemptions > 0

    assert found == alone[name]


@pytest.mark.parametrize("caching", [True, False])
def test_forks_answer_what_requests_of_their_own_answer(model: Model, caching: bool) -> None:
    """Choice i of n has the seed plus i."""
    with make(model, enable_prefix_caching=False) as llm:
        expected = []
        for choice in range(4):
            params = PARAMS["sampled"].clone()
            params.seed = 77 + choice
            expected.append(answers(llm, params, PROMPTS))
    several = PARAMS["sampled"].clone()
    several.n = 4
    with make(model, enable_prefix_caching=caching) as llm:
        given = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
        outputs = llm.generate(given, several, use_tqdm=False)
        now = stats(llm)

    for choice in range(4):
        found = [answer_of(output.outputs[choice]) for output in outputs]
        assert found == expected[choice], choice
    assert now.num_blocks_copied > 0  # the last block is shared until somebody writes into it
    assert now.num_step_tokens < 2 * sum(map(len, PROMPTS)) + 4 * 12 * NEW_TOKENS


def test_blocks_restored_from_disk_change_nothing(
    model: Model, alone: dict[str, list[Answer]], name: str, tmp_path: Path
) -> None:
    """A small pool writes what it evicts; the next start finds it, however small its pool is."""
    pool = small_pool(model)
    options: dict[str, Any] = {"kv_offload_dir": str(tmp_path), "num_gpu_blocks_override": pool}
    with make(model, **options) as llm:
        assert answers(llm, PARAMS[name], PROMPTS) == alone[name]
    with make(model, **options) as llm:
        assert answers(llm, PARAMS[name], PROMPTS) == alone[name]
        now = stats(llm)

    assert now.external_hit_tokens > 0
    assert now.num_blocks_swapped_in > 0


def test_speculation_changes_nothing(model: Model) -> None:
    """Neither the tokens nor one bit of their logprobs, alone and in a pool that is too small."""
    some = [[*prompt[:20], *prompt[:40]] for prompt in PROMPTS[::3]]
    options: dict[str, Any] = {"speculative_config": SPECULATION}
    with make(model, enable_prefix_caching=False) as llm:
        expected = {name: answers(llm, params, some) for name, params in PLAIN.items()}
        plan = llm.llm_engine.engine.memory_plan.kv
    with make(model, **options) as llm:
        for name, params in PLAIN.items():
            for prompt, answer in zip(some, expected[name], strict=True):
                assert answers(llm, params, [prompt]) == [answer]
        assert stats(llm).num_accepted_tokens > 0
        assert stats(llm).num_draft_tokens > stats(llm).num_accepted_tokens
    pool = 2 * plan.num_blocks_for(60 + NEW_TOKENS)
    with make(model, num_gpu_blocks_override=max(pool, plan.num_blocks_for(200)), **options) as llm:
        for name, params in PLAIN.items():
            assert answers(llm, params, some) == expected[name]
        assert stats(llm).num_used_blocks == 0


def test_the_real_gemma_3_answers_the_same_with_speculation() -> None:
    """A text of 580 tokens that repeats itself, with a window of 512."""
    params = PLAIN["greedy"].clone()
    params.allowed_token_ids = None
    part = [(7919 * i * i + 31 * i) % 200_000 + 100 for i in range(60)]
    prompt = [{"prompt_token_ids": [*part * 9, *part[:40]]}]
    sizes: dict[str, Any] = {"max_model_len": 768, "block_size": 16, "threads": None}
    found = []
    for options in ({}, {"speculative_config": SPECULATION}):
        with make(Model(gemma3_path()), **sizes | options) as llm:
            found += [answer_of(llm.generate(prompt, params, use_tqdm=False)[0].outputs[0])]
            now = stats(llm)

    assert found[0] == found[1]
    assert now.num_accepted_tokens > 0


def test_the_real_gemma_3_answers_the_same_beyond_its_window() -> None:
    """700 tokens with a window of 512: chunked, found in part, with released blocks."""
    params = PARAMS["greedy"].clone()
    params.max_tokens = 12
    story = [(7919 * i * i + 31 * i) % 200_000 + 100 for i in range(700)]
    long = [story, [*story[:690], *story[:10]]]
    sizes: dict[str, Any] = {"max_model_len": 768, "block_size": 32, "threads": None}
    with make(Model(gemma3_path()), enable_prefix_caching=False, **sizes) as llm:
        plan = llm.llm_engine.engine.memory_plan.kv
        alone = [answers(llm, params, [prompt])[0] for prompt in long]
    pool = plan.num_blocks_for(768) + 10  # not enough for both
    options = {"num_gpu_blocks_override": pool, "max_num_batched_tokens": 96}
    with make(Model(gemma3_path()), **sizes | options) as llm:
        found = answers(llm, params, long)
        again = [answers(llm, params, [prompt])[0] for prompt in long]
        hits = stats(llm).prefix_hit_tokens

    assert len(plan.groups) == 6
    assert found == alone
    assert again == alone
    assert hits > 600
