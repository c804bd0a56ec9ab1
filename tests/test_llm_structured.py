"""Structured output through `LLM`, with a real model: what comes has the form that was asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from octavo import LLM, InvalidRequestError, SamplingParams, StructuredOutputsParams
from tests.support.data import smollm2_path

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[A-Z][a-z]{1,8}$"},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
PROMPT = "Describe Anna, who is 31, as JSON:"


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    """So few blocks that several requests take turns."""
    with LLM(
        str(smollm2_path()),
        max_model_len=192,
        block_size=16,
        num_gpu_blocks_override=14,
        max_num_seqs=8,
    ) as llm:
        yield llm


def params(max_tokens: int = 60, **form: Any) -> SamplingParams:
    return SamplingParams(
        temperature=1.0,
        seed=3,
        max_tokens=max_tokens,
        structured_outputs=StructuredOutputsParams(**form),
    )


def assert_is_person(text: str) -> None:
    value = json.loads(text)
    assert list(value) == ["name", "age"]
    assert re.fullmatch(r"[A-Z][a-z]{1,8}", value["name"])
    assert 0 <= value["age"] <= 99


@pytest.mark.parametrize(
    ("form", "pattern"),
    [
        ({"regex": r"[0-9]{3}-[a-f]{2}"}, r"[0-9]{3}-[a-f]{2}"),
        ({"choice": ["north", "south-west"]}, r"north|south-west"),
        ({"grammar": 'root ::= "a" ("b" | "c") "d"'}, r"abd|acd"),
        ({"grammar": 'start: "x" /[0-9]{2}/'}, r"x[0-9]{2}"),
        ({"json": json.dumps({"enum": [7, None]})}, r"7|null"),
        ({"json": {"type": "boolean"}}, r"true|false"),
    ],
)
def test_every_kind_of_form_is_kept_and_ends_the_answer(
    llm: LLM, form: dict[str, Any], pattern: str
) -> None:
    """With its last token, which is text: no end token is waited for, or missing."""
    [output] = llm.generate(PROMPT, params(**form), use_tqdm=False)

    [choice] = output.outputs
    assert re.fullmatch(pattern, choice.text), choice.text
    assert (choice.finish_reason, choice.stop_reason) == ("stop", None)


def test_an_object_ends_with_the_properties_that_its_schema_names(llm: LLM) -> None:
    """From several parts too: a model that goes on and on is not let to invent more."""
    parts = [
        {
            "type": "object",
            "properties": {"x": {"type": "integer", "minimum": 10, "maximum": 99}},
            "required": ["x"],
        },
        {
            "type": "object",
            "properties": {"y": {"type": "string", "maxLength": 5}},
            "required": ["y"],
        },
    ]
    [output] = llm.generate("Give x and y.", params(json={"allOf": parts}), use_tqdm=False)

    [choice] = output.outputs
    value = json.loads(choice.text)
    assert (list(value), choice.finish_reason) == (["x", "y"], "stop")
    assert 10 <= value["x"] <= 99
    assert len(value["y"]) <= 5


def test_the_form_ends_the_answer_where_end_tokens_do_not(llm: LLM) -> None:
    own = params(choice=["yes", "no"])
    own.ignore_eos = True
    [output] = llm.generate(PROMPT, own, use_tqdm=False)

    assert output.outputs[0].text in ("yes", "no")
    assert output.outputs[0].finish_reason == "stop"


def test_an_answer_that_is_cut_is_the_beginning_of_a_form(llm: LLM) -> None:
    [output] = llm.generate(PROMPT, params(max_tokens=4, regex="[0-9]{40}"), use_tqdm=False)

    assert output.outputs[0].text.isdigit()
    assert output.outputs[0].finish_reason == "length"


def test_choices_prompts_and_preemption_keep_the_form(llm: LLM) -> None:
    """More than the pool holds: requests are sent away and come back in the middle of a form."""
    own = params(json=PERSON)
    own.n = 2
    prompts = [f"Person number {number} is" + " a very good friend" * 12 for number in range(5)]
    core = llm.llm_engine.engine.core
    before = core.stats().num_preemptions
    outputs = llm.generate(prompts, own, use_tqdm=False)

    assert core.stats().num_preemptions > before
    for output in outputs:
        for choice in output.outputs:
            assert_is_person(choice.text)
            assert choice.finish_reason == "stop"


def test_a_seed_gives_the_same_answer_alone_and_in_company(llm: LLM) -> None:
    own = params(json=PERSON)
    [alone] = llm.generate(PROMPT, own, use_tqdm=False)
    free = SamplingParams(temperature=0, max_tokens=20)
    [free_alone] = llm.generate("The tall tree", free, use_tqdm=False)
    together = llm.generate([PROMPT, "The tall tree"], [own, free], use_tqdm=False)

    assert [one.outputs[0].text for one in together] == [
        alone.outputs[0].text,
        free_alone.outputs[0].text,
    ]


def test_log_probabilities_are_those_of_the_model(llm: LLM) -> None:
    """Raw: the form changes what is drawn, not what the model thought of it."""
    free = SamplingParams(temperature=0, max_tokens=1, logprobs=5)
    [unbound] = llm.generate(PROMPT, free, use_tqdm=False)
    held = SamplingParams(
        temperature=0,
        max_tokens=1,
        logprobs=5,
        structured_outputs=StructuredOutputsParams(choice=["qz"]),
    )
    [bound] = llm.generate(PROMPT, held, use_tqdm=False)

    assert unbound.outputs[0].logprobs is not None
    assert bound.outputs[0].logprobs is not None
    best = next(iter(unbound.outputs[0].logprobs[0].items()))
    assert best in bound.outputs[0].logprobs[0].items()
    assert "qz".startswith(bound.outputs[0].text)


def test_other_masks_apply_as_well(llm: LLM) -> None:
    """What either forbids is not drawn."""
    own = params(choice=["north", "south"])
    own.allowed_token_ids = llm.get_tokenizer().encode("south", add_special_tokens=False)
    [output] = llm.generate(PROMPT, own, use_tqdm=False)

    assert output.outputs[0].text == "south"


def test_a_row_without_any_token_ends_alone(llm: LLM) -> None:
    """The error says why; a neighbour is answered."""
    own = params(choice=["north"])
    tokenizer = llm.get_tokenizer()
    own.allowed_token_ids = tokenizer.encode("zebra", add_special_tokens=False)
    failed, good = llm.generate([PROMPT, PROMPT], [own, params(choice=["south"])], use_tqdm=False)

    assert failed.outputs[0].finish_reason == "error"
    assert good.outputs[0].text == "south"


def test_a_form_that_cannot_be_kept_is_refused_before_anything_runs(llm: LLM) -> None:
    for form in ({"regex": "["}, {"json": "{"}, {"json": {"type": "nothing"}}, {"choice": []}):
        with pytest.raises(InvalidRequestError, match="structured_outputs"):
            llm.generate(PROMPT, params(**form), use_tqdm=False)


def test_one_form_at_a_time() -> None:
    for form in ({}, {"regex": "a", "choice": ["b"]}, {"json_object": False}):
        with pytest.raises(InvalidRequestError, match="exactly one"):
            StructuredOutputsParams(**form)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match=r"structured_outputs\.regex"):
        StructuredOutputsParams(regex=7)  # type: ignore[arg-type]


def test_a_form_is_not_a_dict(llm: LLM) -> None:
    """A dict is what HTTP has; here a typing error would hide in it."""
    with pytest.raises(InvalidRequestError, match="structured_outputs must be a Struct"):
        SamplingParams(structured_outputs={"regex": "a"})  # type: ignore[arg-type]
