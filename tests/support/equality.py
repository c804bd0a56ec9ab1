"""What the equality tests share: prompts that begin alike, answers to the bit, small pools."""

from __future__ import annotations

from collections.abc import Sequence

from octavo import LLM, SamplingParams
from octavo.engine.stats import EngineStats
from octavo.outputs import CompletionOutput
from tests.support.tiny_models import VOCAB_SIZE

STORY = [(11 * i * i + 5 * i + 3) % (VOCAB_SIZE - 5) for i in range(160)]
Answer = list[tuple[int, float]]  # tokens, each with its log-probability


def overlapping_prompts(count: int, shortest: int, longer: int) -> list[list[int]]:
    """Each is `longer` tokens longer than the one before; the odd ones begin alike."""
    begins = [0 if number % 2 else number for number in range(count)]
    return [
        [*STORY[begin : begin + shortest - 1 + longer * number], 40 + number]
        for number, begin in enumerate(begins)
    ]


def answers(llm: LLM, params: SamplingParams, prompts: Sequence[list[int]]) -> list[Answer]:
    """Those of the prompts in one batch. `params` ask for logprobs."""
    given = [{"prompt_token_ids": prompt} for prompt in prompts]
    outputs = llm.generate(given, params, use_tqdm=False)
    return [answer_of(output.outputs[0]) for output in outputs]


def answer_of(output: CompletionOutput) -> Answer:
    """Its tokens with what each had."""
    assert output.logprobs is not None
    chosen = zip(output.token_ids, output.logprobs, strict=True)
    return [(token, entries[token].logprob) for token, entries in chosen]


def displaced(
    llm: LLM, params: SamplingParams, prompts: Sequence[list[int]], first: int, num_steps: int
) -> list[Answer]:
    """The same, each prompt better than the one before; from number `first` on they come only after
    so many steps."""
    engine, found = llm.llm_engine, {}
    for number, prompt in enumerate(prompts):
        if number == first:
            for _ in range(num_steps):
                engine.step()
        engine.add_request(str(number), {"prompt_token_ids": prompt}, params, priority=-number)
    while engine.has_unfinished_requests():
        for output in engine.step():
            if output.finished:
                found[int(output.request_id)] = answer_of(output.outputs[0])
    return [found[number] for number in range(len(prompts))]


def stats(llm: LLM) -> EngineStats:
    """As they stand now."""
    return llm.llm_engine.engine.core.stats()


def pool_for_a_third(llm: LLM, prompts: Sequence[list[int]], new_tokens: int, longest: int) -> int:
    """Blocks for a third of what all prompts hold at their ends, and for `longest` tokens."""
    plan = llm.llm_engine.engine.memory_plan.kv
    held = [plan.num_blocks_for(len(prompt) + new_tokens) for prompt in prompts]
    return max(sum(held) // 3, plan.num_blocks_for(longest))
