"""/v1/responses: OpenAI's Responses API around the same chat."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
from openai.types.responses import Response as ClientResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from octavo.server.dialects.responses import chat_of
from octavo.server.dialects.responses_ids import ItemIds, new_response_id
from octavo.server.dialects.responses_items import checked_items
from octavo.server.schemas.responses import SHARED, ResponseRequest
from tests.server.test_messages import SHOWS_ALL
from tests.server.test_reasoning import ANSWER, EFFORT, OPENS, THINKS
from tests.server.test_tools import CALL, CITY, HERMES, NOW, TEMPLATE, tool
from tests.support.asgi import Client, Reply, scripted_server
from tests.support.scripted_engine import ENDLESS, ROOM_FOR_ENDLESS, says
from tests.support.thinking_tokenizer import thinking_tokenizer

PATH = "/v1/responses"
TOOLS = [
    {"type": "function", "name": "weather", "parameters": CITY, "description": "of a city"},
    {"type": "function", "name": "now", "parameters": {"type": "object"}},
]
LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def asks(**fields: Any) -> dict[str, Any]:
    """A greedy response."""
    return {"model": "tiny", "input": "One", "temperature": 0, **fields}


def events_of(reply: Reply) -> list[dict[str, Any]]:
    """The events of a stream: named as their types are, numbered, and as OpenAI's client has
    them."""
    assert reply.status == 200, reply.content
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in reply.content.decode().split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENT.validate_python(event, strict=True)
        events.append(event)
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return events


class Joined:
    """The output that the events of a stream build; their order is checked on the way."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.items: list[dict[str, Any]] = []
        for event in events:
            handler = getattr(self, "on_" + event["type"].split(".", 1)[1].replace(".", "_"))
            if "item_id" in event:
                assert event["item_id"] == self.items[event["output_index"]]["id"]
            handler(event)

    def on_output_item_added(self, event: dict[str, Any]) -> None:
        assert event["output_index"] == len(self.items)
        assert event["item"]["status"] == "in_progress"
        assert all(item["status"] != "in_progress" for item in self.items)
        self.items.append(event["item"])

    def on_output_item_done(self, event: dict[str, Any]) -> None:
        built = self.items[event["output_index"]]
        built["status"] = event["item"]["status"]
        built |= (
            {"encrypted_content": event["item"]["encrypted_content"]}
            if ("encrypted_content" in built)
            else {}
        )
        assert built == event["item"]

    def on_content_part_added(self, event: dict[str, Any]) -> None:
        self.items[-1]["content"].append(event["part"])

    def on_content_part_done(self, event: dict[str, Any]) -> None:
        assert self.items[-1]["content"][event["content_index"]] == event["part"]

    def on_output_text_delta(self, event: dict[str, Any]) -> None:
        part = self.items[-1]["content"][event["content_index"]]
        part["text"] += event["delta"]
        part["logprobs"] += event["logprobs"]

    def on_reasoning_text_delta(self, event: dict[str, Any]) -> None:
        self.items[-1]["content"][0]["text"] += event["delta"]

    def on_reasoning_summary_text_delta(self, event: dict[str, Any]) -> None:
        self.items[-1]["summary"][0]["text"] += event["delta"]

    def on_output_text_done(self, event: dict[str, Any]) -> None:
        part = self.items[-1]["content"][event["content_index"]]
        assert (part["text"], part["logprobs"]) == (event["text"], event["logprobs"])

    def on_reasoning_text_done(self, event: dict[str, Any]) -> None:
        assert self.items[-1]["content"][0]["text"] == event["text"]

    def on_reasoning_summary_part_added(self, event: dict[str, Any]) -> None:
        self.items[-1]["summary"].append(event["part"])

    def on_reasoning_summary_text_done(self, event: dict[str, Any]) -> None:
        assert self.items[-1]["summary"][0]["text"] == event["text"]

    def on_reasoning_summary_part_done(self, event: dict[str, Any]) -> None:
        assert self.items[-1]["summary"][0] == event["part"]

    def on_function_call_arguments_delta(self, event: dict[str, Any]) -> None:
        self.items[-1]["arguments"] += event["delta"]

    def on_function_call_arguments_done(self, event: dict[str, Any]) -> None:
        assert self.items[-1]["arguments"] == event["arguments"]


