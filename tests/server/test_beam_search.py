"""`use_beam_search` in completions and chats: shapes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.asgi import Reply, scripted_server

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


async def ask(path: str, **fields: Any) -> Reply:
    """The answer to a beam search of width 2."""
    prompt: dict[str, Any] = {"prompt": "hello"}
    if path == CHATS:
        prompt = {"messages": [{"role": "user", "content": "hello"}]}
    body = {**prompt, "use_beam_search": True, "n": 2, "max_tokens": 5, **fields}
    async with scripted_server(chat_template=TEMPLATE, scheduler={"max_num_seqs": 8}) as client:
        reply = await client.post(path, body)
        stats = await client.state.engine.stats()
        assert (stats.num_running, stats.num_waiting, stats.num_used_blocks) == (0, 0, 0)
    return reply


@pytest.mark.parametrize("path", [COMPLETIONS, CHATS])
async def test_a_search_answers_with_as_many_choices_as_it_is_wide(path: str) -> None:
    """The best first, with usage over all of them."""
    reply = await ask(path, temperature=0, ignore_eos=True)

    choices = reply.json["choices"]
    assert reply.status == 200, reply.content
    assert [choice["index"] for choice in choices] == [0, 1]
    assert {choice["finish_reason"] for choice in choices} == {"length"}
    assert reply.json["usage"]["completion_tokens"] == 10


async def test_the_same_search_gives_the_same_answer() -> None:
    """There is nothing random in it; a length penalty of another value is taken."""
    first, second = [(await ask(COMPLETIONS)).json["choices"] for _ in range(2)]

    assert first == second
    assert (await ask(COMPLETIONS, length_penalty=0.5, early_stopping="never")).status == 200


async def test_logprobs_belong_to_the_tokens_of_each_beam() -> None:
    """In the shapes of both routes."""
    whole = (await ask(COMPLETIONS, logprobs=1, ignore_eos=True)).json["choices"]
    chat = (await ask(CHATS, logprobs=True, top_logprobs=1, ignore_eos=True)).json["choices"]

    assert [len(choice["logprobs"]["tokens"]) for choice in whole] == [5, 5]
    assert [len(choice["logprobs"]["content"]) for choice in chat] == [5, 5]


async def test_several_prompts_are_searched_in_order() -> None:
    """Each has its own choices."""
    reply = await ask(COMPLETIONS, prompt=["one", "two"])

    assert [choice["index"] for choice in reply.json["choices"]] == [0, 1, 2, 3]


async def test_a_search_without_a_width_is_greedy() -> None:
    """One beam is the likeliest token each time."""
    reply = await ask(COMPLETIONS, n=None, ignore_eos=True)
    async with scripted_server() as client:
        greedy = await client.post(
            COMPLETIONS,
            {"prompt": "hello", "temperature": 0, "max_tokens": 5, "ignore_eos": True},
        )

    assert reply.json["choices"][0]["text"] == greedy.json["choices"][0]["text"]


async def test_the_models_defaults_for_sampling_do_not_reach_a_search() -> None:
    """Nobody asked for them."""
    facts = {"generation_defaults": {"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1}}
    async with scripted_server(facts=facts) as client:
        reply = await client.post(
            COMPLETIONS, {"prompt": "hello", "use_beam_search": True, "n": 2, "max_tokens": 2}
        )

    assert reply.status == 200, reply.content


@pytest.mark.parametrize("path", [COMPLETIONS, CHATS])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": True}, "stream"),
        ({"temperature": 0.7}, "temperature"),
        ({"top_p": 0.5}, "top_p"),
        ({"seed": 3}, "seed"),
        ({"stop": ["x"]}, "stop"),
        ({"presence_penalty": 1}, "presence_penalty"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"min_tokens": 1}, "min_tokens"),
        ({"best_of": 4}, "best_of"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": 9}, "n"),
        ({"length_penalty": 99}, "length_penalty"),
        ({"early_stopping": "soon"}, "early_stopping"),
        ({"max_tokens": 10**6}, "max_tokens"),
        ({"use_beam_search": False, "n": None, "length_penalty": 2.0}, "length_penalty"),
        ({"use_beam_search": False, "n": None, "early_stopping": True}, "early_stopping"),
    ],
)
async def test_what_a_search_cannot_do_is_refused_by_name(
    path: str, fields: dict[str, Any], param: str
) -> None:
    """400 with the client's own name of the field."""
    reply = await ask(path, **fields)

    assert reply.status == 400, reply.content
    assert reply.error["param"] == param


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"regex": "a+"}},
    ],
)
async def test_a_form_is_refused_by_the_name_that_the_client_used(fields: dict[str, Any]) -> None:
    """And the message has no object of ours."""
    reply = await ask(CHATS, **fields)

    [name] = fields
    assert (reply.status, reply.error["param"]) == (400, name)
    assert reply.error["message"] == f"with beam search {name} has no meaning; leave it out"


async def test_echoed_logprobs_are_refused_by_name() -> None:
    """The prompt of a search is not scored; echo alone is text and works."""
    refused = await ask(COMPLETIONS, echo=True, logprobs=1)
    echoed = await ask(COMPLETIONS, echo=True)

    assert (refused.status, refused.error["param"]) == (400, "echo")
    assert echoed.json["choices"][1]["text"].startswith("hello")
