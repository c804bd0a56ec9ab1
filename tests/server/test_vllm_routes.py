"""What clients of vLLM ask for beyond OpenAI's API: routes, fields, headers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from tests.server.conftest import MakeFolder
from tests.server.test_tools import CALL, HERMES, TOOLS
from tests.support.asgi import scripted_server
from tests.support.scripted_engine import ROOM_FOR_ENDLESS, says
from tests.support.serving import Gate
from tests.support.tiny_pooling import pooling_server

COMPLETIONS = "/v1/completions"
CHATS = "/v1/chat/completions"
BATCH = "/v1/chat/completions/batch"
ASKS_LOAD = {"endpoint-load-metrics-format": "JSON"}
TIMEOUT_S = 30
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    """A greedy chat of some messages of the user."""
    messages = [{"role": "user", "content": text} for text in texts]
    return {"messages": messages, "temperature": 0, "max_tokens": 4, **fields}


async def test_tokenizer_info_has_what_a_client_needs_to_build_prompts() -> None:
    """With its flag; without it the answer names the flag."""
    config = ServerConfig(enable_tokenizer_info_endpoint=True)
    async with scripted_server(config=config, chat_template=TEMPLATE) as client:
        told = (await client.get("/tokenizer_info")).json
        eos = (await client.post("/tokenize", {"prompt": told["eos_token"]})).json["tokens"]
    async with scripted_server() as client:
        refused = await client.get("/tokenizer_info")

    assert told["chat_template"] == TEMPLATE
    assert told["added_tokens_decoder"][str(eos[-1])] == {
        "content": told["eos_token"],
        "special": True,
    }
    assert told["model_max_length"] > 0
    assert refused.status == 404
    assert "--enable-tokenizer-info-endpoint" in refused.error["message"]


async def test_load_counts_the_answers_that_are_being_made() -> None:
    """One while a stream is open, none before and after it."""
    async with scripted_server(**ROOM_FOR_ENDLESS) as client:
        before = (await client.get("/load")).json

        async def load() -> Any:
            return (await client.get("/load")).json

        during = await client.while_it_streams(COMPLETIONS, {"prompt": "a"}, load)
        after = (await client.get("/load")).json

    assert [before, during, after] == [{"server_load": number} for number in (0, 1, 0)]


@pytest.mark.parametrize("form", ["TEXT", "json"])
async def test_an_answer_carries_the_load_where_it_is_asked_for(form: str) -> None:
    """The header of ORCA, in either form; no header without the question."""
    asked = {"endpoint-load-metrics-format": form}
    async with scripted_server() as client:
        told = await client.post(COMPLETIONS, {"prompt": "a"}, headers=asked)
        untold = await client.post(COMPLETIONS, {"prompt": "a"})

    kind, _, load = told.headers["endpoint-load-metrics"].partition(" ")
    assert kind == form.upper()
    if form == "json":
        assert json.loads(load)["named_metrics"]["num_requests_waiting"] == 0
    else:
        assert "named_metrics.num_requests_waiting=0.0" in load
    assert "endpoint-load-metrics" not in untold.headers


async def test_an_answer_of_an_engine_that_has_ended_carries_no_load() -> None:
    """It is the answer that it would have been without the question."""
    async with scripted_server() as client:
        await client.state.engine.shutdown()
        reply = await client.get("/v1/models", headers=ASKS_LOAD)

    assert reply.status == 200
    assert "endpoint-load-metrics" not in reply.headers


@pytest.mark.parametrize("path", ["/health", "/ping", "/ready"])
async def test_open_paths_tell_no_load_and_do_not_wait_for_a_step(path: str) -> None:
    """Whoever asks; the step that runs goes on until the answer is there."""
    gate = Gate()
    config = ServerConfig(api_key=("secret",))
    async with scripted_server(config=config, before_run=gate.before_run) as client:
        key = {"authorization": "Bearer secret"}
        body = {"prompt": "a", "max_tokens": 1}
        working = asyncio.ensure_future(client.post(COMPLETIONS, body, headers=key))
        await asyncio.to_thread(gate.is_reached.wait, TIMEOUT_S)
        reply = await client.get(path, headers=ASKS_LOAD)
        was_running = not working.done()
        gate.open()
        await working

    assert (reply.status, was_running) == (200, True)
    assert "endpoint-load-metrics" not in reply.headers


@pytest.mark.parametrize(
    ("path", "body"),
    [(CHATS, chat("One")), (COMPLETIONS, {"prompt": "One", "temperature": 0, "max_tokens": 4})],
)
async def test_an_invocation_is_what_its_fields_say(path: str, body: dict[str, Any]) -> None:
    """The answer of the route that has these fields, streamed as well."""
    async with scripted_server(chat_template=TEMPLATE) as client:
        direct = await client.post(path, body)
        invoked = await client.post("/invocations", body)
        streamed = await client.post("/invocations", body | {"stream": True})
        nothing = await client.post("/invocations", {"documents": ["a"]})

    assert (invoked.status, invoked.json["choices"]) == (200, direct.json["choices"])
    assert [choice["index"] for chunk in streamed.chunks for choice in chunk["choices"]]
    assert nothing.status == 400
    assert "messages, prompt" in nothing.error["message"]


async def test_an_invocation_of_an_encoder_makes_vectors_or_ranks(
    encoder_folder: MakeFolder,
) -> None:
    """By `input`, by `query`, by `queries`."""
    ranking = {"query": "a", "documents": ["b", "c"]}
    async with pooling_server(encoder_folder("bert")) as client:
        embedded = await client.post("/invocations", {"input": "a"})
        ranked = await client.post("/invocations", ranking)
        scored = await client.post("/invocations", {"queries": "a", "documents": ["b"]})

    assert embedded.json["data"][0]["object"] == "embedding"
    assert len(ranked.json["results"]) == 2
    assert scored.json["data"][0]["object"] == "score"


async def test_a_batch_of_chats_answers_each_as_if_it_came_alone() -> None:
    """Choice i answers conversation i; usage is the sum."""
    script = says({"One": " two three", "Red": " green"})
    conversations = [chat(text)["messages"] for text in ("One", "Red", "One")]
    async with scripted_server(script, chat_template=TEMPLATE) as client:
        alone = [await client.post(CHATS, chat(text)) for text in ("One", "Red", "One")]
        joined = (await client.post(BATCH, chat(messages=conversations))).json

    assert [choice["index"] for choice in joined["choices"]] == [0, 1, 2]
    contents = [choice["message"]["content"] for choice in joined["choices"]]
    assert contents == [reply.json["choices"][0]["message"]["content"] for reply in alone]
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert joined["usage"][name] == sum(reply.json["usage"][name] for reply in alone)


async def test_a_batch_of_chats_tells_of_each_prompt_in_its_choice() -> None:
    """Nothing that is of one conversation only stands beside the choices."""
    asked = {"return_token_ids": True, "prompt_logprobs": 1}
    texts = ("One", "Red green")
    config = ServerConfig(enable_per_request_metrics=True)
    async with scripted_server(config=config, chat_template=TEMPLATE) as client:
        alone = [(await client.post(CHATS, chat(text, **asked))).json for text in texts]
        body = chat(messages=[chat(text)["messages"] for text in texts], **asked)
        joined = (await client.post(BATCH, body)).json
        plain = (await client.post(BATCH, body | {"return_token_ids": False})).json

    assert set(joined) == {"id", "object", "created", "model", "choices", "usage"}
    for name in ("prompt_token_ids", "prompt_logprobs"):
        assert all(one[name] for one in alone)
        assert [choice[name] for choice in joined["choices"]] == [one[name] for one in alone]
    assert "prompt_token_ids" not in plain["choices"][0]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": chat("One")["messages"]}, "messages[0]"),
        ({"stream": True}, "stream"),
        ({"n": 2}, "n"),
        ({"tools": TOOLS}, "tools"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"temperature": 9}, "temperature"),
    ],
)
async def test_a_batch_of_chats_refuses_what_one_answer_cannot_have(
    fields: dict[str, Any], param: str
) -> None:
    """By the field's name."""
    body = chat(messages=[chat("One")["messages"]]) | fields
    async with scripted_server(chat_template=TEMPLATE) as client:
        reply = await client.post(BATCH, body)

    assert (reply.status, reply.error["param"]) == (400, param)