def joined(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The response at the end of a stream, which the events before it have built."""
    created, in_progress, *middle, last = events
    assert (created["type"], in_progress["type"]) == ("response.created", "response.in_progress")
    assert created["response"]["output"] == in_progress["response"]["output"] == []
    assert created["response"]["status"] == "in_progress"
    response: dict[str, Any] = last["response"]
    assert last["type"] == f"response.{response['status']}"
    assert Joined(middle).items == response["output"]
    return response


async def both(client: Client, **fields: Any) -> list[dict[str, Any]]:
    """The response, whole and streamed, as OpenAI's client has it."""
    whole = await client.post(PATH, asks(**fields))
    assert whole.status == 200, whole.content
    streamed = joined(events_of(await client.post(PATH, asks(stream=True, **fields))))
    for response in (whole.json, streamed):
        ClientResponse.model_validate(response, strict=True)
    assert whole.json.keys() == streamed.keys()
    assert whole.json["usage"]["output_tokens"] == streamed["usage"]["output_tokens"]
    return [whole.json, streamed]


def text_of(response: dict[str, Any]) -> str:
    [part] = response["output"][-1]["content"]
    assert part["type"] == "output_text"
    return str(part["text"])


async def test_an_answer_is_a_message_alike_in_both_modes() -> None:
    async with scripted_server(says({"One": " two three"}), chat_template=TEMPLATE) as client:
        for response in await both(client, metadata={"a": "b"}):
            assert text_of(response) == " two three"
            assert response["status"] == response["output"][0]["status"] == "completed"
            assert response["metadata"] == {"a": "b"}
            assert response["usage"]["total_tokens"] == 5
            assert response["completed_at"] >= response["created_at"]


async def test_an_answer_that_is_cut_off_is_incomplete() -> None:
    async with scripted_server(says({"One": " two three"}), chat_template=TEMPLATE) as client:
        for response in await both(client, max_output_tokens=1):
            assert response["status"] == response["output"][0]["status"] == "incomplete"
            assert response["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_an_empty_answer_is_an_empty_message() -> None:
    async with scripted_server(says({"One": ""}), chat_template=TEMPLATE) as client:
        for response in await both(client):
            assert text_of(response) == ""


async def test_calls_are_items_after_the_text() -> None:
    script = says({"One": "Let me see. " + CALL + NOW})
    async with scripted_server(script, chat_template=HERMES) as client:
        for response in await both(client, tools=TOOLS):
            text, weather, now = response["output"]
            assert text["content"][0]["text"].strip() == "Let me see."
            assert (weather["type"], weather["name"]) == ("function_call", "weather")
            assert json.loads(weather["arguments"]) == {"city": "Oslo"}
            assert now["name"] == "now"
            assert weather["call_id"] != now["call_id"]
            assert response["status"] == "completed"
        for response in await both(client, tools=TOOLS, parallel_tool_calls=False):
            kinds = [item["type"] for item in response["output"]]
            assert kinds == ["message", "function_call"]


async def test_a_demanded_call_is_made() -> None:
    """Held to the schema, whatever the model would like to write."""
    named = says({"One": '{"city": "Oslo"}'})
    listed = says({"One": '[{"name": "weather", "parameters": {"city": "Oslo"}}]'})
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [tool_named("weather")]}
    for choice, plays in (
        (tool_named("weather"), named),
        ("required", listed),
        (allowed, listed),
    ):
        async with scripted_server(plays, chat_template=HERMES) as client:
            for response in await both(client, tools=TOOLS, tool_choice=choice):
                [call] = response["output"]
                assert (call["name"], json.loads(call["arguments"])) == (
                    "weather",
                    {"city": "Oslo"},
                )
                assert response["tool_choice"] == choice


def tool_named(name: str) -> dict[str, str]:
    return {"type": "function", "name": name}


async def test_tools_that_are_not_allowed_are_not_offered() -> None:
    body = request(
        tools=TOOLS,
        tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [tool_named("now")]},
    )
    chat = chat_of(body, [])

    assert [one["function"]["name"] for one in chat.tools or []] == ["now"]
    assert chat.tool_choice == "auto"


async def test_thoughts_are_an_item_before_the_text_and_their_own_summary_if_asked() -> None:
    async with scripted_server(says({"One": ANSWER}), chat_template=THINKS) as client:
        for response in await both(client):
            thoughts, _ = response["output"]
            assert thoughts["content"] == [{"type": "reasoning_text", "text": "Hm, hm."}]
            assert thoughts["summary"] == []
            assert text_of(response) == "Yes."
            assert response["usage"]["output_tokens_details"]["reasoning_tokens"] > 0
        for response in await both(client, reasoning={"summary": "auto"}):
            summary = [{"type": "summary_text", "text": "Hm, hm."}]
            assert response["output"][0]["summary"] == summary


