"""Splitting an answer: the parts are right, and where the text was cut never shows."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.chat.reasoning.registry import STYLES, find_style, style_of_template
from octavo.chat.stream import ChatStream
from octavo.chat.tools.base import Tools
from octavo.chat.tools.registry import DIALECTS, dialect_of_template, find_dialect
from octavo.errors import ConfigError

TOOLS = Tools({"f": {"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}})
Whole = tuple[str, str, list[tuple[str, Any]]]


def split(
    pieces: Iterable[str], dialect: str | None = None, style: str | None = None, **options: Any
) -> Whole:
    """(reasoning, content, calls) of a whole answer."""
    stream = ChatStream(
        find_dialect(dialect) if dialect else None,
        find_style(style) if style else None,
        TOOLS,
        **options,
    )
    parts = [*map(stream.push, pieces), stream.finish()]
    return (
        "".join(part.reasoning for part in parts),
        "".join(part.content for part in parts),
        [(call.name, json.loads(call.arguments)) for part in parts for call in part.calls],
    )


F, G = ("f", {"n": 1}), ("g", {})
CALL_F, CALL_G = '{"name": "f", "arguments": {"n": 1}}', '{"name": "g", "arguments": {}}'
LLAMA_F, LLAMA_G = '{"name": "f", "parameters": {"n": 1}}', '{"name": "g", "parameters": {}}'
ANALYSIS = "<|channel|>analysis<|message|>Hm.<|end|>"
CASES: list[tuple[str | None, str | None, str, Whole]] = [
    (None, None, "Plain < text.\n", ("", "Plain < text.\n", [])),
    ("hermes", None, "Plain <tool_cal", ("", "Plain <tool_cal", [])),
    ("hermes", None, f"Hi <tool_call>{CALL_F}</tool_call>", ("", "Hi", [F])),
    (
        "hermes",
        None,
        f"<tool_call>\n{CALL_F}\n</tool_call>\n<tool_call>{CALL_G}</tool_call>",
        ("", "", [F, G]),
    ),
    ("hermes", None, f"<tool_call>{CALL_F}</tool_call> Done.", ("", "Done.", [F])),
    (
        "hermes",
        None,
        '<tool_call>{"name": "f", "arguments": {"s": "a \\" </tool_call> b"}}</tool_call> c',
        ("", "c", [("f", {"s": 'a " </tool_call> b'})]),
    ),
    (
        "hermes",
        None,
        f'<tool_call>{{"name": "f</tool_call> a <tool_call>{CALL_G}</tool_call>',
        ("", '<tool_call>{"name": "f</tool_call> a', [G]),
    ),
    (
        "qwen3_coder",
        None,
        "<tool_call><function=f><parameter=s>a </tool_call> b</parameter></function></tool_call>",
        ("", "", [("f", {"s": "a </tool_call> b"})]),
    ),
    ("hermes", None, "a <tool_call>no</tool_call> b", ("", "a <tool_call>no</tool_call> b", [])),
    ("hermes", None, '<tool_call>{"name": "f"', ("", '<tool_call>{"name": "f"', [])),
    (
        "hermes",
        "qwen3",
        f"<think>\nHm.</think>\n\n<tool_call>{CALL_F}</tool_call>",
        ("\nHm.", "", [F]),
    ),
    ("hermes", "qwen3", "<think>cut off", ("cut off", "", [])),
    ("hermes", "qwen3", "No thoughts. <think>", ("", "No thoughts. <think>", [])),
    (None, "deepseek_r1", "Hm.</think>\n\nYes.", ("Hm.", "Yes.", [])),
    (None, "deepseek_r1", "<think>Hm.</think>Yes.", ("Hm.", "Yes.", [])),
    (None, "mistral", "[THINK]Hm.[/THINK]Yes.", ("Hm.", "Yes.", [])),
    (
        None,
        "granite",
        "Here is my thought process: Hm. Here is my response: Yes.",
        (" Hm. ", "Yes.", []),
    ),
    ("llama3_json", None, LLAMA_F, ("", "", [F])),
    ("llama3_json", None, f"<|python_tag|>{LLAMA_F}; {LLAMA_G}", ("", "", [F, G])),
    ("llama3_json", None, '{"plain": "object"}', ("", '{"plain": "object"}', [])),
    ("llama3_json", None, f"Text {LLAMA_F}", ("", f"Text {LLAMA_F}", [])),
    ("pythonic", None, '[f(n=1, s="a"), g()]', ("", "", [("f", {"n": 1, "s": "a"}), G])),
    ("pythonic", None, "[1, 2]", ("", "[1, 2]", [])),
    ("pythonic", None, "[f(n=__import__('os'))]", ("", "[f(n=__import__('os'))]", [])),
    ("llama4_pythonic", None, "<|python_start|>[f(n=1)]<|python_end|>", ("", "", [F])),
    ("mistral", None, f"[TOOL_CALLS][{CALL_F}, {CALL_G}]", ("", "", [F, G])),
    ("mistral", None, '[TOOL_CALLS]f[ARGS]{"n": 1}[TOOL_CALLS]g{}', ("", "", [F, G])),
    (
        "qwen3_coder",
        None,
        "<tool_call>\n<function=f>\n<parameter=n>\n5\n</parameter>\n<parameter=s>\n5\n</parameter>\n"
        "</function>\n</tool_call>",
        ("", "", [("f", {"n": 5, "s": "5"})]),
    ),
    ("granite", None, f"<|tool_call|>[{CALL_F}]", ("", "", [F])),
    ("phi4_mini_json", None, f"functools[{CALL_F}]", ("", "", [F])),
    (
        "deepseek_v3",
        None,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        '{"n": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
        ("", "", [F]),
    ),
    (
        "deepseek_v31",
        None,
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"n": 1}<｜tool▁call▁end｜>'
        "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ("", "", [F, G]),
    ),
    (
        "openai",
        "openai_gptoss",
        f"{ANALYSIS}<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json"
        '<|message|>{"n": 1}<|call|>',
        ("Hm.", "", [F]),
    ),
    (
        "openai",
        "openai_gptoss",
        f"{ANALYSIS}<|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
        ("Hm.", "Yes.", []),
    ),
    (
        None,
        "openai_gptoss",
        f"{ANALYSIS}<|start|>assistant<|channel|>final<|message|>Yes.<|return|>",
        ("Hm.", "Yes.", []),
    ),
]


@pytest.mark.parametrize(("dialect", "style", "text", "expected"), CASES)
def test_an_answer_is_split_the_same_wherever_it_is_cut(
    dialect: str | None, style: str | None, text: str, expected: Whole
) -> None:
    assert split([text], dialect, style) == expected
    assert split(text, dialect, style) == expected
    for place in range(len(text)):
        assert split([text[:place], text[place:]], dialect, style) == expected


def test_thoughts_that_the_prompt_has_opened_are_reasoning() -> None:
    assert split(["Hm.</think>Yes."], None, "qwen3", is_reasoning=True) == ("Hm.", "Yes.", [])


def test_special_tokens_that_are_shown_for_the_tags_alone_are_left_out() -> None:
    text = f"[TOOL_CALLS][{CALL_F}]"
    assert split(["Yes.</s>"], "mistral", dropped=["</s>"]) == ("", "Yes.", [])
    assert split([text], "mistral", dropped=["</s>", "[TOOL_CALLS]"])[2] == [F]


def test_text_is_handed_on_as_soon_as_it_cannot_be_a_tag() -> None:
    stream = ChatStream(find_dialect("hermes"), None)
    assert stream.push("Hello <").content == "Hello"
    assert stream.push("b>").content == " <b>"


@given(
    text=st.lists(
        st.sampled_from(
            [
                "<tool_call>",
                "</tool_call>",
                "<think>",
                "</think>",
                CALL_F,
                "text",
                " ",
                "\n",
                "<",
                "{",
            ]
        ),
        max_size=12,
    ).map("".join),
    cuts=st.lists(st.integers(0, 80), max_size=6),
    dialect=st.sampled_from(sorted(DIALECTS)),
    style=st.sampled_from([None, *sorted(STYLES)]),
)
def test_no_text_and_no_cuts_change_the_joined_answer(
    text: str, cuts: list[int], dialect: str, style: str | None
) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[begin:end] for begin, end in itertools.pairwise(edges)]
    assert split(pieces, dialect, style) == split([text], dialect, style)


@pytest.mark.parametrize(
    ("template", "dialect", "style"),
    [
        ("{{ '<tool_call>' }} ... </think>", "hermes", "qwen3"),
        ("<tool_call>\n<function=x>", "qwen3_coder", None),
        ("[TOOL_CALLS]", "mistral", None),
        ("<|start|><|channel|>", "openai", "openai_gptoss"),
        ("plain", None, None),
        (None, None, None),
    ],
)
def test_a_template_tells_dialect_and_style(
    template: str | None, dialect: str | None, style: str | None
) -> None:
    assert dialect_of_template(template) == dialect
    assert style_of_template(template) == style


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="hermes"):
        find_dialect("hermess")
    with pytest.raises(ConfigError, match="qwen3"):
        find_style("qwen")
