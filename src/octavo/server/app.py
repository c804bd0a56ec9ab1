"""The application: the list of routes and the list of middleware."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from octavo.errors import OctavoError
from octavo.server.auth import METRICS_PATH, OPEN_PATHS, KeyGuard
from octavo.server.counting import AnswerCounter
from octavo.server.dialects.request_ids import MessageIds
from octavo.server.disconnect import ClientGoneError
from octavo.server.errors import answer_error
from octavo.server.limits import HeaderLimit
from octavo.server.load_report import LoadReport
from octavo.server.pages import ASSET_PATHS, CHAT_PATH, DOCS_PATH, OPENAPI_PATH
from octavo.server.paths import ProxyPrefix
from octavo.server.request_id_header import RequestIdHeader
from octavo.server.routes.admin import reset_prefix_cache, show_kv
from octavo.server.routes.batched_chats import create_batched_chats
from octavo.server.routes.batches import cancel_batch, create_batch, list_batches, show_batch
from octavo.server.routes.capabilities import show_capabilities
from octavo.server.routes.chat_completions import create_chat_completion
from octavo.server.routes.completions import create_completion
from octavo.server.routes.files import (
    delete_file,
    list_files,
    show_file,
    show_file_content,
    upload_file,
)
from octavo.server.routes.health import health, metrics, ready, show_load, show_version
from octavo.server.routes.invocations import invoke
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
from octavo.server.routes.pages import show_asset, show_chat_page, show_docs, show_openapi
from octavo.server.routes.pooling import classify, create_embedding, create_pooling
from octavo.server.routes.refused import NOT_SERVED_PATHS, refuse_openai
from octavo.server.routes.responses import (
    cancel_response,
    create_response,
    delete_response,
    list_input_items,
    show_response,
)
from octavo.server.routes.scoring import create_score, rerank
from octavo.server.routes.tokenize import detokenize, tokenize, tokenizer_info
from octavo.server.state import ServerState
from octavo.server.trace_context import TraceContext

Handler = Callable[[Request], Awaitable[Response | ASGIApp]]

ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/health", health),
    ("GET", "/ping", health),
    ("POST", "/ping", health),
    ("GET", "/ready", ready),
    ("GET", "/version", show_version),
    ("GET", "/load", show_load),
    ("GET", "/metrics", metrics),
    ("GET", "/v1/models", list_models),
    ("GET", "/v1/models/{name:path}", show_model),
    ("POST", "/v1/completions", create_completion),
    ("POST", "/v1/chat/completions", create_chat_completion),
    ("POST", "/v1/chat/completions/batch", create_batched_chats),
    ("POST", "/v1/embeddings", create_embedding),
    ("POST", "/pooling", create_pooling),
    ("POST", "/classify", classify),
    ("POST", "/score", create_score),
    ("POST", "/v1/score", create_score),
    ("POST", "/rerank", rerank),
    ("POST", "/v1/rerank", rerank),
    ("POST", "/v2/rerank", rerank),
    ("POST", "/v1/responses", create_response),
    ("GET", "/v1/responses/{id}", show_response),
    ("DELETE", "/v1/responses/{id}", delete_response),
    ("POST", "/v1/responses/{id}/cancel", cancel_response),
    ("GET", "/v1/responses/{id}/input_items", list_input_items),
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
    ("POST", "/v1/files", upload_file),
    ("GET", "/v1/files", list_files),
    ("GET", "/v1/files/{file_id}", show_file),
    ("DELETE", "/v1/files/{file_id}", delete_file),
    ("GET", "/v1/files/{file_id}/content", show_file_content),
    ("POST", "/v1/batches", create_batch),
    ("GET", "/v1/batches", list_batches),
    ("GET", "/v1/batches/{batch_id}", show_batch),
    ("POST", "/v1/batches/{batch_id}/cancel", cancel_batch),
    *(("POST", path, refuse_openai) for path in NOT_SERVED_PATHS),
    ("POST", "/invocations", invoke),
    ("POST", "/tokenize", tokenize),
    ("POST", "/detokenize", detokenize),
    ("GET", "/tokenizer_info", tokenizer_info),
    ("POST", "/reset_prefix_cache", reset_prefix_cache),
    ("GET", "/debug/kv", show_kv),
    ("GET", "/v1/capabilities", show_capabilities),
    ("GET", CHAT_PATH, show_chat_page),
    ("GET", DOCS_PATH, show_docs),
    ("GET", OPENAPI_PATH, show_openapi),
    *(("GET", path, show_asset) for path in ASSET_PATHS),
)


def build_app(state: ServerState, *, is_traced: bool = False) -> ASGIApp:
    """The ASGI application of one engine. `is_traced`: it wants to know the traces of callers."""
    config = state.config
    open_paths = OPEN_PATHS | {METRICS_PATH} if config.metrics_public else OPEN_PATHS
    app: ASGIApp = KeyGuard(
        LoadReport(bare_app(state), state, open_paths),
        state.keys,
        state.quotas,
        is_private=config.is_private,
        open_paths=open_paths,
    )
    app = HeaderLimit(app, config.max_header_bytes)
    if config.allowed_origins:
        app = CORSMiddleware(
            app,
            allow_origins=config.allowed_origins,
            allow_methods=config.allowed_methods,
            allow_headers=config.allowed_headers,
            allow_credentials=config.allow_credentials,
        )
    if is_traced:
        app = TraceContext(app)
    paths = frozenset(path for _, path, _ in ROUTES if "{" not in path)
    state.metrics.expect_answers((method, path) for method, path, _ in ROUTES if path in paths)
    app = AnswerCounter(MessageIds(app), state.metrics, paths)
    if config.enable_request_id_headers:
        app = RequestIdHeader(app)
    return ProxyPrefix(app, config.root_path) if config.root_path else app


def bare_app(state: ServerState) -> Starlette:
    """The routes without keys and limits, for callers inside the process."""
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
    app.state.routes = ROUTES
    return app


async def _answer_nobody(request: Request, error: Exception) -> Response:
    """The client has gone; the answer is for the counters only."""
    return Response(status_code=499)
