"""Structured output through `LLM`, with a real model: what comes has the form that was asked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from octavo import LLM, InvalidRequestError, SamplingParams, StructuredOutputsParams
from octavo.contracts.grammar import GrammarSpec, Mask, ThinkingSpec, TokenConstraint, bits_of
from octavo.engine.grammars import Grammars
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


class WrittenGrammars(Grammars):
    """Those of an engine, with every mask written out before its step."""

    def __init__(self, grammars: Grammars) -> None:
        self._grammars = grammars

    def constraint(
        self, grammar: GrammarSpec | None, thinking: ThinkingSpec | None
    ) -> TokenConstraint | None:
        made = self._grammars.constraint(grammar, thinking)
        return None if made is None else Written(made)


class Written:
    """A constraint whose masks are bytes."""

    def __init__(self, constraint: TokenConstraint) -> None:
        self.accept = constraint.accept
        self._constraint = constraint

    def mask(self) -> Mask:
        """See `TokenConstraint`."""
        return bits_of(self._constraint.mask())


FORMS: list[dict[str, Any]] = [
    {"json": PERSON},
    {"json": {"type": "array", "items": PERSON, "minItems": 2}},
    {"json": {"type": "array", "items": {"type": "string"}}},
    {"json": {"type": "object", "additionalProperties": {"type": "integer"}}},
    {"json": {"type": "string", "minLength": 60}},
    {"json": {"anyOf": [{"type": "number"}, {"type": "string", "format": "date"}]}},
    {"json": {"const": {"a": [1, 2, 3], "b": "a constant"}}},
    {"json_object": True},
    {"regex": r"[A-Z][a-z]+( [a-z]{2,9}){2,6}\."},
    {"choice": ["north", "south-west", "south"]},
    {"grammar": 'start: "x" /[0-9]{2}/ | "the " start'},
]
DRAWS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.9, "top_p": 0.9},
    {"temperature": 0.8, "top_k": 20, "min_p": 0.02},
    {"temperature": 1.0, "presence_penalty": 0.5, "min_tokens": 5, "logprobs": 2},
]


def test_answers_are_those_that_masks_written_out_would_give(llm: LLM) -> None:
    """Token by token and seed by seed, whatever the form and however tokens are drawn."""
    engine = llm.llm_engine.engine
    asked = [
        SamplingParams(
            seed=seed,
            max_tokens=24,
            structured_outputs=StructuredOutputsParams(**form),
            bad_words=["Anna"],
            **draw,
        )
        for form in FORMS
        for seed, draw in enumerate(DRAWS)
    ]
    prompts = [PROMPT] * len(asked)
    usual = llm.generate(prompts, asked, use_tqdm=False)
    engine.core.use_grammars(WrittenGrammars(engine.grammars))
    try:
        written = llm.generate(prompts, asked, use_tqdm=False)
    finally:
        engine.core.use_grammars(engine.grammars)

    for own, one, other in zip(asked, usual, written, strict=True):
        first, second = one.outputs[0], other.outputs[0]
        assert first.token_ids == second.token_ids, own
        assert first.finish_reason == second.finish_reason
        assert first.logprobs == second.logprobs
