"""The compiler: what fits passes, what does not fit is masked, what would not be enforced is
refused.
"""

import gc
import json
import weakref

import pytest

from octavo.contracts.grammar import ConstraintError, GrammarSpec, bits_of
from octavo.errors import InvalidRequestError
from octavo.structured.compiler import CACHE_SIZE, GrammarCompiler
from octavo.text.tokenizer import Tokenizer
from octavo.weights.source import open_checkpoint
from tests.support.data import smollm2_path

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_checkpoint(str(smollm2_path())).load_tokenizer()


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    eos = tokenizer.eos_token_id
    assert eos is not None
    return compiler_of(tokenizer, [eos])


def compiler_of(tokenizer: Tokenizer, eos_token_ids: list[int]) -> GrammarCompiler:
    return GrammarCompiler(
        tokenizer.vocabulary.bytes_of_all(tokenizer.vocab_size),
        tokenizer.special_ids,
        eos_token_ids,
        lambda text: tokenizer.encode(text, add_special_tokens=False),
    )


def allows(mask: bytes, token_id: int) -> bool:
    return bool(mask[token_id // 8] >> token_id % 8 & 1)


class Answer:
    """A text written under a constraint, token by token."""

    def __init__(self, compiler: GrammarCompiler, tokenizer: Tokenizer, spec: GrammarSpec) -> None:
        self._constraint = compiler.constraint(spec)
        self._tokenizer = tokenizer
        self.has_ended = False

    def write(self, text: str) -> bool:
        """Whether every token of the text was allowed."""
        for token_id in self._tokenizer.encode(text, add_special_tokens=False):
            if self.has_ended or not allows(bits_of(self._constraint.mask()), token_id):
                return False
            self.has_ended = self._constraint.accept(token_id)
        return True

    @property
    def may_end(self) -> bool:
        eos = self._tokenizer.eos_token_id
        assert eos is not None
        return self.has_ended or allows(bits_of(self._constraint.mask()), eos)


def answer(compiler: GrammarCompiler, tokenizer: Tokenizer, kind: str, source: object) -> Answer:
    text = source if isinstance(source, str) else json.dumps(source)
    return Answer(compiler, tokenizer, GrammarSpec(kind=kind, source=text))  # type: ignore[arg-type]


FITTING = [
    ("json_schema", PERSON, '{"name": "Ann", "age": 7}'),
    ("json_schema", PERSON, '{\n  "name": "Ann",\n  "age": 7\n}'),
    ("json_schema", {"type": "string", "minLength": 2}, '"ab"'),
    ("json_schema", {"type": "number", "multipleOf": 3}, "12"),
    ("json_schema", {"enum": [1, "a"]}, '"a"'),
    ("json_object", "", '{"any": [1, {"thing": null}]}'),
    ("choice", ["north", "south"], "south"),
    ("choice", ['a"b\n', "q/é"], "q/é"),
    ("choice", ['a"b\n', "q/é"], 'a"b\n'),
    ("regex", r"[0-9]{3}-[a-f]{2}", "123-ab"),
    ("grammar", 'root ::= "a" ("b" | "c") "d"', "acd"),
    ("grammar", 'start: "x"+ /[0-9]/', "xxx1"),
]


@pytest.mark.parametrize(("kind", "source", "text"), FITTING)
def test_a_fitting_text_is_allowed_and_may_end(
    compiler: GrammarCompiler, tokenizer: Tokenizer, kind: str, source: object, text: str
) -> None:
    one = answer(compiler, tokenizer, kind, source)
    assert one.write(text)
    assert one.may_end


@pytest.mark.parametrize(
    ("kind", "source", "text"),
    [
        ("json_schema", PERSON, '{"name": "Ann", "age": "7'),
        ("json_schema", PERSON, '{"nick'),
        ("json_schema", {"type": "number", "multipleOf": 3}, "10 "),
        ("json_object", "", "[1"),
        ("json_object", "", "{" + " " * 40),
        ("choice", ["north", "south"], "east"),
        ("regex", r"[0-9]{3}-[a-f]{2}", "12-"),
        ("grammar", 'root ::= "a" ("b" | "c") "d"', "aed"),
    ],
)
def test_what_does_not_fit_is_masked(
    compiler: GrammarCompiler, tokenizer: Tokenizer, kind: str, source: object, text: str
) -> None:
    assert not answer(compiler, tokenizer, kind, source).write(text)


def test_an_unfinished_answer_may_not_end(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    one = answer(compiler, tokenizer, "json_schema", PERSON)
    assert one.write('{"name": "Ann"')
    assert not one.may_end


def test_a_complete_answer_has_ended(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    one = answer(compiler, tokenizer, "choice", ["north", "south"])
    assert one.write("north")
    assert one.has_ended


REFUSED = [
    ("json_schema", "{", "not valid JSON"),
    ("json_schema", "[1]", "must be a JSON schema"),
    ("json_schema", {"type": "nothing"}, "nothing"),
    ("json_schema", {"type": "object", "properties": {"a": "b"}}, "schema"),
    ("json_schema", {"$ref": "#/$defs/none"}, "none"),
    ("json_schema", {"type": "string", "pattern": "["}, "pars"),
    ("json_schema", {"type": "string", "pattern": "(?=a)b"}, "look-around"),
    ("json_schema", {"type": "array", "uniqueItems": True}, "uniqueItems"),
    ("json_schema", {"not": {"type": "string"}}, "not"),
    ("json_schema", {"x-guidance": {"lenient": True}, "not": {}}, "not"),
    ("json_schema", {"type": "string", "contentEncoding": "base64"}, "contentEncoding"),
    (
        "json_schema",
        {"type": "array", "items": {"type": "string", "contentMediaType": "a/b"}},
        "contentMediaType",
    ),
    ("json_schema", "false", "not"),
    ("json_schema", {"oneOf": [{"type": "integer"}, {"minimum": 2}]}, "'oneOf' .* use anyOf"),
    ("json_schema", {"$ref": "http://a.b/c.json"}, r"'\$ref' .* to 'http://a\.b/c\.json'"),
    ("choice", [], "at least one"),
    ("choice", ["a", 1], "list"),
    ("choice", ["a", ""], "empty text"),
    ("regex", "[", "pars"),
    ("regex", "", "empty"),
    ("regex", "a{1000000}", "too many states: ask for fewer and smaller repetitions"),
    ("json_schema", {"type": "string", "pattern": "^a{1000000}$"}, "too many states"),
    ("grammar", "root ::=", "empty"),
    ("grammar", "start: undefined_rule", "undefined_rule"),
    ("grammar", "(" * 5000, "5000 levels"),
    ("json_schema", '{"a":' * 3000 + "1" + "}" * 3000, "3000 levels"),
    ("regex", "a" * 300_000, "300000 characters"),
    ("structural_tag", {"a": 1}, "structures"),
    ("structural_tag", {"format": {"type": "sequence"}}, "sequence"),
    (
        "structural_tag",
        {"structures": [{"begin": "<a>", "schema": {}, "end": ""}], "triggers": ["<b"]},
        "triggers",
    ),
]


@pytest.mark.parametrize(("kind", "source", "words"), REFUSED)
def test_what_cannot_be_enforced_is_refused_by_name(
    compiler: GrammarCompiler, kind: str, source: object, words: str
) -> None:
    text = source if isinstance(source, str) else json.dumps(source)
    spec = GrammarSpec(kind=kind, source=text)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match=words) as refusal:
        compiler.compile(spec, "response_format")
    assert refusal.value.param == "response_format"
    assert len(str(refusal.value)) < 1000


TAGS = {
    "structures": [
        {
            "begin": "<fn=add>",
            "schema": {
                "type": "object",
                "properties": {"x": {"type": "integer"}},
                "required": ["x"],
                "additionalProperties": False,
            },
            "end": "</fn>",
        }
    ],
    "triggers": ["<fn="],
}
TRIGGERED = {
    "type": "structural_tag",
    "format": {
        "type": "triggered_tags",
        "triggers": ["<fn="],
        "tags": [
            {
                "begin": "<fn=add>",
                "content": {"type": "json_schema", "json_schema": TAGS["structures"][0]["schema"]},  # type: ignore[index]
                "end": "</fn>",
            }
        ],
    },
}


@pytest.mark.parametrize("tags", [TAGS, TRIGGERED])
def test_a_tag_constrains_what_follows_its_trigger_and_nothing_else(
    compiler: GrammarCompiler, tokenizer: Tokenizer, tags: object
) -> None:
    one = answer(compiler, tokenizer, "structural_tag", tags)
    assert one.write('Let me see. <fn=add>{"x": 1}</fn> Done.')
    assert one.may_end
    assert not answer(compiler, tokenizer, "structural_tag", tags).write("see <fn=sub>")
    assert not answer(compiler, tokenizer, "structural_tag", tags).write('<fn=add>{"y"')


def test_answers_under_one_grammar_do_not_share_their_state(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    first = answer(compiler, tokenizer, "choice", ["north", "south"])
    second = answer(compiler, tokenizer, "choice", ["north", "south"])
    assert first.write("north")
    assert second.write("south")


def test_a_token_outside_the_mask_is_an_error_of_this_answer(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    spec = GrammarSpec(kind="choice", source='["north"]')
    constraint = compiler.constraint(spec)
    with pytest.raises(ConstraintError):
        constraint.accept(tokenizer.encode("z", add_special_tokens=False)[0])


def test_the_cache_is_bounded_and_forgets_the_least_recently_used(
    compiler: GrammarCompiler,
) -> None:
    first, second = compiled(compiler, "first of all"), compiled(compiler, "second of all")
    for number in range(CACHE_SIZE - 2):
        compiled(compiler, f"number {number}")
    assert first() is not None
    assert second() is not None

    compiler.constraint(GrammarSpec(kind="choice", source='["first of all"]'))  # used again
    compiled(compiler, "one too many")
    gc.collect()

    assert first() is not None
    assert second() is None


class Source(str):
    """The text of a grammar, of which is known whether anybody keeps it."""


def compiled(compiler: GrammarCompiler, choice: str) -> weakref.ref[Source]:
    """Have a grammar compiled; its text, for as long as somebody keeps it."""
    source = Source(json.dumps([choice]))
    compiler.compile(GrammarSpec(kind="choice", source=source))
    return weakref.ref(source)
