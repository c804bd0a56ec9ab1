"""The equality test on tiny models whose layers carry a state, on the torch back end.

One without attention, whose blocks are whole states, and hybrids of each kind. Alone = batched =
chunked = preempted = swapped = forked, and what does not go with a state is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, BeamSearchParams, SamplingParams
from octavo.errors import ConfigError, UnsupportedModelError
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

MODELS = ("mamba2", "qwen3_next", "granitemoehybrid", "jamba")
NEW_TOKENS = 12
BLOCK_SIZE = 8
CLOSE = 1e-3  # the order of sums in a product may depend on the number of rows
PARAMS = {
    "greedy": SamplingParams(
        temperature=0.0, repetition_penalty=1.3, logprobs=0, max_tokens=NEW_TOKENS, ignore_eos=True
    ),
    "sampled": SamplingParams(
        temperature=2.0, logprobs=0, seed=77, top_p=0.97, max_tokens=NEW_TOKENS, ignore_eos=True
    ),
}
PROMPTS = overlapping_prompts(8, 4, 8)  # of up to 60 tokens


def make(model: Path, **options: Any) -> LLM:
    defaults: dict[str, Any] = {
        "backend": "torch",
        "kv_cache_dtype": "float32",
        "block_size": BLOCK_SIZE,
        "max_model_len": 100,
        "num_gpu_blocks_override": 400,
        "threads": 1,
    }
    return LLM(model=str(model), **(defaults | options))


def assert_same(found: list[Answer], expected: list[Answer]) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        assert [token for token, _ in ours] == [token for token, _ in theirs]
        assert [one for _, one in ours] == pytest.approx([one for _, one in theirs], abs=CLOSE)


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / request.param
    save_folder(make_oracle(request.param), request.param, path)
    return path


@pytest.fixture(scope="module")
def alone(model: Path) -> Iterator[dict[str, list[Answer]]]:
    """Each prompt by itself: what the others are compared with."""
    with make(model) as llm:
        yield {
            name: [answers(llm, params, [prompt])[0] for prompt in PROMPTS]
            for name, params in PARAMS.items()
        }


@pytest.fixture(params=list(PARAMS))
def name(request: pytest.FixtureRequest) -> str:
    """A name in PARAMS."""
    return str(request.param)


@pytest.mark.parametrize("budget", [512, 16])
def test_batches_and_chunks_change_nothing(
    model: Path, alone: dict[str, list[Answer]], name: str, budget: int
) -> None:
    """A budget of 16 tokens cuts nearly every prompt, beside running decodes."""
    with make(model, max_num_batched_tokens=budget) as llm:
        assert_same(answers(llm, PARAMS[name], PROMPTS), alone[name])
        assert stats(llm).prefix_hit_tokens == 0
        assert stats(llm).num_used_blocks == 0


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption_changes_nothing(
    model: Path, alone: dict[str, list[Answer]], name: str, mode: str
) -> None:
    """Victims let their states be computed again, or these leave and come back.

    Without attention nobody grows, so nobody is short of blocks: a better request displaces others.
    """
    options: dict[str, Any] = {"preemption_mode": mode, "swap_space": 0.01}
    with make(model) as llm:
        pool = pool_for_a_third(llm, PROMPTS, NEW_TOKENS, longest=100)
    with make(model, num_gpu_blocks_override=pool, scheduling_policy="priority", **options) as llm:
        found = displaced(llm, PARAMS[name], PROMPTS, 4, 5)
        now = stats(llm)

    assert now.num_preemptions > 0
    assert (now.num_swaps > 0) == (mode == "swap")
    assert now.num_used_blocks == 0
    assert_same(found, alone[name])


@pytest.mark.parametrize("max_num_seqs", [16, 2])
def test_choices_answer_what_requests_of_their_own_answer(model: Path, max_num_seqs: int) -> None:
    """Choice i of n has the seed plus i. With two rows the third computes the prompt anew."""
    given = PROMPTS[2:5]
    expected = []
    with make(model) as llm:
        for choice in range(3):
            params = PARAMS["sampled"].clone()
            params.seed = 77 + choice
            expected.append(answers(llm, params, given))
    several = PARAMS["sampled"].clone()
    several.n = 3
    with make(model, max_num_seqs=max_num_seqs) as llm:
        inputs = [{"prompt_token_ids": prompt} for prompt in given]
        outputs = llm.generate(inputs, several, use_tqdm=False)
        assert stats(llm).num_blocks_copied > 0

    for choice in range(3):
        assert_same([answer_of(output.outputs[choice]) for output in outputs], expected[choice])


def test_one_beam_answers_greedily_and_of_several_each_has_its_own_score(model: Path) -> None:
    """Beams take their states with them when they part."""
    prompt = [{"prompt_token_ids": PROMPTS[3]}]
    greedy = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
    with make(model) as llm:
        (output,) = llm.generate(prompt, greedy, use_tqdm=False)
        found = {}
        for width in (1, 4):
            params = BeamSearchParams(beam_width=width, max_tokens=6, ignore_eos=True)
            found[width] = llm.beam_search(prompt, params)[0].sequences
        best = found[4][0]
        scored = llm.generate(
            [{"prompt_token_ids": best.tokens}],
            SamplingParams(max_tokens=1, prompt_logprobs=0),
            use_tqdm=False,
        )[0].prompt_logprobs

    assert list(output.outputs[0].token_ids) == found[1][0].tokens[-6:]
    assert scored is not None
    of_answer = list(zip(best.tokens, scored, strict=True))[-6:]
    logprobs = [entries[token].logprob for token, entries in of_answer if entries]
    assert sum(logprobs) == pytest.approx(best.cum_logprob, abs=6 * CLOSE)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("speculative_config", {"method": "ngram", "num_speculative_tokens": 3}),
        ("kv_offload_dir", "somewhere"),
    ],
)
def test_what_needs_an_earlier_state_is_refused_by_name(
    model: Path, option: str, value: object
) -> None:
    """Guesses that may be wrong, and blocks that are found again."""
    flag = "--" + option.replace("_", "-")
    with pytest.raises(ConfigError, match=rf"{flag}: \w+ carries a state .* leave it out"):
        make(model, **{option: value})


def test_the_native_back_end_names_the_one_that_can(model: Path) -> None:
    """Before anything is read."""
    with pytest.raises(UnsupportedModelError, match="use --backend torch"):
        make(model, backend="native")