async def test_tokens_of_thoughts_are_counted_exactly_where_tags_are_tokens() -> None:
    """In chats too; tags and the answer do not count."""
    tokenizer = thinking_tokenizer()
    script = says({"One": tokenizer.encode("<think>a b c d</think>yes")})
    num_thoughts = len(tokenizer.encode("a b c d"))
    async with scripted_server(script, chat_template=THINKS, tokenizer=tokenizer) as client:
        for response in await both(client):
            usage = response["usage"]
            assert usage["output_tokens_details"] == {"reasoning_tokens": num_thoughts}
        for response in await both(client, max_output_tokens=3):  # cut off while it thinks
            assert response["output"][0]["status"] == "incomplete"
            assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": 2}
        chat = {"messages": [{"role": "user", "content": "One"}], "temperature": 0}
        whole = await client.post("/v1/chat/completions", chat)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        streamed = await client.post("/v1/chat/completions", chat | options)

    for usage in (whole.json["usage"], streamed.chunks[-1]["usage"]):
        assert usage["completion_tokens_details"] == {"reasoning_tokens": num_thoughts}


async def test_sealed_thoughts_come_back_as_what_they_were() -> None:
    """For clients that give nothing else of a reasoning item back."""
    async with scripted_server(
        says({"One": ANSWER, "One[Hm, hm.]Yes.Two": " three"}),
        chat_template="{% for m in messages %}{% if m.reasoning %}[{{ m.reasoning }}]{% endif %}"
        "{{ m.content }}{% endfor %}{# </think> #}",
    ) as client:
        for response in await both(client, include=["reasoning.encrypted_content"], store=False):
            thoughts, message = response["output"]
            thoughts = {name: thoughts[name] for name in ("type", "id", "encrypted_content")}
            history = [{"role": "user", "content": "One"}, thoughts | {"summary": []}, message]
            history.append({"role": "user", "content": "Two"})
            for answer in await both(client, input=history):
                assert text_of(answer) == " three"
        foreign = history[1] | {"encrypted_content": "gAAAA"}
        refused = await client.post(PATH, asks(input=[foreign]))

    assert refused.error["param"] == "input[0].encrypted_content"


async def test_an_effort_reaches_the_template() -> None:
    async with scripted_server(says({"Onelow": " two"}), chat_template=EFFORT) as client:
        for response in await both(client, reasoning={"effort": "low"}):
            assert text_of(response) == " two"
            assert response["reasoning"]["effort"] == "low"
    script = says({"One<think></think>": "No thoughts."})
    async with scripted_server(script, chat_template=OPENS) as client:
        for response in await both(client, reasoning={"effort": "none"}):
            assert text_of(response) == "No thoughts."


async def test_a_form_holds_the_answer() -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    form = {"type": "json_schema", "name": "a", "schema": schema, "strict": True}
    async with scripted_server(says({"One": '{"a": 1}'}), chat_template=TEMPLATE) as client:
        for one in (form, {"type": "json_object"}):
            for response in await both(client, text={"format": one}):
                assert json.loads(text_of(response)) == {"a": 1}
                assert response["text"] == {"format": one}


async def test_logprobs_are_those_of_the_text() -> None:
    """Neither of thoughts, nor of calls, nor of the end."""
    tokenizer = thinking_tokenizer()
    script = says({"One": tokenizer.encode("<think>a b c d</think>yes no")})
    async with scripted_server(script, chat_template=THINKS, tokenizer=tokenizer) as client:
        for response in await both(client, **LOGPROBS):
            [part] = response["output"][-1]["content"]
            tokens = [entry["token"] for entry in part["logprobs"]]
            assert "".join(tokens).strip() == "yes no" == part["text"]
            assert all(len(entry["top_logprobs"]) == 2 for entry in part["logprobs"])


