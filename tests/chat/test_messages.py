"""Messages are checked by place and rebuilt in the shape that templates expect."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.chat.messages import CallArguments, template_messages, text_of_arguments
from octavo.errors import InvalidRequestError

TEXT_PART = {"type": "text", "text": "Hi"}


def one(message: object, **options: Any) -> dict[str, Any]:
    """A single message, rebuilt."""
    (built,) = template_messages([message], **options)
    return built


def call(arguments: object, **fields: Any) -> dict[str, Any]:
    """An assistant's turn with one tool call."""
    function = {"name": "day", "arguments": arguments}
    calls = [{"id": "c1", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls, **fields}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Hi", "Hi"),
        ("", ""),
        (None, ""),
        ([], ""),
        ([TEXT_PART], "Hi"),
        ([TEXT_PART, {"type": "text", "text": "you"}], "Hi\nyou"),
        (["plain", TEXT_PART], "plain\nHi"),
        ([{"type": "input_text", "text": "a"}, {"type": "refusal", "refusal": "b"}], "a\nb"),
    ],
)
def test_contents_become_texts(content: object, text: str) -> None:
    """Parts are joined by line breaks, as in vLLM's string format."""
    assert one({"role": "user", "content": content}) == {"role": "user", "content": text}


def test_contents_become_lists_where_the_template_reads_lists() -> None:
    """Also those that came as texts."""
    parts = one({"role": "user", "content": [TEXT_PART, "x"]}, content_format="openai")
    assert parts["content"] == [TEXT_PART, {"type": "text", "text": "x"}]
    text = one({"role": "user", "content": "Hi"}, content_format="openai")
    assert text["content"] == [TEXT_PART]


def test_results_of_tools_are_texts_for_every_template() -> None:
    """Few templates take anything else there."""
    built = one(
        {"role": "tool", "tool_call_id": "c1", "content": [TEXT_PART]}, content_format="openai"
    )
    assert built == {"role": "tool", "content": "Hi", "tool_call_id": "c1"}


def test_developer_is_system_unless_the_template_knows_it() -> None:
    """OpenAI's newer word for the same."""
    message = {"role": "developer", "content": "Be kind."}
    assert one(message)["role"] == "system"
    assert one(message, knows_developer=True)["role"] == "developer"


def test_names_and_unknown_keys_are_kept_and_nulls_dropped() -> None:
    """Templates may read them; None would be written out as text."""
    built = one({"role": "user", "content": "Hi", "name": "ann", "x": {"y": [1]}, "z": None})
    assert built == {"role": "user", "content": "Hi", "name": "ann", "x": {"y": [1]}}


def test_arguments_of_a_call_become_an_object_that_remembers_its_text() -> None:
    """Templates take either."""
    arguments = one(call('{"d":  1}'))["tool_calls"][0]["function"]["arguments"]
    assert arguments == {"d": 1}
    assert isinstance(arguments, CallArguments)
    assert text_of_arguments(arguments) == '{"d":  1}'


@pytest.mark.parametrize("arguments", ["", " ", "{broken", None, '{"a": 1'])
def test_arguments_that_are_no_json_count_as_none(arguments: object) -> None:
    """A model wrote them; refusing would end the conversation that corrects it."""
    assert one(call(arguments))["tool_calls"][0]["function"]["arguments"] == {}


def test_arguments_may_be_an_object_already() -> None:
    """Some clients send it so."""
    assert one(call({"d": 1}))["tool_calls"][0]["function"]["arguments"] == {"d": 1}


def test_a_call_without_content_reads_as_one_with_empty_content() -> None:
    """The same prompt for null and for an empty text."""
    assert one(call("{}")) == one(call("{}", content=""))


def test_an_empty_list_of_calls_is_no_call() -> None:
    """Templates ask whether the key is there."""
    assert one({"role": "assistant", "content": "Hi", "tool_calls": []}) == {
        "role": "assistant",
        "content": "Hi",
    }


def test_calls_of_other_roles_are_left_out() -> None:
    """Only an assistant calls."""
    assert "tool_calls" not in one({**call("{}"), "role": "user"})


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content", "thinking"])
def test_reasoning_is_given_under_all_its_names(name: str) -> None:
    """Templates differ in what they read."""
    built = one({"role": "assistant", "content": "4", name: "2+2"})
    assert {built["reasoning"], built["reasoning_content"], built["thinking"]} == {"2+2"}


def test_the_messages_of_the_caller_are_left_alone() -> None:
    """What is built is a copy."""
    message = call('{"d": 1}')
    one(message)
    assert message == call('{"d": 1}')


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (None, "messages"),
        ([], "messages"),
        ("Hi", "messages"),
        ({"messages": []}, "messages"),
        ([1], "messages[0]"),
        ([{"content": "Hi"}], "messages[0].role"),
        ([{"role": 3, "content": "Hi"}], "messages[0].role"),
        ([{"role": "", "content": "Hi"}], "messages[0].role"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": {"a": 1}}], "messages[0].content"),
        ([{"role": "user", "content": [7]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [TEXT_PART, {"text": "x"}]}], "messages[0].content[1].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": "a", "name": 3}], "messages[0].name"),
        ([{"role": "tool", "content": "a", "tool_call_id": 3}], "messages[0].tool_call_id"),
        ([{"role": "assistant", "tool_calls": "x"}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [1]}], "messages[0].tool_calls[0]"),
        ([{"role": "assistant", "tool_calls": [{"id": "a"}]}], "messages[0].tool_calls[0]"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {}}]}],
            "messages[0].tool_calls[0].function.name",
        ),
        ([{"role": "assistant", "content": "a", "reasoning": 1}], "messages[0].reasoning"),
        ([{"role": "user", "content": "a", "x": object()}], "messages[0].x"),
        ([{"role": "user", "content": "a"}, {"role": None}], "messages[1].role"),
    ],
)
def test_what_is_wrong_is_named_by_its_place(messages: object, param: str) -> None:
    """The message names it, too."""
    with pytest.raises(InvalidRequestError) as caught:
        template_messages(messages)
    assert caught.value.param == param
    assert param in str(caught.value)


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "video_url", "file", "nonsense" * 99])
def test_parts_that_are_no_text_are_refused_by_type(kind: str) -> None:
    """Never dropped in silence: the answer would be about something else."""
    content = [TEXT_PART, {"type": kind, kind: {"url": "x"}}]
    with pytest.raises(InvalidRequestError, match="text only") as caught:
        template_messages([{"role": "user", "content": "a"}, {"role": "user", "content": content}])
    assert caught.value.param == "messages[1].content[1].type"
    assert len(str(caught.value)) < 250


def test_values_nested_without_end_are_refused() -> None:
    """They would overrun the stack of whoever walks them."""
    value: list[Any] = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(InvalidRequestError, match="levels deep"):
        template_messages([{"role": "user", "content": "a", "x": value}])
