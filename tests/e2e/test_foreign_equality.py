"""The equality test for models of transformers' code: by way of LLM, with all that serving does.

Three architectures that Octavo lacks, found by themselves, and three that it has, forced. Alone =
batched = chunked = cached = preempted = swapped, and all of it transformers' own greedy tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from octavo import LLM, SamplingParams
from tests.support.equality import overlapping_prompts, pool_for_a_third, stats
from tests.support.tiny_models import make_oracle, save_folder

LACKING = ("exaone4", "vaultgemma", "dots1")
OWN = ("llama", "gemma3", "gpt_oss")
NEW_TOKENS = 26
PENALTY = 1.3  # else some random models say one token for ever
BLOCK_SIZE = 8
GREEDY = SamplingParams(
    temperature=0.0, repetition_penalty=PENALTY, max_tokens=NEW_TOKENS, ignore_eos=True
)
FEW = SamplingParams(  # penalties keep a request from drafting, few tokens repeat themselves
    temperature=0.0, allowed_token_ids=[5, 9, 31], max_tokens=NEW_TOKENS, ignore_eos=True
)
PROMPTS = overlapping_prompts(12, 6, 8)  # of up to 94 tokens


@dataclass(frozen=True)
class Model:
    """A folder, and what transformers answers."""

    path: Path
    is_forced: bool
    expected: list[list[int]]


@pytest.fixture(scope="module", params=[*LACKING, *OWN])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    case = request.param
    path = tmp_path_factory.mktemp("model") / case
    oracle = make_oracle(case)
    save_folder(oracle, case, path)
    return Model(path, case in OWN, [greedy(oracle, prompt) for prompt in PROMPTS])


@torch.inference_mode()
def greedy(oracle: PreTrainedModel, prompt: Sequence[int]) -> list[int]:
    token_ids = list(prompt)
    for _ in range(NEW_TOKENS):
        logits = oracle(torch.tensor([token_ids])).logits[0, -1]
        seen = list(set(token_ids))
        known = logits[seen]
        logits[seen] = torch.where(known > 0, known / PENALTY, known * PENALTY)
        token_ids.append(int(logits.argmax()))
    return token_ids[len(prompt) :]


def make(model: Model, **options: Any) -> LLM:
    defaults: dict[str, Any] = {
        "backend": "torch",
        "model_impl": "transformers" if model.is_forced else "auto",
        "dtype": "float32",
        "kv_cache_dtype": "float32",
        "block_size": BLOCK_SIZE,
        "max_model_len": 136,
        "num_gpu_blocks_override": 400,
        "threads": 1,
    }
    return LLM(model=str(model.path), **(defaults | options))


def answers(
    llm: LLM, prompts: Sequence[list[int]] = PROMPTS, params: SamplingParams = GREEDY
) -> list[list[int]]:
    given = [{"prompt_token_ids": prompt} for prompt in prompts]
    outputs = llm.generate(given, params, use_tqdm=False)
    return [list(output.outputs[0].token_ids) for output in outputs]


@pytest.fixture
def llm(model: Model) -> Iterator[LLM]:
    with make(model) as running:
        yield running


def test_a_batch_answers_what_transformers_answers(model: Model, llm: LLM) -> None:
    """And so does each prompt alone, after the others, out of a warm cache."""
    assert llm.llm_engine.engine.hardware.startswith("transformers ")
    assert answers(llm) == model.expected
    before = stats(llm).prefix_hit_tokens
    assert [answers(llm, [prompt])[0] for prompt in PROMPTS] == model.expected
    assert stats(llm).prefix_hit_tokens - before > 150


def test_chunks_beside_decoding_rows_change_nothing(model: Model) -> None:
    """A budget of 16 tokens cuts nearly every prompt; blocks are found in part."""
    with make(model, max_num_batched_tokens=16) as llm:
        assert [answers(llm, [prompt])[0] for prompt in PROMPTS[::-1]] == model.expected[::-1]
        assert answers(llm) == model.expected
        assert stats(llm).num_blocks_copied > 0


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_preemption_changes_nothing(model: Model, mode: str) -> None:
    """Victims compute again, or come back from host slots."""
    with make(model) as llm:
        pool = pool_for_a_third(llm, PROMPTS, NEW_TOKENS, longest=136)
    options: dict[str, Any] = {"preemption_mode": mode, "swap_space": 0.01}
    with make(model, num_gpu_blocks_override=pool, **options) as llm:
        assert answers(llm) == model.expected
        now = stats(llm)

    assert now.num_preemptions > 0
    assert (now.num_swaps > 0) == (mode == "swap")
    assert now.num_used_blocks == 0


def test_speculation_changes_nothing(model: Model, llm: LLM) -> None:
    """Guesses are tested in one step with what they follow."""
    speculation = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}
    expected = answers(llm, PROMPTS[:4], FEW)
    with make(model, speculative_config=speculation) as drafting:
        assert answers(drafting, PROMPTS[:4], FEW) == expected
        assert stats(drafting).num_accepted_tokens > 0
