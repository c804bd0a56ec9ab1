"""POST /invocations: one path for every kind of request, told apart by its fields (SageMaker)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message

from octavo.errors import InvalidRequestError
from octavo.server.bodies import decoded, read_bytes
from octavo.server.described import BODY_ERRORS, ENGINE_ERRORS, HELLO, MODEL_ERRORS, described
from octavo.server.routes.chat_completions import create_chat_completion
from octavo.server.routes.completions import create_completion
from octavo.server.routes.health import state_of
from octavo.server.routes.pooling import classify, create_embedding, create_pooling
from octavo.server.routes.scoring import create_score, rerank

Handler = Callable[[Request], Awaitable[Response | ASGIApp]]

# What a body holds -> who answers it; the first that fits.
_OF_TEXT: Mapping[str, Handler] = MappingProxyType(
    {"messages": create_chat_completion, "prompt": create_completion}
)
_OF_VECTORS: Mapping[str, Handler] = MappingProxyType(
    {
        "query": rerank,
        "queries": create_score,
        "text_1": create_score,
        "data_1": create_score,
        "task": create_pooling,
    }
)


@described(
    body=dict[str, Any],
    examples={"chat": {"messages": HELLO, "max_tokens": 16}, "text": {"prompt": "Once upon"}},
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def invoke(request: Request) -> Response | ASGIApp:
    """What the fields say: a chat, a completion, vectors, labels, scores or a ranking."""
    state = state_of(request)
    raw = await read_bytes(request, state.config.max_body_bytes)
    fields = await decoded(raw, dict[str, msgspec.Raw])
    state.require_ready()
    pooling = state.loaded.facts.pooling
    by_field = _OF_TEXT if pooling is None else _OF_VECTORS
    told = [name for name in by_field if name in fields and not _is_null(fields[name])]
    if len({by_field[name] for name in told}) > 1:
        message = f"{' and '.join(told)} exclude each other: each is a request of its own kind"
        raise InvalidRequestError(message, param=told[-1])
    handler = by_field[told[0]] if told else None
    if handler is None and pooling is not None and ("input" in fields or "messages" in fields):
        handler = classify if pooling.task == "classify" else create_embedding
    if handler is None:
        known = [*by_field] if pooling is None else [*by_field, "input", "messages"]
        raise InvalidRequestError(f"the body needs one of the fields {', '.join(known)}")
    return await handler(_again(request, raw))


def _is_null(value: msgspec.Raw) -> bool:
    return memoryview(value).nbytes == len(b"null") and bytes(value) == b"null"


def _again(request: Request, raw: bytes) -> Request:
    """The request as it was before its body was read."""
    is_sent = False

    async def receive() -> Message:
        nonlocal is_sent
        if is_sent:
            return await request.receive()
        is_sent = True
        return {"type": "http.request", "body": raw, "more_body": False}

    return Request(request.scope, receive)
