"""What vLLM's own tests of its server ask of a body, kept here without them."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from tests.support.asgi import Client, scripted_server
from tests.support.scripted_engine import says

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"


def chat(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "One"}]
    return {"messages": messages, "temperature": 0, "max_tokens": 4} | fields


async def refusal(client: Client, path: str, body: dict[str, Any]) -> str:
    """The message of a 400."""
    reply = await client.post(path, body)
    assert reply.status == 400, reply.content
    return str(reply.error["message"])


async def test_numbers_and_booleans_may_be_written_as_texts() -> None:
    """Clients that fill in forms send them so."""
    asked = chat(logprobs="true", top_logprobs="2", max_tokens="3", temperature="0", stop="7")
    async with scripted_server(chat_template=PLAIN) as client:
        written = await client.post(CHATS, asked)
        plain = await client.post(CHATS, chat(logprobs=True, top_logprobs=2, max_tokens=3))

    assert written.status == 200, written.content
    assert written.json["choices"] == plain.json["choices"]


async def test_a_text_that_is_no_number_is_refused_by_the_name_of_the_field() -> None:
    async with scripted_server(chat_template=PLAIN) as client:
        for fields in ({"logprobs": "maybe"}, {"max_tokens": "many"}, {"stop": 5}):
            assert next(iter(fields)) in await refusal(client, CHATS, chat(**fields))


async def test_texts_stay_texts() -> None:
    """Also beside a number that is written as one."""
    script = says({"7": " eight"})
    async with scripted_server(script) as client:
        reply = await client.post(COMPLETIONS, {"prompt": ["7"], "temperature": "0"})

    assert reply.json["choices"][0]["text"] == " eight"


@pytest.mark.parametrize(
    ("bias", "places"),
    [
        ({"bad1": 5, "7": 1, "bad2": 2}, ("bad1", "bad2")),
        ({"888888": 1, "999999": 2}, ("888888", "999999")),
    ],
)
async def test_every_wrong_key_of_a_bias_is_named(bias: dict[str, Any], places: Any) -> None:
    async with scripted_server(chat_template=PLAIN) as client:
        message = await refusal(client, CHATS, chat(logit_bias=bias))
        endless = {f"bad{number}": 1 for number in range(2000)}
        short = await refusal(client, CHATS, chat(logit_bias=endless))

    assert all(place in message for place in places), message
    assert "and 1992 more" in short
    assert len(short) < 300


@pytest.mark.parametrize(
    ("seed", "rule"), [(2**63, "less_than_equal"), (-(2**63) - 1, "greater_than_equal")]
)
async def test_a_seed_has_64_bits_with_a_sign(seed: int, rule: str) -> None:
    async with scripted_server(chat_template=PLAIN) as client:
        message = await refusal(client, CHATS, chat(seed=seed))
        edge = await client.post(CHATS, chat(seed=2**63 - 1))

    assert "seed" in message
    assert rule in message
    assert edge.status == 200


async def test_asked_tokens_take_the_place_of_the_best_ones_in_a_chat() -> None:
    """With the token that was drawn, each once."""
    asked = chat(logprobs=True, return_tokens_as_token_ids=True, logprob_token_ids=[9, 5, 9])
    async with scripted_server(says({"One": "two"}), chat_template=PLAIN) as client:
        whole = (await client.post(CHATS, asked)).json["choices"][0]["logprobs"]["content"]
        streamed = (await client.post(CHATS, asked | {"stream": True})).chunks

    for entry in whole:
        names = [shown["token"] for shown in entry["top_logprobs"]]
        assert sorted(names) == sorted({entry["token"], "token_id:5", "token_id:9"})
    entries = [chunk["choices"][0].get("logprobs") for chunk in streamed]
    assert [one for entry in entries if entry for one in entry["content"]] == whole


async def test_asked_tokens_are_shown_by_completions_after_the_drawn_one() -> None:
    body = {"prompt": "hi", "temperature": 0, "max_tokens": 2, "logprobs": 1}
    asked = body | {"logprob_token_ids": [9, 5], "return_tokens_as_token_ids": True}
    async with scripted_server() as client:
        shown = (await client.post(COMPLETIONS, asked)).json["choices"][0]["logprobs"]

    for token, best in zip(shown["tokens"], shown["top_logprobs"], strict=True):
        assert list(best) == [token, "token_id:9", "token_id:5"]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        (CHATS, {}),
        (CHATS, {"logprobs": False}),
        (CHATS, {"logprobs": True, "use_beam_search": True}),
        (COMPLETIONS, {}),
        (COMPLETIONS, {"logprobs": 1, "use_beam_search": True}),
        (COMPLETIONS, {"logprobs": 1, "echo": True, "max_tokens": 0}),
    ],
)
async def test_asked_tokens_need_log_probabilities(path: str, fields: dict[str, Any]) -> None:
    body = chat() if path == CHATS else {"prompt": "hi", "max_tokens": 2}
    async with scripted_server(chat_template=PLAIN) as client:
        message = await refusal(client, path, body | fields | {"logprob_token_ids": [5]})

    assert "logprob_token_ids" in message


@pytest.mark.parametrize("ids", [[10**6], [-1], list(range(129))])
async def test_asked_tokens_are_a_few_of_the_vocabulary(ids: list[int]) -> None:
    async with scripted_server(chat_template=PLAIN) as client:
        message = await refusal(client, CHATS, chat(logprobs=True, logprob_token_ids=ids))

    assert "logprob_token_ids" in message


async def test_forced_usage_is_in_every_chunk() -> None:
    """--enable-force-include-usage; it counts up."""
    config = ServerConfig(enable_force_include_usage=True)
    async with scripted_server(config=config, chat_template=PLAIN) as client:
        chunks = (await client.post(CHATS, chat(stream=True, ignore_eos=True))).chunks

    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert (counts[0], counts[-2:]) == (0, [4, 4])
    assert chunks[-1]["choices"] == []


async def test_variables_of_the_template_have_defaults() -> None:
    """--default-chat-template-kwargs; a request's own come before them."""
    config = ServerConfig(default_chat_template_kwargs='{"mood": "calm", "unused": 1}')
    template = PLAIN + "{{ mood }}"
    script = says({"Onecalm": " yes", "Onewild": " no"})
    async with scripted_server(script, config, chat_template=template) as client:
        usual = await client.post(CHATS, chat())
        own = await client.post(CHATS, chat(chat_template_kwargs={"mood": "wild"}))
        tokens = await client.post("/tokenize", {"messages": chat()["messages"]})
        text = await client.post("/detokenize", {"tokens": tokens.json["tokens"]})

    assert usual.json["choices"][0]["message"]["content"] == " yes"
    assert own.json["choices"][0]["message"]["content"] == " no"
    assert text.json["prompt"] == "Onecalm"


