"""/v1/responses/{id}: what is kept of responses, and those that are made in the background."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.server.response_store import CUT_OFF, ResponseStore, StoredResponse
from tests.server.test_responses import PATH, asks, events_of, text_of
from tests.server.test_tools import CALL, HERMES, TEMPLATE
from tests.support.asgi import Client, Reply, scripted_server
from tests.support.scripted_engine import ENDLESS, ROOM_FOR_ENDLESS, says

TALK = says({"One": " two", "One twothree": " four", "One twofive": " six"})
LOOPS = says({"One": " two"}, ends=False)
HUGE = "resp_" + "a" * 5000
ABSENT = "resp_" + "0" * 32


async def made(client: Client, **fields: Any) -> dict[str, Any]:
    """A response."""
    reply = await client.post(PATH, asks(**fields))
    assert reply.status == 200, reply.content
    response: dict[str, Any] = reply.json
    return response


async def ended(client: Client, response_id: str, **options: Any) -> dict[str, Any]:
    """A background response, once its events have come to their end."""
    events = events_of(await client.get(f"{PATH}/{response_id}?stream=true", **options))
    response: dict[str, Any] = events[-1]["response"]
    return response


async def test_a_response_can_be_asked_for_until_it_is_deleted() -> None:
    async with scripted_server(TALK, chat_template=TEMPLATE) as client:
        response = await made(client)
        path = f"{PATH}/{response['id']}"
        again = await client.get(path)
        gone = await client.send("DELETE", path)
        absent = [
            await client.get(path),
            await client.send("DELETE", path),
            await client.post(path + "/cancel"),
            await client.get(path + "/input_items"),
            await client.post(PATH, asks(previous_response_id=response["id"])),
        ]

    assert again.json == response
    assert gone.json == {"id": response["id"], "object": "response", "deleted": True}
    for reply in absent:
        assert reply.status == 404
        assert "not found" in reply.error["message"]
    assert absent[-1].error["param"] == "previous_response_id"


async def test_a_stream_is_kept_before_it_ends() -> None:
    async with scripted_server(TALK, chat_template=TEMPLATE) as client:
        events = events_of(await client.post(PATH, asks(stream=True)))
        kept = await client.get(f"{PATH}/{events[-1]['response']['id']}")

    assert kept.json == events[-1]["response"]


async def test_what_shall_not_be_stored_is_not() -> None:
    async with scripted_server(TALK, chat_template=TEMPLATE) as client:
        response = await made(client, store=False)
        reply = await client.get(f"{PATH}/{response['id']}")

    assert reply.status == 404


@pytest.mark.parametrize("asked", ["x", HUGE, ABSENT, "resp_", "resp_%ff%00", "resp_\ud83d"])
async def test_ids_that_lead_nowhere_get_a_short_answer(asked: str) -> None:
    async with scripted_server(TALK, chat_template=TEMPLATE) as client:
        replies = [
            await client.get(f"{PATH}/{asked.encode('utf-8', 'replace').decode()}"),
            await client.post(PATH, asks(previous_response_id=asked)),
        ]

    for reply in replies:
        assert reply.status in (400, 404)
        assert len(reply.content) < 400


async def test_a_response_goes_on_from_another_one() -> None:
    """Two may go on from the same."""
    async with scripted_server(TALK, chat_template=TEMPLATE) as client:
        first = await made(client)
        for text, answer in (("three", " four"), ("five", " six")):
            second = await made(client, input=text, previous_response_id=first["id"])
            assert text_of(second) == answer
            assert second["previous_response_id"] == first["id"]


async def test_instructions_are_for_one_response_only() -> None:
    script = says({"BeOne": " two", "One twothree": " four"})
    async with scripted_server(script, chat_template=TEMPLATE) as client:
        first = await made(client, instructions="Be")
        second = await made(client, input="three", previous_response_id=first["id"])

    assert (text_of(first), text_of(second)) == (" two", " four")


async def test_a_response_outlives_the_one_that_it_goes_on_from() -> None:
    """Deleting a response takes it from view; a conversation that went on from it goes on."""
    script = says({"One": " two", "One twothree": " four", "One twothree fourfive": " six"})
    async with scripted_server(script, chat_template=TEMPLATE) as client:
        first = await made(client)
        second = await made(client, input="three", previous_response_id=first["id"])
        await client.send("DELETE", f"{PATH}/{first['id']}")
        refused = await client.post(PATH, asks(previous_response_id=first["id"]))
        third = await made(client, input="five", previous_response_id=second["id"])

    assert refused.status == 404
    assert text_of(third) == " six"


async def test_the_items_that_a_response_was_made_from_come_in_pages() -> None:
    async with scripted_server(TALK, chat_template=TEMPLATE) as client:
        first = await made(client)
        second = await made(client, input="three", previous_response_id=first["id"])
        path = f"{PATH}/{second['id']}/input_items"
        whole = await client.get(path)
        pages = [await client.get(path + "?order=asc&limit=2")]
        pages.append(await client.get(f"{path}?order=asc&limit=2&after={pages[0].json['last_id']}"))
        wrong = [
            await client.get(path + query)
            for query in ("?limit=0", "?limit=x", "?order=up", "?after=x", "?include[]=x")
        ]

    texts = [item["content"][0]["text"] for item in whole.json["data"]]
    assert texts == ["three", " two", "One"]
    assert not whole.json["has_more"]
    assert [page.json["has_more"] for page in pages] == [True, False]
    paged = [item for page in pages for item in page.json["data"]]
    assert paged == whole.json["data"][::-1]
    for reply, name in zip(wrong, ("limit", "limit", "order", "after", "include"), strict=True):
        assert reply.status == 400
        assert reply.error["param"].startswith(name)


async def test_an_item_may_stand_for_one_that_the_server_has() -> None:
    script = says({"One": " two", "One twothree": " four"})
    async with scripted_server(script, chat_template=TEMPLATE) as client:
        first = await made(client)
        [message] = first["output"]
        items = [
            {"role": "user", "content": "One"},
            {"type": "item_reference", "id": message["id"]},
            {"role": "user", "content": "three"},
        ]
        second = await made(client, input=items)
        wrong = message["id"][:-4] + "0009"
        refused = await client.post(PATH, asks(input=[{"id": wrong}]))

    assert text_of(second) == " four"
    assert (refused.status, refused.error["param"]) == (404, "input[0].id")


async def test_a_call_is_answered_by_way_of_the_response_that_made_it() -> None:
    async with scripted_server(says({"One": CALL}), chat_template=HERMES) as client:
        tools = [{"type": "function", "name": "weather", "parameters": {}}]
        first = await made(client, tools=tools)
        [call] = first["output"]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "12"}
        second = await made(
            client, input=[output], previous_response_id=first["id"], max_output_tokens=2
        )
        again = await client.post(PATH, asks(input=[output]))

    assert second["usage"]["output_tokens"] == 2
    assert again.status == 400


async def test_another_key_sees_none_of_it() -> None:
    config = ServerConfig(api_key=("ann", "ben"))
    async with scripted_server(TALK, config, chat_template=TEMPLATE) as client:
        headers = {key: {"authorization": f"Bearer {key}"} for key in config.api_key}
        for background in (False, True):
            body = asks(background=background)
            response = (await client.post(PATH, body, headers=headers["ann"])).json
            path, own = f"{PATH}/{response['id']}", headers["ben"]
            item = {"id": f"msg_{response['id'].removeprefix('resp_')}0000"}
            replies = [
                await client.get(path, headers=own),
                await client.get(path + "/input_items", headers=own),
                await client.post(path + "/cancel", headers=own),
                await client.send("DELETE", path, headers=own),
                await client.post(PATH, asks(previous_response_id=response["id"]), headers=own),
                await client.post(PATH, asks(input=[item]), headers=own),
            ]
            assert [reply.status for reply in replies] == [404] * len(replies)
            assert (await client.get(path, headers=headers["ann"])).status == 200
        await ended(client, response["id"], headers=headers["ann"])


async def test_a_background_response_is_queued_and_made_while_nobody_waits() -> None:
    async with scripted_server(TALK, chat_template=TEMPLATE) as client:
        response = await made(client, background=True)
        assert (response["status"], response["output"], response["usage"]) == ("queued", [], None)
        last = await ended(client, response["id"])
        kept = await client.get(f"{PATH}/{response['id']}")
        second = await made(client, input="three", previous_response_id=response["id"])
        cancelled = await client.post(f"{PATH}/{response['id']}/cancel")

    assert kept.json == last == cancelled.json
    assert (last["status"], text_of(last)) == ("completed", " two")
    assert text_of(second) == " four"


async def test_events_of_a_background_response_can_be_followed_from_any_number() -> None:
    async with scripted_server(TALK, chat_template=TEMPLATE) as client:
        streamed = events_of(await client.post(PATH, asks(background=True, stream=True)))
        path = f"{PATH}/{streamed[0]['response']['id']}?stream=true"
        for first in range(len(streamed) - 1):
            again = events_of(await client.get(f"{path}&starting_after={first}"))
            assert again == streamed[first + 1 :]
        beyond = await client.get(f"{path}&starting_after=999")
        plain = await made(client)
        refused = [
            await client.get(f"{PATH}/{plain['id']}?stream=true"),
            await client.get(f"{PATH}/{plain['id']}?starting_after=1"),
            await client.get(f"{path}&starting_after=-1"),
        ]

    kinds = [event["type"] for event in streamed]
    assert kinds[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert (beyond.status, beyond.content) == (200, b"")
    assert [reply.status for reply in refused] == [400, 400, 400]


async def test_a_background_response_goes_on_when_its_client_leaves() -> None:
    async with scripted_server(TALK, chat_template=TEMPLATE) as client:
        left = await client.post(
            PATH,
            asks(background=True, stream=True),
            on_piece=lambda reply: b"response.created" in reply.content,
        )
        created = json.loads(left.content.decode().split("\n")[1].removeprefix("data: "))
        last = await ended(client, created["response"]["id"])

    assert (last["status"], text_of(last)) == ("completed", " two")


async def test_a_background_response_can_be_cancelled_twice() -> None:
    """Its work ends, whoever follows it sees the end, and it stays cancelled."""
    async with scripted_server(LOOPS, chat_template=TEMPLATE, **ROOM_FOR_ENDLESS) as client:
        response = await made(client, background=True, max_output_tokens=ENDLESS)
        path = f"{PATH}/{response['id']}"
        has_text = asyncio.Event()

        def note(reply: Reply) -> bool:
            if b"response.output_text.delta" in reply.content:
                has_text.set()
            return False

        following = asyncio.ensure_future(client.get(path + "?stream=true", on_piece=note))
        await has_text.wait()
        early = [
            await client.post(PATH, asks(previous_response_id=response["id"])),
            await client.get(path),
        ]
        replies = [await client.post(path + "/cancel") for _ in range(2)]
        events = events_of(await following)
        stats = await client.state.engine.stats()
        kept = await client.get(path)

    assert early[0].status == 400
    assert early[1].json["status"] == "in_progress"
    for reply in (*replies, kept):
        assert reply.json["status"] == "cancelled"
    assert events[-1]["response"] == kept.json
    assert stats.num_running == 0


async def test_a_response_that_somebody_waits_for_cannot_be_cancelled() -> None:
    async with scripted_server(TALK, chat_template=TEMPLATE) as client:
        response = await made(client)
        reply = await client.post(f"{PATH}/{response['id']}/cancel")

    assert reply.status == 400
    assert "Cannot cancel a synchronous response" in reply.error["message"]


async def test_deleting_a_response_that_is_being_made_ends_it() -> None:
    async with scripted_server(LOOPS, chat_template=TEMPLATE, **ROOM_FOR_ENDLESS) as client:
        response = await made(client, background=True, max_output_tokens=ENDLESS)
        gone = await client.send("DELETE", f"{PATH}/{response['id']}")
        reply = await client.get(f"{PATH}/{response['id']}")

    assert (gone.status, reply.status) == (200, 404)


async def test_a_background_response_that_cannot_be_made_is_refused_at_once() -> None:
    async with scripted_server(TALK, chat_template=TEMPLATE) as client:
        reply = await client.post(PATH, asks(background=True, max_output_tokens=9999))

    assert (reply.status, reply.error["param"]) == (400, "max_output_tokens")


async def test_a_background_response_fails_with_the_engine() -> None:
    async with scripted_server(LOOPS, chat_template=TEMPLATE, **ROOM_FOR_ENDLESS) as client:
        response = await made(client, background=True, max_output_tokens=ENDLESS)
        await client.state.engine.shutdown()
        last = await ended(client, response["id"])

    assert (last["status"], last["error"]["code"]) == ("failed", "server_error")


async def test_responses_survive_a_restart(tmp_path: Path) -> None:
    """Their events too; and they can be gone on from."""
    config = ServerConfig(response_store=str(tmp_path / "responses.db"))
    async with scripted_server(TALK, config, chat_template=TEMPLATE) as client:
        first = await made(client)
        background = await made(client, background=True)
        events = events_of(await client.get(f"{PATH}/{background['id']}?stream=true"))
    async with scripted_server(TALK, config, chat_template=TEMPLATE) as client:
        again = await client.get(f"{PATH}/{first['id']}")
        replayed = events_of(await client.get(f"{PATH}/{background['id']}?stream=true"))
        second = await made(client, input="three", previous_response_id=first["id"])

    assert again.json == first
    assert replayed == events
    assert text_of(second) == " four"


async def test_what_the_end_of_the_server_cut_off_has_failed(tmp_path: Path) -> None:
    config = ServerConfig(response_store=str(tmp_path / "responses.db"))
    store = ResponseStore.of(config)  # of a server that ended without a word
    response = {"id": ABSENT, "status": "in_progress", "background": True, "output": []}
    await store.put("", StoredResponse(response, [], 0, is_running=True), None, [])
    await store.close()
    async with scripted_server(TALK, config, chat_template=TEMPLATE) as client:
        failed = await client.get(f"{PATH}/{ABSENT}")
        cancelled = await client.post(f"{PATH}/{ABSENT}/cancel")

    assert failed.json["status"] == cancelled.json["status"] == "failed"
    assert failed.json["error"] == {"code": "server_error", "message": CUT_OFF}
