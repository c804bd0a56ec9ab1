"""What the standard means is what the library is told."""

from __future__ import annotations

import json

import pytest

from benchmarks.random_documents import Walker
from benchmarks.structured_schemas import allows
from octavo.contracts.grammar import GrammarSpec
from octavo.structured.compiler import GrammarCompiler
from octavo.text.tokenizer import Tokenizer
from octavo.weights.source import open_checkpoint
from tests.support.data import smollm2_path


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return open_checkpoint(str(smollm2_path())).load_tokenizer()


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    return Walker(tokenizer).compiler()


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        (r"^\s$", ["\ufeff", "\u00a0", "\t"], ["\x85", "a"]),
        (r"^\S$", ["\x85", "a"], ["\ufeff", "\u2028"]),
        (r"^[\s0]$", ["\ufeff", "0"], ["\x85", "s"]),
        (r"^[^\S0]$", ["\ufeff", " "], ["0", "a"]),
        (r"^.$", ["a", "\x85"], ["\r", "\n", "\u2028"]),
        (r"^[.]\.$", [".."], ["a."]),
        (r"^[[a]b$", ["[b", "ab"], ["b"]),
        (r"^[\]a&&b~~]$", ["]", "&", "~", "b"], ["c"]),
        (r"^\[\\s$", ["[\\s"], ["[ "]),
        (r"^\d\w$", ["1_"], ["\u0661a"]),
    ],
)
def test_patterns_mean_what_they_mean_in_ecma_262(
    pattern: str,
    fits: list[str],
    does_not: list[str],
    compiler: GrammarCompiler,
    tokenizer: Tokenizer,
) -> None:
    """As values and as names."""
    value = GrammarSpec(
        kind="json_schema", source=json.dumps({"type": "string", "pattern": pattern})
    )
    named = {"patternProperties": {pattern: {}}, "additionalProperties": False, "type": "object"}
    name = GrammarSpec(kind="json_schema", source=json.dumps(named))
    for texts, is_allowed in ((fits, True), (does_not, False)):
        for text in texts:
            written = json.dumps(text, ensure_ascii=False)
            assert allows(compiler, tokenizer, value, written) == is_allowed, text
            as_name = json.dumps({text: 1}, ensure_ascii=False)
            assert allows(compiler, tokenizer, name, as_name) == is_allowed, text


@pytest.mark.parametrize(
    ("form", "fits", "does_not"),
    [
        (
            "date",
            ["2024-02-29", "2000-02-29", "2023-12-31"],
            ["2023-02-29", "1900-02-29", "2024-04-31"],
        ),
        ("time", ["23:59:59Z", "00:00:00.25+14:00"], ["23:59:60Z", "24:00:00Z", "12:00:00"]),
        ("date-time", ["2024-02-29T12:30:00Z"], ["2023-02-29T12:30:00Z", "2024-01-01T22:59:60Z"]),
    ],
)
def test_dates_and_times_exist(
    form: str, fits: list[str], does_not: list[str], compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    spec = GrammarSpec(kind="json_schema", source=json.dumps({"type": "string", "format": form}))

    assert all(allows(compiler, tokenizer, spec, json.dumps(text)) for text in fits)
    assert not any(allows(compiler, tokenizer, spec, json.dumps(text)) for text in does_not)


def test_a_count_may_be_written_as_a_whole_float(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    schema = {"type": "array", "minItems": 1.0, "maxItems": 2.0, "items": {"maxLength": 1.0}}
    spec = GrammarSpec(kind="json_schema", source=json.dumps(schema))

    assert allows(compiler, tokenizer, spec, '["a", "b"]')
    assert not allows(compiler, tokenizer, spec, "[]")
    assert not allows(compiler, tokenizer, spec, '["ab"]')
