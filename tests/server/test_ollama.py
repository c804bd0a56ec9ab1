"""/api/chat and /api/generate: Ollama's shapes around the same chat."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from octavo.config.server import ServerConfig
from octavo.server.dialects.ollama import chat_of
from octavo.server.schemas.ollama import OllamaChatRequest
from tests.server.test_reasoning import ANSWER, EFFORT, OPENS, THINKS
from tests.server.test_tools import CALL, CITY, HERMES, NOW, TEMPLATE, TOOLS, tool
from tests.support.asgi import Client, Reply, scripted_server
from tests.support.scripted_engine import ENDLESS, ROOM_FOR_ENDLESS, says

CHAT, GENERATE = "/api/chat", "/api/generate"
DEEP: dict[str, Any] = {}
for _ in range(400):
    DEEP = {"a": DEEP}
LAST = {
    "done",
    "done_reason",
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
}
SHOWS_ALL = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for m in messages %}[{{ m.role }}|{{ m.reasoning or '' }}|{{ m.content }}|"
    "{% for call in m.tool_calls or [] %}{{ call.id }} {{ call.function | tojson }}{% endfor %}|"
    "{{ m.name or '' }} {{ m.tool_call_id or '' }}]{% endfor %}"
    "{# <tool_call> #}{# </think> #}"
)


def asks(**fields: Any) -> dict[str, Any]:
    """A greedy chat."""
    options = {"temperature": 0, "num_predict": 200, **fields.pop("options", {})}
    messages = [{"role": "user", "content": "One"}]
    return {"model": "tiny", "messages": messages, "options": options, **fields}


def prompts(**fields: Any) -> dict[str, Any]:
    """A greedy prompt."""
    body = asks(**fields)
    del body["messages"]
    return {"prompt": "One", **body}


def lines_of(reply: Reply) -> list[dict[str, Any]]:
    """The lines of a stream."""
    assert reply.status == 200, reply.content
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.content.splitlines()]


def joined(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The answer that the lines make, with the counts of the last."""
    *pieces, last = lines
    assert [one["done"] for one in lines] == [False] * len(pieces) + [True]
    assert set(last) >= LAST
    whole: dict[str, Any] = {"content": "", "thinking": "", "tool_calls": [], "logprobs": []}
    for line in lines:
        message = line.get("message") or {"content": line.get("response"), **line}
        whole["content"] += message["content"]
        whole["thinking"] += message.get("thinking", "")
        whole["tool_calls"] += message.get("tool_calls", [])
        whole["logprobs"] += line.get("logprobs", [])
    return whole | {name: last[name] for name in LAST}


async def both(client: Client, path: str = CHAT, **fields: Any) -> list[dict[str, Any]]:
    """The whole answer, and the streamed one joined."""
    body = asks(**fields) if path == CHAT else prompts(**fields)
    whole = await client.post(path, body | {"stream": False})
    assert whole.status == 200, whole.content
    streamed = await client.post(path, body)
    return [joined([whole.json]), joined(lines_of(streamed))]


@pytest.mark.parametrize("path", [CHAT, GENERATE])
async def test_an_answer_has_ollamas_shape(path: str) -> None:
    body = asks if path == CHAT else prompts
    async with scripted_server(says({"One": " two"}), chat_template=TEMPLATE) as client:
        reply = await client.post(path, body(stream=False))

    answer = reply.json
    text = {"message": {"role": "assistant", "content": " two"}}
    assert reply.headers["content-type"] == "application/json"
    assert answer["model"] == "tiny"
    assert answer["created_at"].endswith("Z")
    assert set(answer) == {"model", "created_at", *LAST, "message" if path == CHAT else "response"}
    assert answer.items() >= (text if path == CHAT else {"response": " two"}).items()
    assert (answer["done"], answer["done_reason"]) == (True, "stop")
    assert answer["total_duration"] >= answer["eval_duration"] > 0


@pytest.mark.parametrize("path", [CHAT, GENERATE])
async def test_lines_are_sent_unless_they_are_not_wanted(path: str) -> None:
    async with scripted_server(says({"One": " two three"}), chat_template=TEMPLATE) as client:
        whole, streamed = await both(client, path)

    for answer in (whole, streamed):
        assert answer["content"] == " two three"
        assert answer["prompt_eval_count"] > 0
    assert streamed["eval_count"] == whole["eval_count"] > 1


