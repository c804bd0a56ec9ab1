"""The application: the list of routes and the list of middleware."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from octavo.errors import OctavoError
from octavo.server.auth import KeyGuard
from octavo.server.counting import AnswerCounter
from octavo.server.dialects.request_ids import MessageIds
from octavo.server.disconnect import ClientGoneError
from octavo.server.errors import answer_error
from octavo.server.limits import HeaderLimit
from octavo.server.routes.admin import reset_prefix_cache, show_kv
from octavo.server.routes.chat_completions import create_chat_completion
from octavo.server.routes.completions import create_completion
from octavo.server.routes.health import health, metrics, ready, show_version
from octavo.server.routes.messages import count_tokens, create_message
from octavo.server.routes.models import list_models, show_model
from octavo.server.routes.ollama import REFUSED, ollama_chat, ollama_generate, refuse
from octavo.server.routes.ollama_embed import ollama_embed, ollama_embeddings
from octavo.server.routes.ollama_models import (
    is_alive,
    list_running,
    list_tags,
    ollama_version,
    show_ollama_model,
)
from octavo.server.routes.pooling import classify, create_embedding, create_pooling
from octavo.server.routes.scoring import create_score, rerank
from octavo.server.routes.tokenize import detokenize, tokenize
from octavo.server.state import ServerState

Handler = Callable[[Request], Awaitable[Response | ASGIApp]]

ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/health", health),
    ("GET", "/ping", health),
    ("POST", "/ping", health),
    ("GET", "/ready", ready),
    ("GET", "/version", show_version),
    ("GET", "/metrics", metrics),
    ("GET", "/v1/models", list_models),
    ("GET", "/v1/models/{name:path}", show_model),
    ("POST", "/v1/completions", create_completion),
    ("POST", "/v1/chat/completions", create_chat_completion),
    ("POST", "/v1/embeddings", create_embedding),
    ("POST", "/pooling", create_pooling),
    ("POST", "/classify", classify),
    ("POST", "/score", create_score),
    ("POST", "/v1/score", create_score),
    ("POST", "/rerank", rerank),
    ("POST", "/v1/rerank", rerank),
    ("POST", "/v2/rerank", rerank),
    ("POST", "/v1/messages", create_message),
    ("POST", "/v1/messages/count_tokens", count_tokens),
    ("HEAD", "/", is_alive),
    ("POST", "/api/chat", ollama_chat),
    ("POST", "/api/generate", ollama_generate),
    ("POST", "/api/embed", ollama_embed),
    ("POST", "/api/embeddings", ollama_embeddings),
    ("GET", "/api/tags", list_tags),
    ("GET", "/api/ps", list_running),
    ("POST", "/api/show", show_ollama_model),
    ("GET", "/api/version", ollama_version),
    *((method, path, refuse) for method, path in REFUSED),
    ("POST", "/tokenize", tokenize),
    ("POST", "/detokenize", detokenize),
    ("POST", "/reset_prefix_cache", reset_prefix_cache),
    ("GET", "/debug/kv", show_kv),
)


def build_app(state: ServerState) -> ASGIApp:
    """The ASGI application of one engine."""
    app = Starlette(
        routes=[Route(path, handler, methods=[method]) for method, path, handler in ROUTES],
        exception_handlers={
            OctavoError: answer_error,
            HTTPException: answer_error,
            ClientGoneError: _answer_nobody,
            ClientDisconnect: _answer_nobody,  # in the middle of its body
            Exception: answer_error,
        },
    )
    app.state.server = state
    config = state.config
    guarded = KeyGuard(app, config.api_key, config.admin_api_key, is_private=config.is_private)
    paths = frozenset(path for _, path, _ in ROUTES if "{" not in path)
    return AnswerCounter(MessageIds(HeaderLimit(guarded)), state.metrics, paths)


async def _answer_nobody(request: Request, error: Exception) -> Response:
    """The client has gone; the answer is for the counters only."""
    return Response(status_code=499)