HISTORY = [
    {"role": "system", "content": "Be kind."},
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "Is it"},
            {"type": "text", "text": "hot?"},
        ],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [
        {"type": "reasoning_text", "text": "Hm."}]},
    {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [
        {"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]},
    {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": 1}'},
    {"type": "function_call", "call_id": "call_2", "name": "now", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "call_1", "output": "12 degrees"},
    {"type": "function_call_output", "call_id": "call_2", "output": [
        {"type": "input_text", "text": "noon"}]},
    {"role": "developer", "content": "Again."},
]  # fmt: skip
AS_CHAT = [
    {"role": "system", "content": "Be short."},
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Is it\nhot?"},
    {
        "role": "assistant",
        "reasoning": "Hm.",
        "content": "I look.",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": 1}'},
            },
            {
                "id": "call_2",
                "type": "function",
                "function": {"name": "now", "arguments": "{}"},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "name": "weather", "content": "12 degrees"},
    {"role": "tool", "tool_call_id": "call_2", "name": "now", "content": "noon"},
    {"role": "developer", "content": "Again."},
]


async def test_a_conversation_is_the_same_prompt_as_in_a_chat() -> None:
    """The scripted model answers each prompt otherwise, so equal answers are equal prompts."""
    chat_tools = [tool("weather", CITY, description="of a city"), tool("now", {"type": "object"})]
    for one in chat_tools:
        one["function"] |= {"description": one.pop("description")} if "description" in one else {}
    chat = {"messages": AS_CHAT, "tools": chat_tools, "temperature": 0, "max_tokens": 8}
    async with scripted_server(
        chat_template=SHOWS_ALL, max_model_len=1024, num_blocks=1024
    ) as client:
        ours = await client.post(
            PATH,
            asks(instructions="Be short.", input=HISTORY, tools=TOOLS, max_output_tokens=8),
        )
        theirs = await client.post("/v1/chat/completions", chat)

    assert theirs.status == 200, theirs.content
    assert ours.json["usage"]["input_tokens"] == theirs.json["usage"]["prompt_tokens"]
    assert text_of(ours.json) == theirs.json["choices"][0]["message"]["content"] != ""


async def test_a_message_that_is_incomplete_goes_on() -> None:
    history = [
        {"role": "user", "content": "One"},
        {
            "type": "message",
            "role": "assistant",
            "status": "incomplete",
            "content": [{"type": "output_text", "text": " two"}],
        },
    ]
    async with scripted_server(says({"One two": " three"}), chat_template=TEMPLATE) as client:
        for response in await both(client, input=history):
            assert text_of(response) == " three"


async def test_a_long_conversation_loses_its_oldest_turns_only_when_asked() -> None:
    """The instructions stay, and so does the last turn."""
    turns: list[dict[str, Any]] = []
    for place in range(30):
        turns.append({"role": "user", "content": f"One two three four {place} "})
        turns.append({"role": "assistant", "content": "five six seven "})
    turns.append({"role": "user", "content": "last"})
    async with scripted_server(chat_template=TEMPLATE, max_model_len=128) as client:
        long = {"input": turns, "instructions": "Be short.", "max_output_tokens": 8}
        refused = await client.post(PATH, asks(**long))
        cut = await client.post(PATH, asks(truncation="auto", **long))
        free = await client.post(PATH, asks(truncation="auto", input=turns))
        short = await client.post(PATH, asks(truncation="auto", input=turns[-1:]))
        hopeless = await client.post(PATH, asks(truncation="auto", input="One " * 500))

    assert (refused.status, refused.error["param"]) == (400, "input")
    assert 100 < cut.json["usage"]["input_tokens"] <= 120
    assert free.json["usage"]["input_tokens"] <= 96  # a quarter is left for the answer
    assert short.json["usage"]["input_tokens"] < 5
    assert (hopeless.status, hopeless.error["param"]) == (400, "input")


def request(**fields: Any) -> ResponseRequest:
    return msgspec.convert(asks(**fields), ResponseRequest)


async def test_every_shared_field_reaches_the_chat() -> None:
    given: dict[str, Any] = {
        **{"temperature": 0.5, "top_p": 0.9, "top_k": 50, "min_p": 0.1, "seed": 7, "stop": ["x"]},
        **{"logit_bias": {"1": 1.0}, "ignore_eos": True, "presence_penalty": 0.1},
        **{"frequency_penalty": 0.2, "repetition_penalty": 1.1, "skip_special_tokens": False},
        **{"include_stop_str_in_output": True, "priority": 3, "timeout": 9.5, "cache_salt": "s"},
        **{"structured_outputs": {"regex": "a"}, "chat_template_kwargs": {"a": 1}},
        **{"thinking_token_budget": 9, "parallel_tool_calls": False, "vllm_xargs": {"a": 1}},
    }
    assert given.keys() == set(SHARED)
    items = checked_items("One", ItemIds(new_response_id()))
    chat = chat_of(request(max_output_tokens=5, **given), items)

    assert {name: getattr(chat, name) for name in given} == given
    assert chat.max_tokens == 5
    assert chat.messages == [{"role": "user", "content": [{"type": "text", "text": "One"}]}]


async def test_a_failure_after_the_first_event_is_the_last_event() -> None:
    """Such as the end of the engine; the response says so itself."""
    script = says({"One": " two"}, ends=False)
    async with scripted_server(script, chat_template=TEMPLATE, **ROOM_FOR_ENDLESS) as client:
        has_begun = asyncio.Event()

        def note(reply: Reply) -> bool:
            has_begun.set()
            return False

        body = asks(stream=True, max_output_tokens=ENDLESS)
        reading = asyncio.ensure_future(client.post(PATH, body, on_piece=note))
        await has_begun.wait()
        await client.state.engine.shutdown()
        response = joined(events_of(await reading))

    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert all(item["status"] == "incomplete" for item in response["output"])