async def test_options_are_kept() -> None:
    async with scripted_server(says({"One": " two three"}), chat_template=TEMPLATE) as client:
        for answer in await both(client, options={"stop": ["thr"]}):
            assert (answer["content"], answer["done_reason"]) == (" two ", "stop")
        for answer in await both(client, options={"num_predict": 1, "num_ctx": 256}):
            assert (answer["eval_count"], answer["done_reason"]) == (1, "length")
        for answer in await both(client, options={"num_predict": -1, "mirostat": 0}):
            assert (answer["content"], answer["done_reason"]) == (" two three", "stop")


async def test_every_option_reaches_the_chat() -> None:
    """Under the name that a chat completion has for it."""
    options = {
        "num_predict": 9,
        "temperature": 0.5,
        "top_k": 50,
        "top_p": 0.9,
        "min_p": 0.1,
        "seed": 3,
        "stop": ["x"],
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "repeat_penalty": 1.1,
    }
    renamed = {"num_predict": "max_tokens", "repeat_penalty": "repetition_penalty"}
    async with scripted_server(chat_template=TEMPLATE) as client:
        body = msgspec.convert(asks(options=options), OllamaChatRequest)
        chat = chat_of(client.state, body)

    for name, value in options.items():
        assert getattr(chat, renamed.get(name, name)) == value


async def test_calls_have_objects_as_arguments() -> None:
    script = says({"One": "Let me see. " + CALL + NOW})
    async with scripted_server(script, chat_template=HERMES) as client:
        for answer in await both(client, tools=TOOLS):
            assert answer["content"].strip() == "Let me see."
            functions = [call["function"] for call in answer["tool_calls"]]
            assert functions == [
                {"index": 0, "name": "weather", "arguments": {"city": "Oslo"}},
                {"index": 1, "name": "now", "arguments": {}},
            ]
            assert answer["done_reason"] == "stop"


@pytest.mark.parametrize("path", [CHAT, GENERATE])
async def test_thoughts_are_apart(path: str) -> None:
    async with scripted_server(says({"One": ANSWER}), chat_template=THINKS) as client:
        for answer in await both(client, path, think=True):
            assert (answer["thinking"], answer["content"]) == ("Hm, hm.", "Yes.")


async def test_thinking_is_turned_off_by_the_template_and_an_effort_reaches_it() -> None:
    script = says({"One<think></think>": "No thoughts.", "One<think>": "Hm.</think>Yes."})
    async with scripted_server(script, chat_template=OPENS) as client:
        for answer in await both(client, think=False):
            assert (answer["thinking"], answer["content"]) == ("", "No thoughts.")
    script = says({"Onelow": " two"})
    async with scripted_server(script, chat_template=EFFORT + "{# </think> #}") as client:
        for answer in await both(client, think="low"):
            assert answer["content"].strip() == "two"


async def test_a_form_is_kept() -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    async with scripted_server(says({"One": '{"a": 1}'}), chat_template=TEMPLATE) as client:
        for answer in await both(client, format=schema):
            assert json.loads(answer["content"]) == {"a": 1}
        for answer in await both(client, GENERATE, format="json"):
            assert json.loads(answer["content"]) == {"a": 1}


async def test_a_raw_prompt_passes_the_template_by() -> None:
    """So do the prompts of a model that has no template."""
    script = says({"One": " two", "(One)": " three", "SysOne": " four"})
    framed = "(" + TEMPLATE + ")"
    async with scripted_server(script, chat_template=framed) as client:
        for answer in await both(client, GENERATE, raw=True):
            assert answer["content"] == " two"
        for answer in await both(client, GENERATE):
            assert answer["content"] == " three"
    async with scripted_server(script, chat_template=TEMPLATE) as client:
        for answer in await both(client, GENERATE, system="Sys"):
            assert answer["content"] == " four"
    async with scripted_server(script) as client:
        for answer in await both(client, GENERATE):
            assert answer["content"] == " two"


async def test_logprobs_are_those_of_a_chat() -> None:
    fields = {"logprobs": True, "top_logprobs": 2}
    chat = {"messages": asks()["messages"], "temperature": 0, **fields}
    async with scripted_server(says({"One": " two"}), chat_template=TEMPLATE) as client:
        theirs = (await client.post("/v1/chat/completions", chat)).json["choices"][0]
        for answer in await both(client, **fields):
            assert answer["logprobs"] == theirs["logprobs"]["content"]
            assert answer["logprobs"]


