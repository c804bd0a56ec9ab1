"""Beam search on the two real models returns the sequences and scores of transformers.

`tools/make_beam_goldens.py` recorded them from transformers with the same numbers in float32; it
leaves out searches that hang on rounding. One short search is compared live.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from octavo import LLM, BeamSearchParams
from octavo.chat.template import ChatTemplate
from octavo.config.keywords import engine_config
from octavo.engine.async_engine import AsyncLLM
from octavo.outputs import BeamSearchOutput
from tests.support.asgi import server_on
from tests.support.data import gemma3_path, smollm2_path
from tests.support.gguf_oracle import BeamAnswer, BeamCase, load_oracle, oracle_beams

MODELS: dict[str, Callable[[], Path]] = {
    "smollm2-135m-instruct-q4_1": smollm2_path,
    "gemma-3-270m-q4_k_m": gemma3_path,
}
LARGEST_DIFFERENCE = 1e-3  # of scores
EXACT = {"kv_cache_dtype": "float32", "activation_dtype": "float32", "max_model_len": 1024}
CAPITAL = [504, 3575, 282, 4649, 314]  # SmolLM2's tokens of "The capital of France is"


@dataclass(frozen=True)
class Golden:
    """A running model and what its searches should find."""

    llm: LLM
    found: list[tuple[BeamCase, list[BeamAnswer]]]


@pytest.fixture(scope="module", params=list(MODELS))
def golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    path = Path(__file__).parent / "data" / f"beams-{request.param}.json"
    found = []
    for entry in json.loads(path.read_text(encoding="utf-8"))["entries"]:
        beams = [BeamAnswer(**beam) for beam in entry.pop("beams")]
        found.append((BeamCase(**entry), beams))
    with LLM(str(MODELS[request.param]()), **EXACT) as llm:
        yield Golden(llm, found)


def params_of(case: BeamCase) -> BeamSearchParams:
    return BeamSearchParams(
        beam_width=case.beam_width,
        max_tokens=case.max_tokens,
        ignore_eos=case.ignore_eos,
        length_penalty=case.length_penalty,
        early_stopping=case.early_stopping,  # type: ignore[arg-type] - JSON has no literals
        include_stop_str_in_output=True,
    )


def search(llm: LLM, *cases: BeamCase) -> list[list[BeamAnswer]]:
    """What `LLM.beam_search` answers; the cases differ in their prompts only."""
    prompts = [{"prompt_token_ids": case.prompt_token_ids} for case in cases]
    outputs = llm.beam_search(prompts, params_of(cases[0]))
    return [answers_of(output, case) for output, case in zip(outputs, cases, strict=True)]


def answers_of(output: BeamSearchOutput, case: BeamCase) -> list[BeamAnswer]:
    answers = []
    for sequence in output.sequences:
        token_ids = sequence.tokens[len(case.prompt_token_ids) :]
        score = sequence.cum_logprob / len(token_ids) ** case.length_penalty
        answers.append(BeamAnswer(token_ids, score))
    return answers


def assert_same(found: list[BeamAnswer], expected: list[BeamAnswer], case: BeamCase) -> None:
    assert [one.token_ids for one in expected] == [one.token_ids for one in found], case
    for one, other in zip(expected, found, strict=True):
        assert one.score == pytest.approx(other.score, abs=LARGEST_DIFFERENCE), case


def test_beams_are_those_of_transformers(golden: Golden) -> None:
    """All of them, in order: with ends inside and without, for every rule of stopping."""
    for case, expected in golden.found:
        (found,) = search(golden.llm, case)
        assert_same(found, expected, case)


def test_searches_that_run_together_are_those_of_transformers(golden: Golden) -> None:
    """All prompts of a width in the same steps."""
    together: dict[Any, list[tuple[BeamCase, list[BeamAnswer]]]] = {}
    for case, expected in golden.found:
        way = (case.beam_width, case.length_penalty, case.early_stopping, case.max_tokens)
        together.setdefault((*way, case.ignore_eos), []).append((case, expected))

    for group in together.values():
        answers = search(golden.llm, *(case for case, _ in group))
        for found, (case, expected) in zip(answers, group, strict=True):
            assert_same(found, expected, case)


def test_the_recorded_searches_cover_what_they_should(golden: Golden) -> None:
    """Widths, penalties, rules; beams that ended early beside beams that did not."""
    cases = [case for case, _ in golden.found]
    lengths = [
        (case, [len(beam.token_ids) < case.max_tokens for beam in beams])
        for case, beams in golden.found
    ]

    assert {case.beam_width for case in cases} == {2, 4}
    assert {case.length_penalty for case in cases} == {0.0, 1.0, 2.0}
    assert {case.early_stopping for case in cases} == {False, True, "never"}
    assert {case.ignore_eos for case in cases} == {False, True}
    assert len({tuple(case.prompt_token_ids) for case in cases}) >= 3
    assert any(any(are_short) for _, are_short in lengths)
    assert any(not any(are_short) for _, are_short in lengths)


def test_a_search_made_now_by_transformers_finds_the_same() -> None:
    """Not only what was recorded once."""
    case = BeamCase(CAPITAL, 3, 1.0, early_stopping=False, max_tokens=6)
    with LLM(str(smollm2_path()), **EXACT) as llm:
        (found,) = search(llm, case)

    assert_same(found, oracle_beams(load_oracle(smollm2_path()), case), case)


@pytest.mark.parametrize("early_stopping", [True, "never"])
async def test_a_search_over_http_finds_what_python_finds(early_stopping: bool | str) -> None:
    """`use_beam_search` in completions: the same tokens in the same order."""
    case = BeamCase(CAPITAL, 4, 2.0, early_stopping, max_tokens=8)
    with LLM(str(smollm2_path()), **EXACT) as llm:
        (expected,) = search(llm, case)
    body = {
        "prompt": case.prompt_token_ids,
        "use_beam_search": True,
        "n": case.beam_width,
        "length_penalty": case.length_penalty,
        "early_stopping": early_stopping,
        "max_tokens": case.max_tokens,
        "return_token_ids": True,
        "logprobs": 1,
    }

    config = engine_config({"model": str(smollm2_path()), **EXACT})
    async with server_on(AsyncLLM.start(config)) as client:
        reply = await client.post("/v1/completions", body)

    assert reply.status == 200, reply.content
    choices = reply.json["choices"]
    assert [choice["token_ids"] for choice in choices] == [one.token_ids for one in expected]
    for choice, one in zip(choices, expected, strict=True):
        total = sum(choice["logprobs"]["token_logprobs"])
        assert one.score == pytest.approx(total / len(one.token_ids) ** 2.0, abs=1e-4)


async def test_a_search_in_a_chat_finds_what_python_finds_for_its_prompt() -> None:
    """The template makes the prompt; the answers are texts without the end token."""
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    params = BeamSearchParams(beam_width=4, max_tokens=12)
    with LLM(str(smollm2_path()), **EXACT) as llm:
        engine, tokenizer = llm.llm_engine.engine, llm.get_tokenizer()
        template = ChatTemplate(engine.chat_template, tokenizer.special_tokens)
        text = template.render(messages, add_generation_prompt=True)
        prompt = tokenizer.encode(text, add_special_tokens=False)
        (output,) = llm.beam_search({"prompt_token_ids": prompt}, params)
        expected = [tokenizer.decode(one.tokens[len(prompt) :]) for one in output.sequences]

    config = engine_config({"model": str(smollm2_path()), **EXACT})
    body = {"messages": messages, "use_beam_search": True, "n": 4, "max_tokens": 12}
    async with server_on(AsyncLLM.start(config)) as client:
        reply = await client.post("/v1/chat/completions", body)

    assert reply.status == 200, reply.content
    assert [choice["message"]["content"] for choice in reply.json["choices"]] == expected
    assert {choice["finish_reason"] for choice in reply.json["choices"]} == {"stop", "length"}
