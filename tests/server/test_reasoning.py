"""Thoughts in /v1/chat/completions: apart from the content, alike in both modes."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.text.tokenizer import Tokenizer
from tests.server.test_tools import joined
from tests.support.asgi import Client, scripted_server
from tests.support.scripted_engine import says
from tests.support.thinking_tokenizer import thinking_tokenizer

PATH = "/v1/chat/completions"
PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"
THINKS = PLAIN + "{# </think> #}"
OPENS = THINKS + "{% if enable_thinking is false %}<think></think>{% else %}<think>{% endif %}"
EFFORT = PLAIN + "{{ reasoning_effort }}"
ANSWER = "<think>Hm, hm.</think>\n\nYes."


def asks(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "One"}]
    return {"messages": messages, "temperature": 0, "max_tokens": 100, **fields}


async def both(client: Client, **fields: Any) -> list[tuple[str, str]]:
    """(reasoning, content) of the whole answer, and of the stream."""
    whole = await client.post(PATH, asks(**fields))
    assert whole.status == 200, whole.content
    message = whole.json["choices"][0]["message"]
    streamed = joined((await client.post(PATH, asks(stream=True, **fields))).chunks)
    return [
        (message.get("reasoning") or "", message["content"]),
        (streamed["reasoning"], streamed["content"]),
    ]


async def test_thoughts_are_apart_from_the_content() -> None:
    async with scripted_server(says({"One": ANSWER}), chat_template=THINKS) as client:
        assert await both(client) == [("Hm, hm.", "Yes.")] * 2


async def test_thoughts_can_be_left_out() -> None:
    async with scripted_server(says({"One": ANSWER}), chat_template=THINKS) as client:
        assert await both(client, include_reasoning=False) == [("", "Yes.")] * 2


async def test_a_parser_can_be_named_or_turned_off() -> None:
    """By the names that vLLM has."""
    script = says({"One": "Hm.</think>Yes."})
    for name, parts in (("deepseek_r1", ("Hm.", "Yes.")), ("none", ("", "Hm.</think>Yes."))):
        config = ServerConfig(reasoning_parser=name)
        async with scripted_server(script, config, chat_template=THINKS) as client:
            assert await both(client) == [parts] * 2


async def test_tags_of_thoughts_can_be_named() -> None:
    """--reasoning-config, for a model of no known style."""
    tags = '{"reasoning_start_str": "<mull>", "reasoning_end_str": "</mull>"}'
    config = ServerConfig(reasoning_config=tags)
    script = says({"One": "<mull>Hm.</mull>Yes."})
    async with scripted_server(script, config, chat_template=PLAIN) as client:
        assert await both(client) == [("Hm.", "Yes.")] * 2


@pytest.mark.parametrize(
    "config",
    [
        '{"reasoning_start_str": "<think>", "reasoning_end_str": "</think>"}',
        '{"reasoning_parser": "qwen3"}',
        "{}",
    ],
)
async def test_tags_may_say_what_is_known(config: str) -> None:
    settings = ServerConfig(reasoning_config=config)
    async with scripted_server(says({"One": ANSWER}), settings, chat_template=THINKS) as client:
        assert await both(client) == [("Hm, hm.", "Yes.")] * 2


@pytest.mark.parametrize(
    "config",
    [
        '{"reasoning_start_str": "<mull>"}',
        '{"reasoning_end_str": "That is all.</think>"}',
        '{"reasoning_parser": "absent"}',
    ],
)
async def test_tags_that_the_style_has_not_end_the_start(config: str) -> None:
    with pytest.raises(ConfigError, match="--reasoning-"):
        async with scripted_server(
            config=ServerConfig(reasoning_config=config), chat_template=THINKS
        ):
            pass


@pytest.mark.parametrize("config", ['{"budget": 1}', "[]", "{"])
def test_a_config_of_tags_is_checked(config: str) -> None:
    with pytest.raises(ConfigError, match="--reasoning-config"):
        ServerConfig(reasoning_config=config)


async def test_a_prompt_that_opens_the_thoughts_is_noticed() -> None:
    """And one that has closed them, as templates do when thinking is turned off."""
    script = says({"One<think>": "Hm.</think>Yes.", "One<think></think>": "No thoughts."})
    async with scripted_server(script, chat_template=OPENS) as client:
        assert await both(client) == [("Hm.", "Yes.")] * 2
        closed = {"chat_template_kwargs": {"enable_thinking": False}}
        assert await both(client, **closed) == [("", "No thoughts.")] * 2
        assert await both(client, reasoning_effort="none") == [("", "No thoughts.")] * 2


async def test_an_effort_goes_into_the_template_where_it_has_a_word_for_it() -> None:
    """Elsewhere it is a hint that nobody takes, but not to think at all is a demand."""
    async with scripted_server(says({"Onehigh": "Yes."}), chat_template=EFFORT) as client:
        assert await both(client, reasoning_effort="high") == [("", "Yes.")] * 2
        unknown = await client.post(PATH, asks(reasoning_effort="huge"))
    async with scripted_server(chat_template=THINKS) as client:
        hint = await client.post(PATH, asks(reasoning_effort="high"))
        demand = await client.post(PATH, asks(reasoning_effort="none"))

    assert hint.status == 200
    for reply in (unknown, demand):
        assert (reply.status, reply.error["param"]) == (400, "reasoning_effort")


async def test_a_model_without_thoughts_takes_any_effort() -> None:
    """Clients send one to whatever model they speak to."""
    async with scripted_server(says({"One": "Yes."}), chat_template=PLAIN) as client:
        assert await both(client, reasoning_effort="high") == [("", "Yes.")] * 2


def thinking(text: str) -> list[int]:
    """The tokens of a text, tags included."""
    return thinking_tokenizer().encode(text)


@pytest.fixture
def tokenizer() -> Tokenizer:
    return thinking_tokenizer()


async def test_a_form_binds_the_answer_and_not_the_thoughts(tokenizer: Tokenizer) -> None:
    """The script's answer fits the form only after its thoughts."""
    script = says({"One": thinking("<think>No form here</think>yes")})
    async with scripted_server(script, chat_template=THINKS, tokenizer=tokenizer) as client:
        form = {"structured_outputs": {"choice": ["yes", "no"]}}
        assert await both(client, **form) == [("No form here", "yes")] * 2


async def test_a_model_that_does_not_think_is_held_to_the_form_from_the_first_token(
    tokenizer: Tokenizer,
) -> None:
    script = says({"One": thinking("yes and more")})
    async with scripted_server(script, chat_template=THINKS, tokenizer=tokenizer) as client:
        form = {"structured_outputs": {"choice": ["yes", "no"]}}
        assert await both(client, **form) == [("", "yes")] * 2


async def test_thoughts_beyond_their_budget_are_ended(tokenizer: Tokenizer) -> None:
    """The answer follows as the script goes on."""
    script = says({"One": thinking("<think>a b c d</think>yes")})
    async with scripted_server(
        script,
        chat_template=THINKS,
        tokenizer=tokenizer,
        on_executor=lambda executor: executor.obey_masks(),
    ) as client:
        [(whole, _), (streamed, _)] = await both(client, thinking_token_budget=2)

    assert len(thinking(whole)) == 2
    assert streamed == whole


async def test_a_budget_without_tags_is_refused() -> None:
    async with scripted_server(chat_template=PLAIN) as client:
        reply = await client.post(PATH, asks(thinking_token_budget=5))
        neutral = await client.post(PATH, asks(thinking_token_budget=-1))

    assert (reply.status, reply.error["param"]) == (400, "thinking_token_budget")
    assert neutral.status == 200