CONVERSATION = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Hot?"},
    {
        "role": "assistant",
        "content": "I look.",
        "thinking": "Hm.",
        "tool_calls": [
            {"function": {"name": "weather", "arguments": {"city": "Oslo"}}},
            {"function": {"name": "now", "arguments": {}}},
        ],
    },
    {"role": "tool", "tool_name": "now", "content": "noon"},
    {"role": "tool", "content": "12"},
]


async def test_a_conversation_is_the_same_prompt_as_in_a_chat() -> None:
    """The scripted model answers each prompt otherwise, so equal answers are equal prompts."""

    def call(name: str, arguments: str, call_id: str) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments}
        return {"id": call_id, "type": "function", "function": function}

    messages = [
        *CONVERSATION[:2],
        {
            "role": "assistant",
            "content": "I look.",
            "reasoning": "Hm.",
            "tool_calls": [
                call("weather", '{"city": "Oslo"}', "call00000"),
                call("now", "{}", "call00001"),
            ],
        },
        {"role": "tool", "name": "now", "tool_call_id": "call00001", "content": "noon"},
        {"role": "tool", "name": "weather", "tool_call_id": "call00000", "content": "12"},
    ]
    tools = [tool("weather", CITY), tool("now")]
    room = {"chat_template": SHOWS_ALL, "max_model_len": 1024, "num_blocks": 1024}
    async with scripted_server(**room) as client:
        chat = {"messages": messages, "tools": tools, "temperature": 0, "max_tokens": 8}
        theirs = await client.post("/v1/chat/completions", chat)
        fields = {"messages": CONVERSATION, "tools": tools, "options": {"num_predict": 8}}
        for answer in await both(client, **fields):
            assert answer["content"] == theirs.json["choices"][0]["message"]["content"] != ""
            assert answer["prompt_eval_count"] == theirs.json["usage"]["prompt_tokens"]


async def test_a_request_without_a_prompt_finds_the_model_loaded() -> None:
    async with scripted_server(chat_template=TEMPLATE) as client:
        chat = (await client.post(CHAT, {"model": "tiny"})).json
        generate = (await client.post(GENERATE, {"model": "tiny", "keep_alive": "5m"})).json
        unload = await client.post(GENERATE, {"model": "tiny", "keep_alive": 0})

    assert (chat["done_reason"], chat["message"]["content"]) == ("load", "")
    assert (generate["done_reason"], generate["response"]) == ("load", "")
    assert unload.status == 400
    assert "keep_alive" in unload.json["error"]


def message(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "a", **fields}]}


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"options": {"num_ctx": 9999}}, "options.num_ctx"),
        ({"options": {"num_predict": 0}}, "options.num_predict"),
        ({"options": {"num_predict": 9999}}, "options.num_predict"),
        ({"options": {"temperature": 3}}, "options.temperature"),
        ({"options": {"repeat_penalty": -1}}, "options.repeat_penalty"),
        ({"options": {"repeat_last_n": 64}}, "options.repeat_last_n"),
        ({"options": {"mirostat": 2}}, "options.mirostat"),
        ({"options": {"num_gpu": 1}}, "options.num_gpu"),
        ({"options": {"top_k": "a"}}, "options.top_k"),
        ({"format": "xml"}, "format"),
        ({"format": {"type": "bad"}}, "format"),
        ({"think": True}, "think"),
        ({"think": "low"}, "think"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"truncate": True}, "truncate"),
        (message(role="robot"), "messages[0].role"),
        (message(images=["AA=="]), "messages[0].images"),
        (message(content=[{"type": "text"}]), "messages[0].content"),
        (message(x=1), "messages[0].x"),
        (
            message(role="assistant", tool_calls=[{"function": {"name": "a", "arguments": DEEP}}]),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            message(role="assistant", tool_calls=[{"function": {}}]),
            "messages[0].tool_calls[0].function.name",
        ),
        (message(tool_calls=[{}]), "messages[0].tool_calls"),
        (message(tool_name="a"), "messages[0].tool_name"),
        ({"tools": [{"type": "x"}]}, "tools[0].type"),
        ({"template": "x"}, "template"),
        ({"n": 2}, "n"),
    ],
)
async def test_what_a_chat_does_not_serve_is_refused_by_name(
    fields: dict[str, Any], place: str
) -> None:
    """In Ollama's error object, before the first line."""
    async with scripted_server(chat_template=TEMPLATE) as client:
        reply = await client.post(CHAT, asks(**fields))

    assert reply.status == 400, reply.content
    assert list(reply.json) == ["error"]
    assert place in reply.json["error"]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"template": "x"}, "template"),
        ({"images": ["AA=="]}, "images"),
        ({"context": [1]}, "context"),
        ({"raw": True, "system": "x"}, "system"),
        ({"raw": True, "think": True}, "think"),
        ({"prompt": "word " * 300}, "prompt"),
        ({"messages": []}, "messages"),
    ],
)
async def test_what_a_prompt_does_not_serve_is_refused_by_name(
    fields: dict[str, Any], place: str
) -> None:
    async with scripted_server(chat_template=TEMPLATE) as client:
        reply = await client.post(GENERATE, prompts() | fields)

    assert reply.status == 400, reply.content
    assert place in reply.json["error"]