async def test_an_echo_repeats_the_beginning_of_the_answer() -> None:
    """In both modes, where an assistant's text is continued; anything else is refused."""
    beginning = {"role": "assistant", "content": "One"}
    script = says({"SayOne": " two three"})
    body = chat("Say", echo=True, continue_final_message=True)
    body["messages"] = [*body["messages"], beginning]
    async with scripted_server(script, chat_template=TEMPLATE) as client:
        whole = (await client.post(CHATS, body)).json["choices"][0]["message"]["content"]
        streamed = await client.post(CHATS, body | {"stream": True})
        refused = await client.post(CHATS, chat("Say", echo=True))

    deltas = [choice["delta"] for chunk in streamed.chunks for choice in chunk["choices"]]
    assert whole.startswith("One")
    assert len(whole) > 3
    assert "".join(delta.get("content") or "" for delta in deltas) == whole
    assert (refused.status, refused.error["param"]) == (400, "echo")


@pytest.mark.parametrize("by_flag", [True, False])
async def test_tokens_of_logprobs_are_named_by_their_ids(by_flag: bool) -> None:
    """In chats and completions, by the request or by the server's flag."""
    config = ServerConfig(return_tokens_as_token_ids=by_flag)
    asked = {"return_token_ids": True} | ({} if by_flag else {"return_tokens_as_token_ids": True})
    text = {"prompt": "One", "max_tokens": 3, "logprobs": 2, **asked}
    async with scripted_server(config=config, chat_template=TEMPLATE) as client:
        [completed] = (await client.post(COMPLETIONS, text)).json["choices"]
        told = await client.post(CHATS, chat("One", logprobs=True, top_logprobs=2, **asked))

    ids = [f"token_id:{token}" for token in completed["token_ids"]]
    assert completed["logprobs"]["tokens"] == ids
    assert ids[0] in completed["logprobs"]["top_logprobs"][0]
    [choice] = told.json["choices"]
    content = choice["logprobs"]["content"]
    assert [one["token"] for one in content] == [f"token_id:{id_}" for id_ in choice["token_ids"]]
    assert all(one["token"].startswith("token_id:") for one in content[0]["top_logprobs"])


