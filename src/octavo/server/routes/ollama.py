"""POST /api/chat and /api/generate: Ollama's API. And what of it is refused."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from octavo.errors import InvalidRequestError
from octavo.server.bodies import json_response, read_json
from octavo.server.chat_run import prepare_chat
from octavo.server.described import BODY_ERRORS, ENGINE_ERRORS, MODEL_ERRORS, described
from octavo.server.dialects.ollama import (
    GENERATE_NAMES,
    NAMES,
    chat_of,
    check_context,
    is_load,
    prompt_chat_of,
    served_name,
)
from octavo.server.dialects.ollama_answer import LINES, OllamaAnswer, loaded_answer
from octavo.server.paths import path_of
from octavo.server.routes.health import state_of
from octavo.server.schemas.ollama import OllamaChatRequest, OllamaGenerateRequest
from octavo.server.schemas.ollama_answer import OllamaChatAnswer, OllamaGenerateAnswer
from octavo.server.serving import respond, tenant_of
from octavo.server.state import new_id

# What Ollama does to its store of models, and this server does not: (method, path) -> why.
REFUSED = {
    ("POST", "/api/pull"): "no model is fetched through the API: octavo pull NAME, then restart",
    ("POST", "/api/push"): "no model can be pushed from here",
    ("POST", "/api/create"): "no model can be made here; start the server with the one you want",
    ("POST", "/api/copy"): "no model can be copied; give it several names: --served-model-name",
    ("DELETE", "/api/delete"): "no model can be deleted through the API",
}


@described(
    body=OllamaChatRequest,
    answer=OllamaChatAnswer,
    stream=(LINES, OllamaChatAnswer),
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def ollama_chat(request: Request) -> Response | ASGIApp:
    """Answer a conversation."""
    state = state_of(request)
    body = await read_json(
        request, OllamaChatRequest, state.config.max_body_bytes, takes_form_type=True
    )
    state.require_ready()
    model = served_name(state, body.model)
    if is_load(body):
        return json_response(loaded_answer(model, is_chat=True))
    chat = chat_of(state, body)
    run = await prepare_chat(
        state, chat, answer_id=new_id("ollama", None), tenant=tenant_of(request), names=NAMES
    )
    check_context(body.options, run.generation.counts.prompt_tokens)
    num_best = (body.top_logprobs or 0) if body.logprobs else None
    answer = OllamaAnswer(run, model, is_chat=True, streams=bool(chat.stream), num_best=num_best)
    return await respond(request, answer, stream_type=LINES)


@described(
    body=OllamaGenerateRequest,
    answer=OllamaGenerateAnswer,
    stream=(LINES, OllamaGenerateAnswer),
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def ollama_generate(request: Request) -> Response | ASGIApp:
    """Answer a prompt: as a chat of one message, or with `raw` as it is."""
    state = state_of(request)
    body = await read_json(
        request, OllamaGenerateRequest, state.config.max_body_bytes, takes_form_type=True
    )
    state.require_ready()
    model = served_name(state, body.model)
    if is_load(body):
        return json_response(loaded_answer(model, is_chat=False))
    chat = prompt_chat_of(state, body)
    run = await prepare_chat(
        state,
        chat,
        answer_id=new_id("ollama", None),
        tenant=tenant_of(request),
        names=GENERATE_NAMES,
        raw=body.prompt if chat.add_special_tokens else None,
    )
    check_context(body.options, run.generation.counts.prompt_tokens)
    num_best = (body.top_logprobs or 0) if body.logprobs else None
    answer = OllamaAnswer(run, model, is_chat=False, streams=bool(chat.stream), num_best=num_best)
    return await respond(request, answer, stream_type=LINES)


@described(succeeds=False, errors=(400,))
async def refuse(request: Request) -> Response:
    """Say why there is no such thing here."""
    raise InvalidRequestError(REFUSED[request.method, path_of(request.scope)])
