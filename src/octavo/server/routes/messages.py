"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from octavo.server.bodies import json_response
from octavo.server.chat_format import answer_format
from octavo.server.chat_prompt import effort_kwargs
from octavo.server.chat_run import chat_token_ids, prepare_chat, rendered_chat
from octavo.server.described import BODY_ERRORS, ENGINE_ERRORS, MODEL_ERRORS, described
from octavo.server.dialects.anthropic import NAMES, chat_of
from octavo.server.dialects.anthropic_answer import MessageAnswer
from octavo.server.field_names import errors_name
from octavo.server.routes.reading import read_request
from octavo.server.schemas.chat import check_chat, check_num_messages
from octavo.server.schemas.message_answer import MessageEvent, MessageShown
from octavo.server.schemas.messages import MessagesPrompt, MessagesRequest, TokenCount
from octavo.server.serving import respond, tenant_of
from octavo.server.sse import EVENTS
from octavo.server.state import new_id


@described(
    body=MessagesRequest,
    answer=MessageShown,
    stream=(EVENTS, MessageEvent),
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def create_message(request: Request) -> Response | ASGIApp:
    """Write the next message of a conversation."""
    state, body, model = await read_request(request, MessagesRequest)
    run = await prepare_chat(
        state,
        chat_of(state, body),
        answer_id=new_id("msg", None).replace("-", "_"),
        tenant=tenant_of(request),
        names=NAMES,
    )
    return await respond(request, MessageAnswer(run, model, streams=bool(body.stream)))


@described(body=MessagesPrompt, answer=TokenCount, errors=(*BODY_ERRORS, *MODEL_ERRORS))
async def count_tokens(request: Request) -> Response:
    """Tokens of a prompt, as the same message would have them."""
    state, body, _ = await read_request(request, MessagesPrompt)
    chat = chat_of(state, body)
    with errors_name(NAMES):
        check_num_messages(chat, state.config.max_messages)
        check_chat(chat)
        answer = answer_format(state.format, chat, state.config)
        effort_kwargs(state, chat.reasoning_effort)
    text = await rendered_chat(state, chat, answer)
    tokens = await chat_token_ids(state, chat, text, {"prompt": "messages"})
    return json_response(TokenCount(input_tokens=len(tokens)))