async def test_what_is_told_of_the_prompt_stands_where_vllm_has_it() -> None:
    """In chats beside the choices, in completions in each; null where it was not asked for."""
    names = ("prompt_token_ids", "prompt_logprobs")
    asked = {"return_token_ids": True, "prompt_logprobs": 1}
    async with scripted_server(chat_template=TEMPLATE) as client:
        told = (await client.post(CHATS, chat("One", **asked))).json
        untold = (await client.post(CHATS, chat("One"))).json
        streamed = await client.post(CHATS, chat("One", return_token_ids=True, stream=True))
        text = {"prompt": "One", "max_tokens": 1}
        completed = (await client.post(COMPLETIONS, text | asked)).json["choices"][0]
        plain = (await client.post(COMPLETIONS, text)).json["choices"][0]

    assert len(told["prompt_logprobs"]) == len(told["prompt_token_ids"]) > 0
    assert streamed.chunks[0]["prompt_token_ids"] == told["prompt_token_ids"]
    assert completed["prompt_token_ids"] == told["prompt_token_ids"]
    assert [untold[name] for name in names] == [plain[name] for name in names] == [None, None]


async def test_a_prompt_is_cut_where_the_request_says() -> None:
    """At its beginning unless truncation_side is right; another word is refused."""
    kept = {}
    async with scripted_server() as client:
        for side in (None, "left", "right", "middle"):
            body = {
                "prompt": [5, 6, 7, 8, 9],
                "max_tokens": 1,
                "truncate_prompt_tokens": 2,
                "truncation_side": side,
                "return_token_ids": True,
            }
            kept[side] = await client.post(COMPLETIONS, body)

    ids = {
        side: kept[side].json["choices"][0]["prompt_token_ids"] for side in (None, "left", "right")
    }
    assert ids == {None: [8, 9], "left": [8, 9], "right": [5, 6]}
    assert (kept["middle"].status, kept["middle"].error["param"]) == (400, "truncation_side")


async def test_a_streamed_call_comes_before_the_end() -> None:
    """OpenAI's client reports a call as done at the end, if it came in a chunk before."""
    script = says({"One": CALL})
    body = chat("One", tools=TOOLS, stream=True, max_tokens=200)
    async with scripted_server(script, chat_template=HERMES) as client:
        chunks = (await client.post(CHATS, body)).chunks

    *before, last = [choice for chunk in chunks for choice in chunk["choices"]]
    assert any(choice["delta"].get("tool_calls") for choice in before)
    assert all(choice["finish_reason"] is None for choice in before)
    assert (last["delta"], last["finish_reason"]) == ({}, "tool_calls")


