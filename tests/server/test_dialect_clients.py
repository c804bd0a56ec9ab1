"""The official clients of Anthropic and Ollama over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import ollama
import pytest

from octavo.config.server import ServerConfig
from tests.server.test_reasoning import ANSWER
from tests.server.test_tools import CALL, CITY, TEMPLATE, TOOLS
from tests.support.asgi import scripted_server
from tests.support.asgi_socket import listening
from tests.support.scripted_engine import says

SPEAKS = TEMPLATE + "{# <tool_call> </think> #}"
SCRIPT = says({"One": " two three", "Weather?": CALL, "Think!": ANSWER})
KEY = "secret"
WEATHER: Any = {"name": "weather", "input_schema": CITY}


@asynccontextmanager
async def url() -> AsyncIterator[str]:
    config = ServerConfig(api_key=(KEY,))
    async with (
        scripted_server(SCRIPT, config, chat_template=SPEAKS) as client,
        listening(client.app) as address,
    ):
        yield address


@asynccontextmanager
async def anthropics(key: str = KEY) -> AsyncIterator[anthropic.AsyncAnthropic]:
    """The client, without retries that would hide an error."""
    async with (
        url() as address,
        anthropic.AsyncAnthropic(base_url=address, api_key=key, max_retries=0) as client,
    ):
        yield client


@asynccontextmanager
async def ollamas() -> AsyncIterator[ollama.AsyncClient]:
    async with url() as address:
        client = ollama.AsyncClient(address, headers={"Authorization": f"Bearer {KEY}"})
        try:
            yield client
        finally:
            await client._client.aclose()


def asks(text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {"model": "tiny", "messages": messages, "max_tokens": 200, **fields}


async def test_anthropics_client_gets_a_message() -> None:
    async with anthropics() as client:
        message = await client.messages.create(**asks("One"))
        count = await client.messages.count_tokens(
            model="tiny", messages=[{"role": "user", "content": "One"}]
        )

    assert [block.to_dict() for block in message.content] == [
        {"type": "text", "text": " two three"}
    ]
    assert message.stop_reason == "end_turn"
    assert (message._request_id or "").startswith("req_")
    assert count.input_tokens == message.usage.input_tokens > 0


async def test_anthropics_client_builds_the_same_message_from_the_events() -> None:
    async with anthropics() as client, client.messages.stream(**asks("One")) as stream:
        text = "".join([piece async for piece in stream.text_stream])
        message = await stream.get_final_message()

    assert text == " two three"
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 1


async def test_anthropics_client_reads_calls_and_thoughts() -> None:
    async with anthropics() as client:
        for body in (asks("Weather?", tools=[WEATHER]), asks("Think!")):
            whole = await client.messages.create(**body)
            async with client.messages.stream(**body) as stream:
                streamed = await stream.get_final_message()
            kinds = [block.type for block in whole.content]
            assert [block.type for block in streamed.content] == kinds
            assert kinds == (["tool_use"] if "tools" in body else ["thinking", "text"])
            for one, other in zip(whole.content, streamed.content, strict=True):
                hidden = {"id"}  # of a call: each answer has its own
                assert one.to_dict().keys() == other.to_dict().keys()
                for name, value in one.to_dict().items():
                    assert name in hidden or other.to_dict()[name] == value


async def test_anthropics_client_gives_a_result_back() -> None:
    """The history that it builds from an answer is taken."""
    async with anthropics() as client:
        message = await client.messages.create(**asks("Weather?", tools=[WEATHER]))
        [call] = message.content
        assert call.type == "tool_use"
        result: Any = {"type": "tool_result", "tool_use_id": call.id, "content": "12 degrees"}
        messages: Any = [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": [result]},
        ]
        answer = await client.messages.create(
            model="tiny", messages=messages, tools=[WEATHER], max_tokens=3
        )

    assert answer.usage.output_tokens == 3


async def test_anthropics_client_raises_its_own_errors() -> None:
    async with anthropics() as client:
        with pytest.raises(anthropic.BadRequestError, match="temperature"):
            await client.messages.create(**asks("One", extra_body={"temperature": 7}))
        with pytest.raises(anthropic.NotFoundError, match="other"):
            await client.messages.create(**asks("One") | {"model": "other"})
    async with anthropics(key="wrong") as client:
        with pytest.raises(anthropic.AuthenticationError):
            await client.messages.create(**asks("One"))


async def test_ollamas_client_chats_and_generates() -> None:
    messages = [{"role": "user", "content": "One"}]
    async with ollamas() as client:
        chat = await client.chat("tiny", messages)
        pieces = [
            piece.message.content or ""
            async for piece in await client.chat("tiny", messages, stream=True)
        ]
        generated = await client.generate("tiny", "One", options={"temperature": 0})

    assert chat.message.content == "".join(pieces) == generated.response == " two three"
    assert chat.done_reason == "stop"
    assert (chat.eval_count or 0) > 1


async def test_ollamas_client_reads_calls_and_thoughts() -> None:
    async with ollamas() as client:
        asked: Any = [{"role": "user", "content": "Weather?"}]
        called = await client.chat("tiny", asked, tools=TOOLS)
        assert called.message.tool_calls is not None
        [call] = called.message.tool_calls
        history = [
            *asked,
            called.message,
            {"role": "tool", "tool_name": "weather", "content": "12"},
        ]
        answer = await client.chat("tiny", history, options={"num_predict": 3})
        thought = await client.generate("tiny", "Think!", think=True)

    assert (call.function.name, call.function.arguments) == ("weather", {"city": "Oslo"})
    assert answer.eval_count == 3
    assert (thought.thinking, thought.response) == ("Hm, hm.", "Yes.")


async def test_ollamas_client_sees_the_models_and_its_errors() -> None:
    async with ollamas() as client:
        listed = await client.list()
        running = await client.ps()
        shown = await client.show("tiny")
        with pytest.raises(ollama.ResponseError, match="octavo pull"):
            await client.pull("tiny")
        with pytest.raises(ollama.ResponseError, match="other"):
            await client.generate("other", "One")

    assert listed.models[0].model == running.models[0].model == "tiny:latest"
    assert shown.capabilities == ["completion", "tools", "thinking"]
