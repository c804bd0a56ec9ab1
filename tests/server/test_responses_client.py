"""OpenAI's official client and /v1/responses, over a real socket."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pydantic
import pytest

from octavo.config.server import ServerConfig
from tests.server.test_reasoning import ANSWER
from tests.server.test_tools import CALL, CITY, TEMPLATE
from tests.support.asgi import scripted_server
from tests.support.asgi_socket import listening
from tests.support.scripted_engine import ROOM_FOR_ENDLESS, says

SPEAKS = TEMPLATE + "{# <tool_call> </think> #}"
SCRIPT = says(
    {
        "One": " two three",
        "One two threefour": " five",
        "Weather?": CALL,
        "Think!": ANSWER,
        "City?": '{"city": "Oslo"}',
    }
)
KEY = "secret"
WEATHER: Any = {"type": "function", "name": "weather", "parameters": CITY, "strict": False}


class City(pydantic.BaseModel):
    city: str


@asynccontextmanager
async def clients(key: str = KEY, script: Any = SCRIPT) -> AsyncIterator[openai.AsyncOpenAI]:
    """The client, without retries that would hide an error."""
    config = ServerConfig(api_key=(KEY,))
    async with (
        scripted_server(script, config, chat_template=SPEAKS, **ROOM_FOR_ENDLESS) as client,
        listening(client.app) as address,
        openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0) as official,
    ):
        yield official


def asks(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "input": text, "temperature": 0, **fields}


async def test_a_response_is_made_and_gone_on_from() -> None:
    async with clients() as client:
        first = await client.responses.create(**asks("One"))
        second = await client.responses.create(**asks("four", previous_response_id=first.id))
        again = await client.responses.retrieve(first.id)
        listed = await client.responses.input_items.list(second.id, order="asc", limit=2)
        items = [item async for item in listed]
        await client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError, match=r"Response with id .* not found."):
            await client.responses.retrieve(first.id)

    assert (first.output_text, second.output_text) == (" two three", " five")
    assert again == first
    assert first.usage is not None
    assert first.usage.output_tokens_details.reasoning_tokens == 0
    assert [item.type for item in items] == ["message"] * 3


async def test_the_client_builds_the_same_response_from_the_events() -> None:
    async with clients() as client:
        for text, fields in (
            ("One", {}),
            ("Weather?", {"tools": [WEATHER]}),
            ("Think!", {"reasoning": {"summary": "auto"}}),
        ):
            whole = await client.responses.create(**asks(text, **fields))
            async with client.responses.stream(**asks(text, **fields)) as stream:
                pieces = [event async for event in stream]
                streamed = await stream.get_final_response()
            text_pieces = [one.delta for one in pieces if one.type == "response.output_text.delta"]
            assert "".join(text_pieces) == whole.output_text == streamed.output_text
            for one, other in zip(whole.output, streamed.output, strict=True):
                hidden = {"id", "call_id", "parsed_arguments"}
                assert one.to_dict().keys() - hidden == other.to_dict().keys() - hidden
                assert one.type == other.type


async def test_a_call_goes_out_and_its_result_comes_back() -> None:
    """Both ways: with the whole history, and by way of the response."""
    async with clients() as client:
        response = await client.responses.create(**asks("Weather?", tools=[WEATHER]))
        [call] = response.output
        assert call.type == "function_call"
        assert json.loads(call.arguments) == {"city": "Oslo"}
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "12"}
        history: Any = [{"role": "user", "content": "Weather?"}, *response.output, result]
        for given, previous in ((history, None), ([result], response.id)):
            answer = await client.responses.create(
                model="tiny",
                input=given,
                previous_response_id=previous,
                tools=[WEATHER],
                max_output_tokens=3,
            )
            assert answer.status == "incomplete"


async def test_structured_output_is_parsed() -> None:
    async with clients() as client:
        response = await client.responses.parse(**asks("City?", text_format=City))

    assert response.output_parsed == City(city="Oslo")


async def test_a_background_response_is_followed_and_retrieved() -> None:
    async with clients() as client:
        response = await client.responses.create(**asks("One", background=True))
        assert response.status == "queued"
        events = [
            event async for event in await client.responses.retrieve(response.id, stream=True)
        ]
        rest = [
            event
            async for event in await client.responses.retrieve(
                response.id, stream=True, starting_after=3
            )
        ]
        kept = await client.responses.retrieve(response.id)

    assert rest == events[4:]
    assert (kept.status, kept.output_text) == ("completed", " two three")


async def test_a_background_response_is_cancelled() -> None:
    async with clients(script=says({"One": " two"}, ends=False)) as client:
        response = await client.responses.create(**asks("One", background=True))
        for _ in range(2):
            cancelled = await client.responses.cancel(response.id)
            assert cancelled.status == "cancelled"
        kept = await client.responses.retrieve(response.id)

    assert kept.status == "cancelled"


async def test_the_client_raises_its_own_errors() -> None:
    async with clients() as client:
        with pytest.raises(openai.BadRequestError, match="web_search"):
            await client.responses.create(**asks("One", tools=[{"type": "web_search"}]))
        with pytest.raises(openai.NotFoundError, match="other"):
            await client.responses.create(**asks("One") | {"model": "other"})
        with pytest.raises(openai.BadRequestError, match="`store` is true"):
            await client.responses.create(**asks("One", background=True, store=False))
        response = await client.responses.create(**asks("One"))
        with pytest.raises(openai.BadRequestError, match="synchronous"):
            await client.responses.cancel(response.id)
    async with clients(key="wrong") as client:
        with pytest.raises(openai.AuthenticationError):
            await client.responses.create(**asks("One"))