async def test_vectors_keep_the_beginning_of_a_text(encoder_folder: MakeFolder) -> None:
    """truncation_side may say so; left is refused by name."""
    body = {"input": "a b c d e f g h", "truncate_prompt_tokens": 4}
    async with pooling_server(encoder_folder("bert")) as client:
        right = await client.post("/v1/embeddings", body | {"truncation_side": "right"})
        left = await client.post("/v1/embeddings", body | {"truncation_side": "left"})

    assert right.json["usage"]["prompt_tokens"] == 4
    assert (left.status, left.error["param"]) == (400, "truncation_side")


@pytest.mark.parametrize("path", [CHATS, COMPLETIONS])
async def test_usage_in_every_chunk_is_part_of_usage_in_the_stream(path: str) -> None:
    """With include_usage from the first chunk on, and growing; without it in none."""
    asked = {"prompt": "One", "max_tokens": 3, "ignore_eos": True, "stream": True}
    asked |= chat("One") if path == CHATS else {}
    asked.pop("prompt" if path == CHATS else "messages", None)
    async with scripted_server(chat_template=TEMPLATE) as client:

        async def chunks(*, includes: bool) -> list[dict[str, Any]]:
            options = {"include_usage": includes, "continuous_usage_stats": True}
            return (await client.post(path, asked | {"stream_options": options})).chunks

        told, untold = await chunks(includes=True), await chunks(includes=False)

    counts = [chunk["usage"]["completion_tokens"] for chunk in told]
    assert counts == sorted(counts)
    assert counts[0] == 0 or path == COMPLETIONS
    assert all(chunk.get("usage") is None for chunk in untold)


# ---- headers that stand for fields


async def test_the_header_names_the_request() -> None:
    """Before the body's own name, as in vLLM; of every chat of several too."""
    named = {"X-Request-Id": "from-a-proxy"}
    chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}
    several = chat | {"messages": [chat["messages"]] * 2}
    async with scripted_server(chat_template=TEMPLATE) as client:
        text = await client.post(COMPLETIONS, {"prompt": "a", "request_id": "b"}, headers=named)
        message = await client.post("/v1/chat/completions", chat, headers=named)
        both = await client.post("/v1/chat/completions/batch", several, headers=named)
        long = await client.post(COMPLETIONS, {"prompt": "a"}, headers={"X-Request-Id": "a" * 999})

    ids = [reply.json["id"] for reply in (text, message, both)]
    assert ids == ["cmpl-from-a-proxy", "chatcmpl-from-a-proxy", "chatcmpl-from-a-proxy"]
    assert (long.status, long.error["param"]) == (400, "request_id")


@pytest.mark.parametrize("path", [COMPLETIONS, CHATS])
async def test_the_header_says_the_priority(path: str) -> None:
    """It counts before the body's."""
    body = chat("a", priority=7) if path == CHATS else {"prompt": "a", "priority": 7}
    scheduler = {"scheduling_policy": "priority"}
    async with scripted_server(
        chat_template=TEMPLATE, scheduler=scheduler, **ROOM_FOR_ENDLESS
    ) as client:
        view = await client.while_it_streams(
            path, body, lambda: client.get("/debug/kv"), headers={"X-Vllm-Priority": "-3"}
        )

    assert view.json["requests"][0]["priority"] == -3


@pytest.mark.parametrize("path", [COMPLETIONS, "/v1/responses"])
async def test_a_priority_in_the_header_is_refused_as_in_the_body(path: str) -> None:
    """What is no number, and any where the policy has none."""
    body = {"prompt": "a"} if path == COMPLETIONS else {"input": "a"}
    async with scripted_server(chat_template=TEMPLATE) as client:
        bad = await client.post(path, body, headers={"X-Vllm-Priority": "high"})
        idle = await client.post(path, body, headers={"X-Vllm-Priority": "1"})

    for reply in (bad, idle):
        assert (reply.status, reply.error["param"]) == (400, "priority")
    assert "X-Vllm-Priority must be a whole number, got 'high'" in bad.error["message"]
    assert "under the policy fcfs" in idle.error["message"]
