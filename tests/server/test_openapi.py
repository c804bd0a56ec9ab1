"""The API's description: it is valid, complete, up to date, and true."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import Response

from octavo.config.server import ServerConfig
from octavo.server.app import ROUTES
from octavo.server.described import described
from octavo.server.openapi import openapi_document, shown_path
from octavo.server.openapi_fields import MEANINGS
from octavo.server.schemas.capabilities import Capabilities
from octavo.server.schemas.chat_answer import ChatCompletion, ChatCompletionChunk
from octavo.server.schemas.completion_answer import Completion, CompletionChunk
from octavo.server.schemas.errors import ErrorAnswer, MessagesErrorAnswer, OllamaErrorAnswer
from octavo.server.schemas.message_answer import MessageEvent, MessageShown
from octavo.server.schemas.ollama_answer import (
    OllamaChatAnswer,
    OllamaGenerateAnswer,
    OllamaModels,
    OllamaModelShown,
    OllamaRunningModels,
)
from octavo.server.schemas.probes import ReadyAnswer, VersionAnswer
from octavo.server.schemas.sampling import SAMPLING_NAMES
from tests.support.asgi import scripted_server
from tests.support.chat_templates import CHATML
from tools.make_openapi import RENEW, SNAPSHOT, snapshot_text

CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
MESSAGE = CHAT | {"model": "tiny"}
OLLAMA = {"model": "tiny", "messages": CHAT["messages"], "options": {"num_predict": 4}}
PROMPT = {"model": "tiny", "prompt": "Hi", "options": {"num_predict": 4}}


def document() -> dict[str, Any]:
    return openapi_document(ROUTES)


def test_the_document_is_valid_openapi_3_1() -> None:
    """By the official schema, and every reference leads somewhere."""
    validator = pytest.importorskip("openapi_spec_validator", reason="needs openapi-spec-validator")

    validator.validate(document(), cls=validator.OpenAPIV31SpecValidator)


def test_every_reference_leads_somewhere() -> None:
    """Also without the validator."""
    made = document()
    text = json.dumps(made)
    names = {part.partition('"')[0] for part in text.split('"$ref": "#/components/')[1:]}

    for name in names:
        kind, _, leaf = name.partition("/")
        assert leaf in made["components"][kind]
    assert len(names) > 50


def test_the_snapshot_is_up_to_date() -> None:
    """A change of the API is a change of the repository."""
    kept = SNAPSHOT.read_text(encoding="utf-8")

    assert snapshot_text() == kept, f"the API has changed; look at what `{RENEW}` changes"


def test_every_route_of_the_api_is_in_the_document() -> None:
    """Assets of the pages are no part of the API; everything else is there."""
    paths = document()["paths"]
    shown = {(method.upper(), path) for path, item in paths.items() for method in item}

    expected = {
        (method, shown_path(path)) for method, path, _ in ROUTES if not path.startswith("/ui/")
    }
    assert expected == shown


def test_a_route_without_a_description_appears_with_its_words_and_its_errors() -> None:
    """Its docstring, its parameters, and the form of errors that its path asks for."""

    async def bake(request: Request) -> Response:
        """Bake a cake.

        It takes an hour.
        """
        return Response()

    made = openapi_document((("POST", "/api/cakes/{kind:path}", bake),))
    operation = made["paths"]["/api/cakes/{kind}"]["post"]

    assert ("Bake a cake", "It takes an hour.") == (operation["summary"], operation["description"])
    assert "kind" == operation["parameters"][0]["name"]
    assert "#/components/responses/OllamaError" == operation["responses"]["default"]["$ref"]


def test_a_field_that_the_struct_leaves_open_can_be_told_as_required() -> None:
    """It is then neither null nor absent in the document."""

    class Cake(msgspec.Struct):
        kind: str | None = None
        candles: int | None = None

    @described(body=Cake, required=("kind",))
    async def bake(request: Request) -> Response:
        """Bake a cake."""
        return Response()

    schema = openapi_document((("POST", "/cakes", bake),))["components"]["schemas"]["Cake"]

    assert ["kind"] == schema["required"]
    assert {"type": "string"} == schema["properties"]["kind"]
    assert {"type": "null"} in schema["properties"]["candles"]["anyOf"]


def test_every_field_that_has_a_meaning_is_a_field_of_some_body() -> None:
    """A sentence about a field that is gone would be a lie; a sampling field has one."""
    made = document()
    bodies = [
        made["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        for item in made["paths"].values()
        for one in item.values()
        for schema in [one.get("requestBody", {}).get("content", {}).get("application/json", {})]
        for schema in [schema.get("schema", {})]
        if "$ref" in schema
    ]
    names = {name for body in bodies for name in body["properties"]}

    assert set() == set(MEANINGS) - names
    assert set() == set(SAMPLING_NAMES) - set(MEANINGS) - {"spaces_between_special_tokens"}


def test_operations_have_ids_of_their_own() -> None:
    """Generators of clients make function names of them."""
    operations = [one for item in document()["paths"].values() for one in item.values()]

    assert len(operations) == len({one["operationId"] for one in operations})


def missing(given: Any, described: Any, where: str = "$") -> list[str]:
    """Places of an answer that its type does not know."""
    if isinstance(given, dict) and isinstance(described, dict):
        return [
            place
            for key, value in given.items()
            for place in (
                missing(value, described[key], f"{where}.{key}")
                if key in described
                else [f"{where}.{key}"]
            )
        ]
    if isinstance(given, list) and isinstance(described, list):
        pairs = zip(given, described, strict=True)
        return [place for one, other in pairs for place in missing(one, other, where + "[]")]
    return []


def check(given: Any, kind: Any) -> None:
    """An answer is of its type, and has no field that the type does not know."""
    assert missing(given, msgspec.to_builtins(msgspec.convert(given, kind))) == []


RICH_CHAT = CHAT | {
    "logprobs": True,
    "top_logprobs": 2,
    "return_token_ids": True,
    "prompt_logprobs": 1,
}
RICH_PROMPT = {
    "prompt": "Hi there",
    "max_tokens": 4,
    "echo": True,
    "logprobs": 2,
    "return_token_ids": True,
}


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/v1/chat/completions", RICH_CHAT, ChatCompletion),
        ("/v1/completions", RICH_PROMPT | {"prompt_logprobs": 1}, Completion),
        ("/v1/messages", MESSAGE, MessageShown),
        ("/api/chat", OLLAMA | {"stream": False, "logprobs": True}, OllamaChatAnswer),
        ("/api/generate", PROMPT | {"stream": False}, OllamaGenerateAnswer),
        ("/api/show", {"model": "tiny"}, OllamaModelShown),
        ("/v1/chat/completions", {}, ErrorAnswer),
        ("/v1/messages", {}, MessagesErrorAnswer),
        ("/api/chat", {}, OllamaErrorAnswer),
        ("/api/pull", {}, OllamaErrorAnswer),
    ],
)
async def test_answers_hold_what_their_types_say_and_nothing_else(
    path: str, body: dict[str, Any], kind: Any
) -> None:
    """The types are for the document only, so they are held against real answers here."""
    config = ServerConfig(enable_per_request_metrics=True, enable_prompt_tokens_details=True)
    async with scripted_server(config=config, chat_template=CHATML) as client:
        reply = await client.post(path, body)

    check(reply.json, kind)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/ready", ReadyAnswer),
        ("/version", VersionAnswer),
        ("/api/tags", OllamaModels),
        ("/api/ps", OllamaRunningModels),
        ("/v1/capabilities", Capabilities),
    ],
)
async def test_what_is_read_holds_what_its_type_says(path: str, kind: Any) -> None:
    """The same without a body."""
    async with scripted_server(chat_template=CHATML) as client:
        reply = await client.get(path)

    check(reply.json, kind)


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/v1/chat/completions", CHAT | {"logprobs": True}, ChatCompletionChunk),
        ("/v1/completions", {"prompt": "Hi", "max_tokens": 4, "logprobs": 1}, CompletionChunk),
    ],
)
async def test_chunks_hold_what_their_types_say(path: str, body: dict[str, Any], kind: Any) -> None:
    """Those with text, and the last one with the usage."""
    config = ServerConfig(enable_per_request_metrics=True)
    asks = {"stream": True, "stream_options": {"include_usage": True}}
    async with scripted_server(config=config, chat_template=CHATML) as client:
        reply = await client.post(path, body | asks)

    assert reply.chunks[-1]["usage"]["completion_tokens"] > 0
    for chunk in reply.chunks:
        check(chunk, kind)


async def test_events_and_lines_of_other_apis_hold_what_their_types_say() -> None:
    """Anthropic's events, Ollama's lines."""
    async with scripted_server(chat_template=CHATML) as client:
        events = (await client.post("/v1/messages", MESSAGE | {"stream": True})).content.decode()
        lines = (await client.post("/api/chat", OLLAMA)).content.decode()

    data = [line[6:] for line in events.splitlines() if line.startswith("data: ")]
    assert len(data) > 4
    for one in data:
        check(json.loads(one), MessageEvent)
    for line in lines.splitlines():
        check(json.loads(line), OllamaChatAnswer)


async def test_the_served_document_has_the_prefix_of_the_proxy() -> None:
    """Clients that are made from it find the server."""
    async with scripted_server(config=ServerConfig(root_path="/llm")) as client:
        reply = await client.get("/openapi.json", root_path="/llm")

    assert [{"url": "/llm"}] == reply.json["servers"]
    assert "3.1.0" == reply.json["openapi"]
