"""/v1/chat/completions: errors speak of the fields that a chat has."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.asgi import scripted_server

PATH = "/v1/chat/completions"
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
LONG = [{"role": "user", "content": "word " * 300}]


def chat(**fields: Any) -> dict[str, Any]:
    """A greedy chat of one message."""
    messages = [{"role": "user", "content": "hello"}]
    return {"messages": messages, "temperature": 0, **fields}


@pytest.mark.parametrize(
    ("fields", "param", "foreign"),
    [
        ({"logprobs": True, "top_logprobs": 50}, "top_logprobs", " logprobs"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "max_tokens"),
        ({"max_completion_tokens": 9999}, "max_completion_tokens", "max_tokens"),
        ({"max_completion_tokens": 2, "min_tokens": 3}, "min_tokens", "max_tokens"),
        ({"max_tokens": 0}, "max_tokens", "max_completion_tokens"),
        ({"max_tokens": 9999}, "max_tokens", "prompt"),
        ({"messages": LONG}, "messages", "prompt"),
        ({"messages": [{"role": "user", "content": "x" * 70_000}]}, "messages", "prompt"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages", "prompt"),
        ({"logprobs": True, "prompt_logprobs": 50}, "prompt_logprobs", "top_logprobs"),
    ],
)
async def test_a_refusal_names_the_field_that_the_user_sent(
    fields: dict[str, Any], param: str, foreign: str
) -> None:
    """In `param` and in the text, which has no word for a field of another route."""
    async with scripted_server(chat_template=TEMPLATE) as client:
        reply = await client.post(PATH, chat(**fields))

    assert (reply.status, reply.error["param"]) == (400, param)
    assert param in reply.error["message"]
    assert foreign not in reply.error["message"]


async def test_a_stream_is_refused_in_the_same_words() -> None:
    """Before its first event, with the status of a whole answer."""
    async with scripted_server(chat_template=TEMPLATE) as client:
        whole = await client.post(PATH, chat(messages=LONG))
        streamed = await client.post(PATH, chat(messages=LONG, stream=True))

    assert (streamed.status, streamed.error) == (400, whole.error)


async def test_the_words_of_a_template_stay_as_they_are() -> None:
    """They are its author's, and may speak of a prompt."""
    template = "{{ raise_exception('the prompt must begin with a user') }}"
    async with scripted_server(chat_template=template) as client:
        reply = await client.post(PATH, chat())

    assert (reply.status, reply.error["param"]) == (400, "messages")
    assert "the prompt must begin with a user" in reply.error["message"]
