"""What a template is given, what it may use, and what its failures mean."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import datetime
from typing import Any

import pytest

from octavo.chat.template import ChatTemplate
from octavo.errors import CorruptFileError, InvalidRequestError

USER = [{"role": "user", "content": "Hi"}]


def rendered(source: str, messages: object = USER, **options: Any) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(messages, **options)


def test_a_model_without_a_template_says_what_to_do_instead() -> None:
    """Base models are served, too."""
    with pytest.raises(InvalidRequestError, match=r"completions.*--chat-template"):
        ChatTemplate(None, {}).render(USER)
    ChatTemplate(None, {}).prepare()


def test_a_template_sees_special_tokens_and_its_inputs() -> None:
    """Absent ones are undefined or none, as templates ask for them."""
    source = "{{ bos_token }}{{ eos_token is defined }}{{ tools is none }}{{ documents is none }}"
    assert rendered(source) == "<s>FalseTrueTrue"
    assert rendered("{{ tools }}", tools=[]) == "None"


def test_blocks_are_trimmed_as_in_transformers() -> None:
    """trim_blocks and lstrip_blocks."""
    assert rendered("  {% if true %}\nx\n  {% endif %}\ny") == "x\ny"


def test_arguments_of_a_call_join_with_text_as_they_were_written() -> None:
    """DeepSeek's templates take them as text, most others as an object."""
    call = {"function": {"name": "day", "arguments": '{"d":  1}'}}
    messages = [{"role": "assistant", "tool_calls": [call]}]
    source = (
        "{% set f = messages[0].tool_calls[0].function %}{{ f.name + '|' + f.arguments + '|' }}"
    )
    assert rendered(source, messages) == 'day|{"d":  1}|'
    assert rendered("{{ 'x' + dict(a='é') }}") == 'x{"a": "é"}'


def test_json_is_written_for_models_not_for_browsers() -> None:
    """Letters and signs as they are; transformers' options."""
    assert rendered("{{ ['<é>', 'b'] | tojson }}") == '["<é>", "b"]'
    assert rendered("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}") == (
        '{"a":2,"b":1}'
    )
    assert rendered("{{ {'a': [1]} | tojson(indent=2) }}") == '{\n  "a": [\n    1\n  ]\n}'


def test_strftime_now_shows_the_time_it_is_given() -> None:
    """A test can move it."""
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}", {}, now=lambda: datetime(2024, 7, 26))
    assert template.render(USER) == "26 Jul 2024"


@pytest.mark.parametrize(
    "name", ["messages", "tools", "add_generation_prompt", "bos_token", "raise_exception", "loop"]
)
def test_variables_of_the_request_cannot_shadow_what_is_given(name: str) -> None:
    """chat_template_kwargs is an allow-list by what the template asks for."""
    with pytest.raises(InvalidRequestError) as caught:
        rendered("{{ x }}", template_kwargs={name: 1})
    assert caught.value.param == f"chat_template_kwargs.{name}"


def test_variables_of_the_request_must_be_json() -> None:
    """A template never sees an object of ours."""
    assert rendered("{{ x.y[0] }}", template_kwargs={"x": {"y": [3]}}) == "3"
    with pytest.raises(InvalidRequestError, match=r"chat_template_kwargs\.x must be made of JSON"):
        rendered("{{ x }}", template_kwargs={"x": object()})


@pytest.mark.parametrize("tools", [{"a": 1}, "x", [1]])
def test_tools_must_be_a_list_of_objects(tools: Any) -> None:
    """Named as the request names them."""
    with pytest.raises(InvalidRequestError) as caught:
        rendered("x", tools=tools)
    assert caught.value.param == "tools"


def test_developer_reaches_a_template_that_knows_it() -> None:
    """And is system for all others."""
    messages = [{"role": "developer", "content": "a"}]
    assert rendered("{{ messages[0].role }}", messages) == "system"
    knowing = "{% if messages[0].role == 'developer' %}yes{% endif %}"
    assert rendered(knowing, messages) == "yes"


