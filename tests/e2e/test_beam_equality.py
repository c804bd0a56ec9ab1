"""The equality test for beam search: machinery never changes which beams are found.

Alone = together = chunked = without prefix cache = warm = preempted = swapped, to the bit, on two
tiny models: one that sees everything, and Gemma 3 with windows of 9 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from octavo import LLM, BeamSearchParams
from tests.support.equality import overlapping_prompts, stats
from tests.support.tiny_models import make_oracle, save_folder

BLOCK_SIZE = 8
NEW_TOKENS = 21
WIDTH = 3
MAX_MODEL_LEN = 120
PROMPTS = overlapping_prompts(8, 4, 10)  # of up to 74 tokens
Beams = list[tuple[list[int], float]]
RULES: list[tuple[float, Literal[False, True, "never"]]] = [(1.0, False), (0.0, True)]


def make(folder: Path, **options: Any) -> LLM:
    defaults: dict[str, Any] = {
        "block_size": BLOCK_SIZE,
        "max_model_len": MAX_MODEL_LEN,
        "num_gpu_blocks_override": 1500,
        "threads": 1,
    }
    return LLM(model=str(folder), **(defaults | options))


def beams(llm: LLM, of: Sequence[list[int]] | None = None) -> list[Beams]:
    """All beams of all prompts under both rules, each with its sum of log-probabilities."""
    found: list[Beams] = []
    for length_penalty, early_stopping in RULES:
        params = BeamSearchParams(
            beam_width=WIDTH,
            max_tokens=NEW_TOKENS,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
        )
        given = [{"prompt_token_ids": prompt} for prompt in of or PROMPTS]
        found += [
            [(one.tokens, one.cum_logprob) for one in output.sequences]
            for output in llm.beam_search(given, params)
        ]
    return found


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights."""
    path = tmp_path_factory.mktemp("model") / str(request.param)
    save_folder(make_oracle(request.param), request.param, path)
    return path


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[Beams]:
    """Each search by itself, without a prefix cache: what the others are compared with."""
    with make(folder, enable_prefix_caching=False) as llm:
        each = [beams(llm, [prompt]) for prompt in PROMPTS]
    return [found[rule] for rule in range(len(RULES)) for found in each]


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("budget", [512, 16])
def test_searches_together_find_what_each_finds_alone(
    folder: Path, alone: list[Beams], caching: bool, budget: int
) -> None:
    """A budget of 16 tokens cuts most prompts, and has room for five searches at most."""
    options = {"enable_prefix_caching": caching, "max_num_batched_tokens": budget}
    with make(folder, **options) as llm:
        assert beams(llm) == alone
        assert stats(llm).num_used_blocks == 0


def test_a_warm_cache_changes_nothing(folder: Path, alone: list[Beams]) -> None:
    """The second run finds the prompts of the first."""
    with make(folder) as llm:
        assert beams(llm) == alone
        before = stats(llm).prefix_hit_tokens
        assert beams(llm) == alone
        assert stats(llm).prefix_hit_tokens - before > 300


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption_changes_nothing(
    folder: Path, alone: list[Beams], mode: str, caching: bool
) -> None:
    """A pool for little more than one search: the others yield and come back as a whole."""
    with make(folder) as llm:
        kv_plan = llm.llm_engine.engine.memory_plan.kv
    pool = WIDTH * kv_plan.num_blocks_for(len(PROMPTS[-1]) + NEW_TOKENS)
    options: dict[str, Any] = {
        "num_gpu_blocks_override": pool,
        "preemption_mode": mode,
        "swap_space": 0.01,
        "enable_prefix_caching": caching,
    }
    with make(folder, **options) as llm:
        assert beams(llm) == alone
        now = stats(llm)

    assert now.num_preemptions > 0
    assert (now.num_swaps > 0) == (mode == "swap")
    assert now.num_used_blocks == 0