@pytest.mark.parametrize("text", ["[]", "{", '{"messages": []}', '{"eos_token": "x"}'])
async def test_defaults_of_the_template_are_checked_at_start(text: str) -> None:
    with pytest.raises(ConfigError, match="--default-chat-template-kwargs"):
        async with scripted_server(config=ServerConfig(default_chat_template_kwargs=text)):
            pass


async def test_the_form_of_contents_can_be_named() -> None:
    """--chat-template-content-format."""
    template = "{% for message in messages %}{{ message.content is string }}{% endfor %}"
    for name, seen in (("auto", "True"), ("string", "True"), ("openai", "False")):
        config = ServerConfig(chat_template_content_format=name)
        async with scripted_server(says({seen: " it"}), config, chat_template=template) as client:
            reply = await client.post(CHATS, chat())
        assert reply.json["choices"][0]["message"]["content"] == " it", name
    with pytest.raises(ConfigError, match="--chat-template-content-format"):
        ServerConfig(chat_template_content_format="xml")


async def test_a_router_may_hand_on_the_tokens_of_a_chat() -> None:
    """They are the prompt, whatever the messages say; nothing else is transferred."""
    async with scripted_server(says({"One": " two"}), chat_template=PLAIN) as client:
        tokens = (await client.post("/tokenize", {"prompt": "One"})).json["tokens"]
        transfer = {"prompt_token_ids": tokens}
        other = {"messages": [{"role": "user", "content": "x"}], "return_token_ids": True}
        reply = await client.post(CHATS, chat(kv_transfer_params=transfer, **other))
        for wrong in ({"do_remote_prefill": True}, {"prompt_token_ids": ["1"]}):
            told = await refusal(client, CHATS, chat(kv_transfer_params=wrong))
            assert f"kv_transfer_params.{next(iter(wrong))}" in told
        outside = await refusal(client, CHATS, chat(kv_transfer_params={"prompt_token_ids": [-1]}))
        prompt = {"prompt": "One", "kv_transfer_params": transfer}
        told = await refusal(client, COMPLETIONS, prompt)

    assert reply.json["prompt_token_ids"] == tokens
    assert reply.json["choices"][0]["message"]["content"] == " two"
    assert "out of vocabulary" in outside
    assert "kv_transfer_params" in told


async def test_a_proxy_may_leave_its_prefix_or_cut_it_off() -> None:
    """--root-path; keys guard both ways, and what only looks like the prefix is not cut."""
    config = ServerConfig(root_path="/llm", api_key=("key",))
    key = {"authorization": "Bearer key"}
    async with scripted_server(config=config) as client:
        statuses = {
            path: [(await client.get(path, headers=headers)).status for headers in ({}, key)]
            for path in ("/v1/models", "/llm/v1/models", "/llmv1/models", "/llm/llm/v1/models")
        }

    assert statuses == {
        "/v1/models": [401, 200],
        "/llm/v1/models": [401, 200],
        "/llmv1/models": [401, 404],
        "/llm/llm/v1/models": [401, 404],
    }


async def test_tokens_behind_a_stop_string_are_not_counted_as_generated() -> None:
    """Neither in usage nor in the metrics, however many the core has computed."""
    async with scripted_server(says({"One": "two three four"}), chat_template=PLAIN) as client:
        reply = await client.post(CHATS, chat(stop="two", max_tokens=20))
        text = (await client.get("/metrics")).content.decode()

    [line] = [line for line in text.splitlines() if line.startswith("vllm:generation_tokens_total")]
    assert float(line.split()[-1]) == reply.json["usage"]["completion_tokens"]
