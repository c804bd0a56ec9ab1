"""The form of an answer in HTTP requests: enforced, or refused by the name of the field."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.asgi import Client, scripted_server
from tests.support.scripted_engine import says

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
COLOUR = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "blue"]}},
    "required": ["colour"],
    "additionalProperties": False,
}
RED = '{"colour": "red"}'


def as_schema(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, **more}}


def chat(**fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "One"}]
    return {"messages": messages, "temperature": 0, "max_tokens": 60, **fields}


def complete(**fields: Any) -> dict[str, Any]:
    return {"prompt": "One", "temperature": 0, "max_tokens": 60, **fields}


async def answers(client: Client, **fields: Any) -> list[tuple[str, str]]:
    """(text, finish reason) by both routes, whole and streamed."""
    found = []
    for path, body in ((CHAT, chat(**fields)), (COMPLETIONS, complete(**fields))):
        reply = await client.post(path, body)
        assert reply.status == 200, reply.content
        [choice] = reply.json["choices"]
        text = choice["message"]["content"] if path == CHAT else choice["text"]
        found.append((text, choice["finish_reason"]))
        streamed = (await client.post(path, {**body, "stream": True})).chunks
        pieces = [choice for chunk in streamed for choice in chunk["choices"]]
        text = "".join(
            piece["delta"].get("content", "") if path == CHAT else piece["text"] for piece in pieces
        )
        found.append((text, pieces[-1]["finish_reason"]))
    return found


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({"response_format": as_schema(COLOUR, strict=True)}, RED),
        ({"response_format": {"type": "json_object"}}, RED),
        ({"structured_outputs": {"json": COLOUR}}, RED),
        ({"structured_outputs": {"json": json.dumps(COLOUR)}}, RED),
        ({"structured_outputs": {"json": COLOUR, "disable_additional_properties": True}}, RED),
        ({"structured_outputs": {"json_object": True}}, RED),
        ({"structured_outputs": {"regex": "(yes|no)"}}, "yes"),
        ({"structured_outputs": {"choice": ["yes", "no"], "regex": None}}, "yes"),
        ({"structured_outputs": {"grammar": 'root ::= "yes" | "no"'}}, "yes"),
    ],
)
async def test_the_end_of_the_form_ends_the_answer(form: dict[str, Any], text: str) -> None:
    """The script would go on, and end tokens are ignored."""
    async with scripted_server(says({"One": text + " and on"}), chat_template=TEMPLATE) as client:
        assert await answers(client, ignore_eos=True, **form) == [(text, "stop")] * 4


@pytest.mark.parametrize("form", [{}, {"response_format": {"type": "text"}}])
async def test_without_a_form_text_is_free(form: dict[str, Any]) -> None:
    async with scripted_server(says({"One": " two"}), chat_template=TEMPLATE) as client:
        assert await answers(client, **form) == [(" two", "stop")] * 4


async def test_tags_hold_only_what_follows_their_trigger() -> None:
    """Both public shapes; text around the tag is free."""
    text = f"Well: <c>{RED}</c>"
    old = {
        "type": "structural_tag",
        "structures": [{"begin": "<c>", "schema": COLOUR, "end": "</c>"}],
        "triggers": ["<c>"],
    }
    tag = {
        "type": "tag",
        "begin": "<c>",
        "content": {"type": "json_schema", "json_schema": COLOUR},
        "end": "</c>",
    }
    new = {
        "type": "structural_tag",
        "format": {"type": "triggered_tags", "triggers": ["<c>"], "tags": [tag]},
    }
    async with scripted_server(says({"One": text}), chat_template=TEMPLATE) as client:
        for form in (
            {"response_format": old},
            {"response_format": new},
            {"structured_outputs": {"structural_tag": json.dumps(old)}},
        ):
            assert await answers(client, **form) == [(text, "stop")] * 4


async def test_a_token_outside_the_form_never_comes() -> None:
    """The script wants another word; the executor would refuse it, and takes an allowed token."""
    form = {"structured_outputs": {"choice": ["yes", "no"]}}
    async with scripted_server(
        says({"One": "maybe"}),
        chat_template=TEMPLATE,
        on_executor=lambda executor: executor.obey_masks(),
    ) as client:
        for text, reason in await answers(client, **form):
            assert (text in ("yes", "no"), reason) == (True, "stop")


async def test_each_choice_has_the_form_for_itself() -> None:
    async with scripted_server(says({"One": RED}), chat_template=TEMPLATE) as client:
        fields = {"n": 3, "temperature": 1, "response_format": as_schema(COLOUR)}
        reply = await client.post(CHAT, chat(**fields))

    texts = [choice["message"]["content"] for choice in reply.json["choices"]]
    assert texts == [RED] * 3


async def test_a_stop_string_still_ends_an_answer_with_a_form() -> None:
    async with scripted_server(says({"One": RED}), chat_template=TEMPLATE) as client:
        fields = {"stop": "red", "response_format": as_schema(COLOUR)}
        reply = await client.post(CHAT, chat(**fields))

    [choice] = reply.json["choices"]
    assert (choice["message"]["content"], choice["stop_reason"]) == ('{"colour": "', "red")


SCHEMA = "response_format.json_schema"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, SCHEMA),
        ({"response_format": as_schema(None)}, f"{SCHEMA}.schema"),
        ({"response_format": as_schema({}, strict="yes")}, f"{SCHEMA}.strict"),
        ({"response_format": as_schema({"type": "nothing"})}, "response_format"),
        ({"response_format": as_schema({"contentEncoding": "base64"})}, "response_format"),
        ({"structured_outputs": "a"}, "structured_outputs"),
        ({"structured_outputs": {"xml": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"choice": ["a"], "regex": "b"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": 7}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs"),
        ({"structured_outputs": {"choice": ["a"] * 10_001}}, "structured_outputs"),
        ({"structured_outputs": {"choice": [1]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "["}}, "structured_outputs"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": "root ::="}}, "structured_outputs"),
        (
            {"structured_outputs": {"json": {}, "disable_any_whitespace": True}},
            "structured_outputs.disable_any_whitespace",
        ),
        (
            {
                "structured_outputs": {"regex": "a"},
                "response_format": {"type": "json_object"},
            },
            "structured_outputs",
        ),
        ({"guided_json": {}}, "guided_json"),
        ({"guided_choice": ["a"]}, "guided_choice"),
        ({"use_beam_search": True, "response_format": {"type": "json_object"}}, "response_format"),
    ],
)
async def test_a_wrong_form_is_refused_by_the_name_of_the_field(
    fields: dict[str, Any], param: str
) -> None:
    """On both routes, in few words."""
    async with scripted_server(chat_template=TEMPLATE) as client:
        for path, body in ((CHAT, chat(**fields)), (COMPLETIONS, complete(**fields))):
            reply = await client.post(path, body)

            assert (reply.status, reply.error["param"]) == (400, param), (path, reply.error)
            assert len(reply.content) < 10_000


HOSTILE: list[tuple[str, str]] = [
    ("json", '{"type": "array", "items": ' * 5000 + "{}" + "}" * 5000),
    ("grammar", json.dumps("root ::= " + "(" * 60_000 + ")" * 60_000)),
    ("regex", json.dumps("(" * 10_000)),
    ("json", json.dumps({"enum": ["x" * 300_000]})),
]


@pytest.mark.parametrize(("kind", "source"), HOSTILE)
async def test_a_hostile_form_is_refused_while_others_are_answered(kind: str, source: str) -> None:
    """The body is text, as no client library would build it."""
    form = f'"structured_outputs": {{"{kind}": {source}}}'
    body = f'{{"messages": [{{"role": "user", "content": "One"}}], "max_tokens": 8, {form}}}'
    async with scripted_server(says({"One": "two"}), chat_template=TEMPLATE) as client:
        reply, health = await asyncio.gather(
            client.post(CHAT, body.encode()), client.get("/health")
        )

    assert (reply.status, health.status) == (400, 200)
    assert len(reply.content) < 10_000