@pytest.mark.parametrize("path", [CHAT, GENERATE])
async def test_a_context_that_does_not_hold_the_prompt_is_refused(path: str) -> None:
    """With both numbers, for nothing of a prompt is lost in silence; one that fits is answered."""
    text = "One Two Three"
    asked = {"prompt": text}
    if path == CHAT:
        asked = {"messages": [{"role": "user", "content": text}]}  # type: ignore[dict-item]

    async with scripted_server(chat_template=TEMPLATE) as client:

        async def ask(**options: int) -> Reply:
            body = {"model": "tiny", **asked, "options": {"num_predict": 1, **options}}
            return await client.post(path, body | {"stream": False})

        num_tokens = (await ask()).json["prompt_eval_count"]
        enough = await ask(num_ctx=num_tokens)
        small = await ask(num_ctx=num_tokens - 1)

    assert (enough.status, small.status) == (200, 400)
    assert "options.num_ctx" in small.json["error"]
    assert f"is {num_tokens - 1}, but the prompt has {num_tokens} tokens" in small.json["error"]


async def test_keys_bodies_and_ends_are_as_everywhere() -> None:
    config = ServerConfig(api_key=("secret",), max_body_bytes=1024)
    key = {"authorization": "Bearer secret"}
    async with scripted_server(None, config, chat_template=TEMPLATE) as client:
        keyless = await client.post(CHAT, asks())
        large = await client.post(CHAT, asks(model="x" * 2000), headers=key)
        absent = await client.post(CHAT, asks(model="other"), headers=key)
        client.state.is_draining = True
        draining = await client.post(CHAT, asks(), headers=key)

    statuses = [reply.status for reply in (keyless, large, absent, draining)]
    assert statuses == [401, 413, 404, 503]
    assert all(isinstance(reply.json["error"], str) for reply in (keyless, large, absent))


async def test_json_may_call_itself_a_form_unless_a_browser_sends_it() -> None:
    """As curl does by itself; a page of a stranger must not reach a server of this machine."""
    form = {"content-type": "application/x-www-form-urlencoded"}
    page = form | {"origin": "http://example.com"}
    async with scripted_server(says({"One": " two"}), chat_template=TEMPLATE) as client:
        curl = await client.post(CHAT, asks(), headers=form)
        browser = await client.post(CHAT, asks(), headers=page)
        elsewhere = await client.post("/v1/chat/completions", asks(), headers=form)

    assert [reply.status for reply in (curl, browser, elsewhere)] == [200, 415, 415]


async def test_a_client_that_leaves_ends_its_answer() -> None:
    """Nothing goes on running for it; the server's end finds no open answer."""
    script = says({"One": " two"}, ends=False)
    async with scripted_server(script, chat_template=TEMPLATE, **ROOM_FOR_ENDLESS) as client:
        body = asks(options={"num_predict": ENDLESS})
        reply = await client.post(CHAT, body, on_piece=lambda reply: len(reply.pieces) >= 3)
        stats = await client.state.engine.stats()

    assert not json.loads(reply.content.splitlines()[-1])["done"]
    assert stats.num_running == 0


async def test_the_end_of_the_engine_is_the_last_line() -> None:
    script = says({"One": " two"}, ends=False)
    async with scripted_server(script, chat_template=TEMPLATE, **ROOM_FOR_ENDLESS) as client:
        has_begun = asyncio.Event()

        def note(_: Reply) -> bool:
            has_begun.set()
            return False

        body = asks(options={"num_predict": ENDLESS})
        reading = asyncio.ensure_future(client.post(CHAT, body, on_piece=note))
        await has_begun.wait()
        await client.state.engine.shutdown()
        last = lines_of(await reading)[-1]

    assert (last["done"], last["done_reason"]) == (True, "abort")
