"""Whatever an answer under a JSON schema can be, it fits the schema by the judgement of another.

Documents are drawn at random from what the automaton allows, so they show what a model could write,
not what it is likely to. `benchmarks/structured_schemas.py` does the same with hundreds of schemas
and with a model.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema_specifications import REGISTRY

from benchmarks.random_documents import Walker
from benchmarks.structured_schemas import Case, allows, fault_of
from octavo.contracts.grammar import GrammarSpec
from octavo.errors import InvalidRequestError
from octavo.structured.compiler import GrammarCompiler
from octavo.text.tokenizer import Tokenizer
from octavo.weights.source import open_checkpoint
from tests.support.data import smollm2_path

DOCUMENTS = 8  # of each schema
MAX_TOKENS = 200  # of each document

A = {"properties": {"a": {"type": "integer"}}, "required": ["a"]}
B = {"properties": {"b": {"type": "string", "maxLength": 3}}, "required": ["b"]}
TREE = {
    "type": "object",
    "properties": {
        "value": {"type": "number"},
        "children": {"type": "array", "items": {"$ref": "#"}},
    },
    "required": ["value"],
}
SCHEMAS: dict[str, Any] = {
    "anything": True,
    "any object": {"type": "object"},
    "types": {"type": ["null", "boolean", "integer"]},
    "constants": {
        "enum": [None, True, 0, -1.5, 1e-7, 1e21, 'a"\\\n\u00e9\u2028', [1, {"b": []}], {"": {}}]
    },
    "constant of a type": {"type": "string", "enum": ["a", 1, "b"]},
    "integers": {"type": "integer", "minimum": -12, "exclusiveMaximum": 1003},
    "numbers": {"type": "number", "exclusiveMinimum": -0.25, "maximum": 1.75},
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": 0},
    "decimal multiples": {"type": "number", "multipleOf": 0.01, "minimum": -3, "maximum": 3},
    "lengths": {"type": "string", "minLength": 2, "maxLength": 4},
    "pattern": {"type": "string", "pattern": "^[A-Z][a-z]+(-[0-9]{2,})?$", "maxLength": 9},
    "pattern inside": {"type": "string", "pattern": "q.?z", "minLength": 4, "maxLength": 6},
    "classes": {"type": "string", "pattern": r"^\d\w\s\S$"},
    "date": {"type": "string", "format": "date"},
    "late date": {"type": "string", "format": "date", "pattern": "-02-(29|30)$"},
    "time": {"type": "string", "format": "date-time"},
    "identifier": {"type": "string", "format": "uuid"},
    "address": {"type": "string", "format": "ipv4"},
    "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    "tuple": {
        "prefixItems": [{"type": "integer"}, {"const": "x"}],
        "items": False,
        "type": "array",
    },
    "rest of a tuple": {
        "type": "array",
        "prefixItems": [{"type": "integer"}],
        "items": {"type": "null"},
        "minItems": 2,
    },
    "closed object": {"type": "object", **A, "additionalProperties": False},
    "open object": {"type": "object", **A, "additionalProperties": {"type": "null"}},
    "object that names": {"type": "object", **A},
    "optional properties": {
        "type": "object",
        "properties": {name: {"enum": [0, 1]} for name in "abcd"},
        "required": ["c"],
    },
    "patterns of names": {
        "type": "object",
        "properties": {"x1": {"type": "integer"}},
        "patternProperties": {"^x": {"maximum": 3}, "^y": {"type": "null"}},
        "additionalProperties": False,
    },
    "one property": {"type": "object", "minProperties": 1, "maxProperties": 2},
    "both": {"type": "object", "allOf": [A, B]},
    "both, one of them open": {"type": "object", "allOf": [A, {**B, "additionalProperties": True}]},
    "bounds from both": {"allOf": [{"minimum": 2}, {"maximum": 4}], "type": "integer"},
    "either": {"anyOf": [{"type": "object", **A}, {"type": "object", **B}, {"type": "null"}]},
    "either beside": {"type": "object", **A, "anyOf": [B, {"properties": {"c": {"const": 1}}}]},
    "one of types": {"oneOf": [{"type": "integer"}, {"type": "string", "maxLength": 2}]},
    "one of kinds": {
        "oneOf": [
            {
                "type": "object",
                "properties": {"kind": {"const": kind}, kind: {"type": "integer"}},
                "required": ["kind", kind],
            }
            for kind in ("left", "right")
        ]
    },
    "one of pets": {
        "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
        "discriminator": {"propertyName": "kind"},
        "$defs": {
            kind: {
                "type": "object",
                "properties": {"kind": {"const": kind, "type": "string"}, "age": {"minimum": 0}},
                "required": ["kind"],
            }
            for kind in ("cat", "dog")
        },
    },
    "reference": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", **A}}},
    "reference beside": {
        "type": "object",
        "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
        "properties": {"c": {"$ref": "#/$defs/b"}},
        "$defs": {"a": A, "b": B},
    },
    "escaped reference": {"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "integer"}}},
    "tree": TREE,
    "list of trees": {
        "type": "array",
        "items": {"$ref": "#/$defs/t"},
        "$defs": {
            "t": {
                **TREE,
                "properties": {"value": {"type": "number"}, "next": {"$ref": "#/$defs/t"}},
            }
        },
    },
    "names to escape": {
        "type": "object",
        "properties": {'q"\\\n': {"type": "null"}, "\u00e9": {"type": "null"}},
        "required": ['q"\\\n', "\u00e9"],
    },
    "older tuple": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": [{"type": "integer"}, {"type": "null"}],
        "additionalItems": False,
    },
}
UNFITTING: list[tuple[str, Any]] = [
    ("types", 1.5),
    ("constants", "a"),
    ("integers", 1003),
    ("integers", -13),
    ("numbers", -0.25),
    ("multiples", 20),
    ("lengths", "a"),
    ("pattern", "A1"),
    ("date", "2024-13-01"),
    ("list", []),
    ("tuple", [1, "x", 2]),
    ("closed object", {"a": 1, "b": 2}),
    ("open object", {"a": 1, "b": 2}),
    ("object that names", {"a": "1"}),
    ("patterns of names", {"x1": 4}),
    ("one property", {}),
    ("both", {"a": 1}),
    ("bounds from both", 5),
    ("either beside", {"a": 1, "c": 2}),
    ("one of kinds", {"kind": "left", "right": 1}),
    ("one of pets", {"kind": "cow"}),
    ("reference beside", {"a": 1, "b": "long text"}),
    ("tree", {"value": 1, "children": [{}]}),
    ("older tuple", [1, None, 2]),
]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_checkpoint(str(smollm2_path())).load_tokenizer()


@pytest.fixture(scope="module")
def walker(tokenizer: Tokenizer) -> Walker:
    return Walker(tokenizer)


@pytest.fixture(scope="module")
def compiler(walker: Walker) -> GrammarCompiler:
    return walker.compiler()


@pytest.mark.parametrize("name", SCHEMAS)
def test_documents_at_random_fit_the_schema(
    name: str, walker: Walker, compiler: GrammarCompiler
) -> None:
    case = Case(name, SCHEMAS[name])
    drawn = list(walker.documents(compiler, case.spec, DOCUMENTS, MAX_TOKENS))
    ended = [text for text in drawn if text is not None]

    assert len(ended) >= DOCUMENTS // 2, drawn
    assert [
        (text, fault_of(case.schema, text)) for text in ended if fault_of(case.schema, text)
    ] == []


@pytest.mark.parametrize(("name", "value"), UNFITTING)
def test_a_document_that_does_not_fit_is_not_allowed(
    name: str, value: Any, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    case = Case(name, SCHEMAS[name])
    assert fault_of(case.schema, json.dumps(value))
    assert not allows(compiler, tokenizer, case.spec, json.dumps(value))


def test_schemas_of_schemas_are_served_or_refused_by_name(
    walker: Walker, compiler: GrammarCompiler
) -> None:
    """What the standard itself is written in, for every draft: recursive, large, in parts."""
    served, refused = [], []
    for address in REGISTRY:
        schema = REGISTRY.contents(address)
        spec = GrammarSpec(kind="json_schema", source=json.dumps(schema))
        try:
            compiler.compile(spec)
        except InvalidRequestError as refusal:
            refused.append(str(refusal))
            continue
        served.append(address)
        for text in walker.documents(compiler, spec, 2, MAX_TOKENS):
            assert text is None or not fault_of(schema, text), (address, text)

    assert served
    assert refused
    assert all("'" in message or '"' in message for message in refused), refused


def test_the_judge_sees_what_is_wrong() -> None:
    """Or the tests above would prove nothing."""
    assert fault_of(A, "{")
    assert fault_of(A, '{"a": "1"}')
    assert not fault_of(A, '{"a": 1}')