def test_a_given_content_format_wins_over_the_detected_one() -> None:
    """--chat-template-content-format."""
    template = ChatTemplate("{{ messages[0].content }}", {}, content_format="openai")
    assert template.render(USER) == "[{'type': 'text', 'text': 'Hi'}]"


def test_the_model_cannot_both_begin_and_continue_an_answer() -> None:
    """The two contradict each other."""
    with pytest.raises(InvalidRequestError) as caught:
        rendered("x", add_generation_prompt=True, continue_final_message=True)
    assert caught.value.param == "continue_final_message"


@pytest.mark.parametrize("source", ["constant", "{{ messages[0].content | upper }}"])
def test_a_template_that_changes_the_last_message_cannot_continue_it(source: str) -> None:
    """Where to go on could not be told."""
    with pytest.raises(InvalidRequestError, match="changes or drops"):
        rendered(source, add_generation_prompt=False, continue_final_message=True)


def test_an_empty_last_message_is_continued_from_its_beginning() -> None:
    """The turn is open, nothing is said yet."""
    messages = [*USER, {"role": "assistant", "content": ""}]
    source = "{% for m in messages %}[{{ m.role }}]{{ m.content }}[end]{% endfor %}"
    options: dict[str, Any] = {"add_generation_prompt": False, "continue_final_message": True}
    assert rendered(source, messages, **options) == "[user]Hi[end][assistant]"


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("a\n{{ messages[0].nothing.more }}", "line 2"),
        ("{{ 'a' + none }}", "line 1"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ unknown() }}", "'unknown' is undefined"),
        ("{{ messages[0].content | int // 0 }}", "zero"),
        ("{% include 'other' %}", "no loader"),
        ("{{ raise_exception('Only users here') }}", "refuses these messages: Only users here"),
        ("{{ raise_exception() }}", "refuses"),
    ],
)
def test_a_failing_template_is_the_fault_of_the_messages(source: str, word: str) -> None:
    """400 with the template's words and line: other messages may well work."""
    with pytest.raises(InvalidRequestError, match=word) as caught:
        rendered(source)
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("a\nb{% if %}", "line 2"),
        ("{% nonsense %}", "nonsense"),
        ("{{ 1 | urlize }}", "urlize"),
        ("{% for a in b %}", "line 1"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "recursion"),
        ("{% for a in [1] %}" * 40 + "{% endfor %}" * 40, "nested"),
        ("{% macro f() %}{{ varargs }}{% endmacro %}", "varargs"),
        ("{% autoescape true %}{% endautoescape %}", "autoescape"),
        ("x" * 300_000, "characters"),
    ],
)
def test_what_is_no_template_is_a_corrupt_file(source: str, word: str) -> None:
    """The fault is in the model's file, and is found at the first use or by prepare()."""
    with pytest.raises(CorruptFileError, match=word):
        ChatTemplate(source, {}).prepare()


def test_jinja_is_imported_with_the_first_template_only() -> None:
    """It takes longer than everything else in this package."""
    program = (
        "import sys; import octavo.chat.template as t; template = t.ChatTemplate('x', {});"
        "assert 'jinja2' not in sys.modules; template.prepare(); assert 'jinja2' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_threads_render_at_the_same_time() -> None:
    """Nothing of a rendering is kept in the template."""
    source = "{% set ns = namespace(n=0) %}{% for i in range(500) %}{% set ns.n = ns.n + 1 %}"
    template = ChatTemplate(source + "{% endfor %}{{ messages[0].content }}{{ ns.n }}", {})
    texts: dict[int, str] = {}

    def render(number: int) -> None:
        texts[number] = template.render([{"role": "user", "content": f"{number}:"}])

    threads = [threading.Thread(target=render, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: f"{number}:500" for number in range(8)}
