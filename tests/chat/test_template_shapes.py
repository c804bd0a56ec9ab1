"""Well-known shapes of templates give the text that transformers gives."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pytest
from jinja2.exceptions import TemplateError
from transformers.utils import chat_template_utils

from octavo.chat.template import ChatTemplate
from octavo.errors import InvalidRequestError
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.weights.gguf_reader import read_gguf
from tests.support.chat_templates import SHAPES
from tests.support.data import reference, smollm2_path

SPECIALS = {"bos_token": "<s>", "eos_token": "</s>"}
NOW = datetime(2024, 7, 26, 12, 30)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "day",
            "description": 'the "day" & <hour> of a naïve 東京 clock',
            "parameters": {"type": "object", "properties": {"d": {"type": "integer"}}},
        },
    }
]
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "day", "arguments": {"d": 1, "x": [True, None, "é"]}},
}
CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "one": [{"role": "user", "content": "Hi there  "}],
    "turns": [
        {"role": "user", "content": " What's up?\n"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nNot much. "},
        {"role": "user", "content": "東京 🙂\ttab {{ not code }} {% raw %}"},
    ],
    "system": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Yes?"},
        {"role": "user", "content": "stop"},
    ],
    "tools": [
        {"role": "user", "content": "What day?"},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "name": "day", "content": "Monday"},
        {"role": "user", "content": "So?"},
    ],
    "order": [{"role": "assistant", "content": "Me first"}, {"role": "user", "content": "No"}],
}


class FixedClock(datetime):
    """What transformers takes for the present."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return NOW


def outcome(render: Any, *args: Any, **kwargs: Any) -> str:
    """The text, or the words with which the template refused the messages."""
    try:
        text: str = render(*args, **kwargs)
    except (InvalidRequestError, TemplateError) as error:
        return "refused: " + str(error).rpartition(": ")[2]
    return text


def transformers_text(
    source: str, messages: list[dict[str, Any]], as_parts: bool, **options: Any
) -> str:
    """What transformers makes of the conversation."""
    if as_parts:
        messages = [
            {**message, "content": [{"type": "text", "text": message["content"]}]}
            if message["role"] != "tool"  # many templates handle only text there
            else message
            for message in messages
        ]
    rendered, _ = chat_template_utils.render_jinja_template(
        [messages], chat_template=source, **SPECIALS, **options
    )
    text: str = rendered[0]
    return text


@pytest.fixture(autouse=True)
def fixed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template_utils, "datetime", FixedClock)
    chat_template_utils._compile_jinja_template.cache_clear()


@pytest.fixture(scope="module")
def sources() -> Mapping[str, str]:
    """The shapes, and SmolLM2's own template."""
    smollm2 = read_gguf(smollm2_path()).metadata["tokenizer.chat_template"]
    assert isinstance(smollm2, str)
    return {**SHAPES, "smollm2": smollm2}


@pytest.mark.parametrize("with_tools", [False, True])
@pytest.mark.parametrize("conversation", list(CONVERSATIONS))
@pytest.mark.parametrize("shape", [*SHAPES, "smollm2"])
def test_templates_render_as_in_transformers(
    sources: Mapping[str, str], shape: str, conversation: str, with_tools: bool
) -> None:
    """Same text, or refused by both."""
    template = ChatTemplate(sources[shape], SPECIALS, now=lambda: NOW)
    messages = CONVERSATIONS[conversation]
    for generates in (True, False):
        options: dict[str, Any] = {
            "tools": TOOLS if with_tools else None,
            "documents": [{"title": "b", "text": "x"}, {"title": "a", "text": "y"}],
            "add_generation_prompt": generates,
        }
        as_parts = template.content_format == "openai"
        expected = outcome(transformers_text, sources[shape], messages, as_parts, **options)
        assert outcome(template.render, messages, **options) == expected


@pytest.mark.parametrize("shape", ["chatml", "llama3", "gemma", "qwen3", "phi3", "smollm2"])
@pytest.mark.parametrize("text", ["1 2 3", "1 2 3 ", "1 2 3\n\n"])
def test_a_message_is_continued_as_in_transformers(
    sources: Mapping[str, str], shape: str, text: str
) -> None:
    """Whatever the template puts after the last message is cut off, stripped or not."""
    template = ChatTemplate(sources[shape], SPECIALS, now=lambda: NOW)
    messages = [{"role": "user", "content": "Count."}, {"role": "assistant", "content": text}]
    options: dict[str, Any] = {"add_generation_prompt": False, "continue_final_message": True}
    as_parts = template.content_format == "openai"
    expected = transformers_text(sources[shape], messages, as_parts, **options)
    assert template.render(messages, **options) == expected


def test_chats_of_the_golden_outputs_have_their_recorded_ids(sources: Mapping[str, str]) -> None:
    """From messages to tokens, as transformers has it for the real model."""
    tokenizer = tokenizer_from_gguf(read_gguf(smollm2_path()).metadata)
    template = ChatTemplate(sources["smollm2"], tokenizer.special_tokens)
    chats = [
        entry for entry in reference("smollm2-135m-instruct-q4_1")["entries"] if "messages" in entry
    ]
    assert chats
    for entry in chats:
        text = template.render(entry["messages"])
        assert tokenizer.encode(text, add_special_tokens=False) == entry["prompt_token_ids"]


def test_variables_of_the_request_reach_the_template(sources: Mapping[str, str]) -> None:
    """enable_thinking of Qwen 3; what a template does not know is ignored."""
    template = ChatTemplate(sources["qwen3"], SPECIALS)
    messages = CONVERSATIONS["one"]
    off = {"enable_thinking": False, "unheard_of": [1]}
    expected = transformers_text(
        sources["qwen3"], messages, False, add_generation_prompt=True, enable_thinking=False
    )
    assert template.render(messages, template_kwargs=off) == expected
    assert template.render(messages) != expected


def test_the_words_of_a_refusing_template_are_in_the_error(sources: Mapping[str, str]) -> None:
    """A client sees why, and that it is the messages."""
    template = ChatTemplate(sources["mistral"], SPECIALS)
    with pytest.raises(InvalidRequestError, match="roles must alternate") as caught:
        template.render(CONVERSATIONS["order"])
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("shape", "expected"),
    [("gemma", "openai"), ("chatml", "string"), ("llama3", "string"), ("qwen3", "string")],
)
def test_the_content_format_is_found_in_the_template(
    sources: Mapping[str, str], shape: str, expected: str
) -> None:
    """Only Gemma's walks through parts."""
    assert ChatTemplate(sources[shape], SPECIALS).content_format == expected
