"""LLM: several answers to one prompt, beam search, and answers that take too long."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.errors import InvalidRequestError
from octavo.foundation.clock import ManualClock
from octavo.llm import LLM
from octavo.outputs import RequestOutput
from octavo.sampling_params import BeamSearchParams, SamplingParams
from tests.support.scripted_engine import says, scripted_llm
from tests.support.tiny_tokenizer import tiny_tokenizer

ANSWERS = {"One": " two", "Two": " three four five"}
GREEDY = SamplingParams(temperature=0, max_tokens=20)


def make_llm(**options: Any) -> LLM:
    return scripted_llm(says(ANSWERS), **options)


def quiet(llm: LLM, prompts: Any, params: Any = GREEDY, **options: Any) -> list[RequestOutput]:
    return llm.generate(prompts, params, use_tqdm=False, **options)


# ---- choices


@pytest.mark.parametrize("options", [{}, {"prompt_logprobs": 0}])
def test_choices_compute_their_prompt_once(options: dict[str, Any]) -> None:
    """Each further one costs its own tokens only, with the logprobs of the prompt too."""
    num_computed: list[int] = []
    llm = scripted_llm(
        says({}), before_run=lambda plan: num_computed.append(plan.total_tokens), num_blocks=64
    )
    params = SamplingParams(n=4, seed=1, max_tokens=3, ignore_eos=True, **options)

    (output,) = quiet(llm, [7] * 30, params)

    assert [len(choice.token_ids) for choice in output.outputs] == [3] * 4
    assert sum(num_computed) == 30 + 4 * 2  # the last token of an answer is never computed


# ---- time


def test_an_answer_ends_when_its_time_is_up() -> None:
    """As it is, with the word that says why; one time for all, or one each."""
    clock = ManualClock()
    llm = scripted_llm(
        says({"One": " two three four five six"}, ends=False),
        clock=clock,
        before_run=lambda plan: clock.advance(1.0),
    )

    first, second = quiet(llm, ["One", "One"], timeout=[6.5, None])

    cut, whole = first.outputs[0], second.outputs[0]
    assert (cut.finish_reason, cut.stop_reason) == ("abort", "timeout")
    assert whole.finish_reason == "length"
    assert 0 < len(cut.token_ids) < 8 < len(whole.token_ids)
    assert whole.text.startswith(cut.text)


# ---- beam search


def test_beam_search_gives_the_widths_best_answers() -> None:
    """In vLLM's form, in the order of prompts and scores, whatever the limit on concurrency."""
    llm = make_llm()
    params = BeamSearchParams(beam_width=3, max_tokens=4, ignore_eos=True)
    prompts = ["One", {"prompt": "Two"}, tiny_tokenizer().encode("Two")]

    outputs = llm.beam_search(prompts, params)

    assert [len(output.sequences) for output in outputs] == [3, 3, 3]
    for output, prompt in zip(outputs, ("One", "Two", "Two"), strict=True):
        begin = tiny_tokenizer().encode(prompt)
        sums = [sequence.cum_logprob for sequence in output.sequences]
        assert sums == sorted(sums, reverse=True)
        for sequence in output.sequences:
            assert sequence.tokens[: len(begin)] == begin
            assert len(sequence.logprobs) == len(sequence.tokens) - len(begin) == 4
            assert sequence.finish_reason == "length"
    assert outputs[1] == outputs[2]
    assert llm.beam_search(prompts, params, concurrency_limit=1) == outputs
    assert llm.beam_search("One", params) == outputs[:1]


def test_a_beam_search_that_is_wrong_is_refused_before_it_starts() -> None:
    """By name; nothing has run."""
    llm = make_llm(scheduler={"max_num_seqs": 4})
    params = BeamSearchParams(beam_width=2, max_tokens=4)

    with pytest.raises(InvalidRequestError, match="prompt 1: prompt must not be empty"):
        llm.beam_search(["One", ""], params)
    with pytest.raises(InvalidRequestError, match="beam_width must be at most 4"):
        llm.beam_search("One", BeamSearchParams(beam_width=5, max_tokens=4))
    with pytest.raises(InvalidRequestError, match="concurrency_limit must be a whole number"):
        llm.beam_search("One", params, concurrency_limit=0)
    with pytest.raises(InvalidRequestError, match="adapters are not supported"):
        llm.beam_search("One", params, lora_request=object())  # type: ignore[arg-type]

    assert llm.llm_engine.engine.core.stats().num_steps == 0
    assert llm.beam_search([], params) == []
