"""/v1/responses: OpenAI's Responses API."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from octavo.errors import InvalidRequestError
from octavo.server.background import unpacked
from octavo.server.bodies import json_response
from octavo.server.chat_fitting import fit_chat
from octavo.server.chat_run import prepare_chat
from octavo.server.described import (
    BODY_ERRORS,
    ENGINE_ERRORS,
    MODEL_ERRORS,
    Query,
    described,
)
from octavo.server.dialects.places import wrong
from octavo.server.dialects.responses import NAMES, chat_of, response_head, wants_summary
from octavo.server.dialects.responses_answer import ResponseAnswer
from octavo.server.dialects.responses_ids import ItemIds, new_response_id
from octavo.server.dialects.responses_items import Item, checked_items
from octavo.server.dialects.responses_output import OutputItems
from octavo.server.kept_responses import KeptResponses
from octavo.server.routes.health import state_of
from octavo.server.routes.reading import read_request
from octavo.server.schemas.response_answer import (
    DeletedResponse,
    InputItems,
    ResponseEvent,
    ResponseShown,
)
from octavo.server.schemas.responses import (
    INCLUDED_LOGPROBS,
    INCLUDED_THOUGHTS,
    ResponseRequest,
    check_include,
    check_response,
)
from octavo.server.serving import respond, tenant_of
from octavo.server.sse import EVENTS, ByteStream
from octavo.server.state import ServerState

MAX_PAGE = 100  # of input items
_ERRORS = (400, 404, 503)
_ON, _OFF = ("true", "1"), ("false", "0")


@described(
    body=ResponseRequest,
    required=("input",),
    answer=ResponseShown,
    stream=(EVENTS, ResponseEvent),
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def create_response(request: Request) -> Response | ASGIApp:
    """Make a response: now, as a stream, or in the background."""
    state, body, model = await read_request(request, ResponseRequest)
    check_response(body)
    kept = KeptResponses(state, tenant_of(request))
    ids = ItemIds(new_response_id())
    given = body.input if body.input is not None else []
    given = given if isinstance(given, str) else await kept.without_references(given)
    items = checked_items(given, ids)
    context = await kept.context(body.previous_response_id)
    if not context and not items:
        raise wrong("input", "is missing or empty")
    answer = await _answer(state, body, model, kept, (ids, context, items))
    if not body.background:
        return await respond(request, answer)
    running = await kept.start(answer, items, body.previous_response_id, context)
    if body.stream:
        return ByteStream(b"", running.log.follow())
    return json_response(running.shown)


async def _answer(
    state: ServerState,
    body: ResponseRequest,
    model: str,
    kept: KeptResponses,
    conversation: tuple[ItemIds, list[Item], list[Item]],
) -> ResponseAnswer:
    """The response, prepared. `conversation`: ids, items of before, items that are new."""
    ids, context, items = conversation
    chat = chat_of(body, context + items)
    if body.truncation == "auto":
        await fit_chat(state, chat, NAMES)
    run = await prepare_chat(
        state, chat, answer_id=ids.response_id, tenant=kept.tenant, names=NAMES
    )
    head = response_head(
        body,
        run.generation.params,
        response_id=ids.response_id,
        model=model,
        created_at=int(time.time()),
    )
    return ResponseAnswer(
        run,
        head,
        OutputItems(
            ids,
            len(items),
            summarises=wants_summary(body),
            seals=body.includes(INCLUDED_THOUGHTS),
        ),
        streams=bool(body.stream),
        keep=kept.keeper(items, body.previous_response_id, context)
        if body.is_stored and not body.background
        else None,
        num_best=(body.top_logprobs or 0) if body.includes(INCLUDED_LOGPROBS) else None,
    )


@described(
    answer=ResponseShown,
    stream=(EVENTS, ResponseEvent),
    query=(
        Query(name="stream", description="Send the events instead.", kind="boolean"),
        Query(
            name="starting_after",
            description="Number of the last event that is not sent again.",
            kind="integer",
        ),
        Query(name="include", description="Nothing changes: all that was asked for is shown."),
        Query(name="include_obfuscation", description="Must be false.", kind="boolean"),
    ),
    errors=_ERRORS,
)
async def show_response(request: Request) -> Response | ASGIApp:
    """A response as it is now; of a background one the events, with `stream=true`."""
    kept, response_id = _asked(request)
    check_include(_list(request, "include"))
    if _flag(request, "include_obfuscation"):
        raise wrong("include_obfuscation", "is not supported by this server")
    streams, after = _flag(request, "stream"), _number(request, "starting_after")
    if after is not None and not streams:
        raise wrong("starting_after", "is for streams; set stream to true or leave it out")
    running = kept.running(response_id)
    if running is not None:
        if not streams:
            return json_response(running.shown)
        return ByteStream(b"", running.log.follow(-1 if after is None else after))
    stored = await kept.find(response_id)
    if not streams:
        return json_response(stored.response)
    if stored.events is None:
        message = "stream is for responses that were made with background set to true"
        raise InvalidRequestError(message, param="stream")
    return ByteStream(b"", _replayed(unpacked(stored.events, -1 if after is None else after)))


@described(answer=ResponseShown, errors=_ERRORS)
async def cancel_response(request: Request) -> Response:
    """End a background response; one that has ended stays as it is."""
    kept, response_id = _asked(request)
    return json_response((await kept.cancel(response_id)).response)


@described(answer=DeletedResponse, errors=_ERRORS)
async def delete_response(request: Request) -> Response:
    """Forget a response, and end it before."""
    kept, response_id = _asked(request)
    await kept.delete(response_id)
    return json_response({"id": response_id, "object": "response", "deleted": True})


@described(
    answer=InputItems,
    query=(
        Query(name="limit", description=f"Items of a page, 1 to {MAX_PAGE}.", kind="integer"),
        Query(name="order", description="`desc`, the default, or `asc`."),
        Query(name="after", description="Id of the last item of the page before."),
        Query(name="include", description="Nothing changes: all that was asked for is shown."),
    ),
    errors=_ERRORS,
)
async def list_input_items(request: Request) -> Response:
    """What a response was made from, page by page, with all that it goes on from."""
    kept, response_id = _asked(request)
    check_include(_list(request, "include"))
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise wrong("order", "must be 'asc' or 'desc'")
    limit = _number(request, "limit")
    limit = 20 if limit is None else limit
    if not 1 <= limit <= MAX_PAGE:
        raise wrong("limit", f"must be between 1 and {MAX_PAGE}")
    items = await kept.inputs(response_id)
    if order == "desc":
        items.reverse()
    page, has_more = _page(items, request.query_params.get("after"), limit)
    return json_response(
        {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": has_more,
        }
    )


def _page(items: list[Item], after: str | None, limit: int) -> tuple[list[Item], bool]:
    first = 0
    if after is not None:
        places = [place for place, item in enumerate(items) if item["id"] == after]
        if not places:
            raise wrong("after", "is the id of no input item of this response")
        first = places[0] + 1
    return items[first : first + limit], first + limit < len(items)


def _asked(request: Request) -> tuple[KeptResponses, str]:
    """The client's responses, and the id in the path."""
    return KeptResponses(state_of(request), tenant_of(request)), request.path_params["id"]


async def _replayed(events: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
    for event in events:
        yield event


def _list(request: Request, name: str) -> list[str]:
    """A query parameter that may come several times, in either spelling of lists."""
    query = request.query_params
    return [*query.getlist(name), *query.getlist(f"{name}[]")]


def _flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false").lower()
    if text not in (*_ON, *_OFF):
        raise wrong(name, "must be true or false")
    return text in _ON


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise wrong(name, "must be a whole number")
    return int(text)
