"""The chat page at /, its files, and the API reference: /docs and /openapi.json."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from octavo.server.described import described
from octavo.server.openapi import RouteTable, openapi_document
from octavo.server.pages import SAFE_HEADERS, page_file
from octavo.server.paths import path_of
from octavo.server.routes.health import state_of

OLLAMA_GREETING = "Ollama is running"  # what clients of Ollama look for
NO_PAGE = "Octavo is running; its chat page is turned off (--no-ui)"


@described(text=("text/html", "text/plain"))
async def show_chat_page(request: Request) -> Response:
    """The chat page for browsers; for others the greeting that clients of Ollama look for."""
    if "text/html" not in request.headers.get("accept", ""):
        return PlainTextResponse(OLLAMA_GREETING, headers={"Vary": "Accept"})
    if not state_of(request).config.ui:
        return PlainTextResponse(NO_PAGE, headers={"Vary": "Accept"})
    return _sent(request, "index.html", {"Vary": "Accept"})


@described(text=("text/html",), errors=(404,))
async def show_docs(request: Request) -> Response:
    """The API reference as a page, which works without any other host."""
    _require_docs(request)
    return _sent(request, "docs.html")


@described(is_shown=False)
async def show_asset(request: Request) -> Response:
    """A file of the pages."""
    config = state_of(request).config
    if not config.ui and config.disable_fastapi_docs:
        raise HTTPException(404)
    return _sent(request, path_of(request.scope).rpartition("/")[2])


@described(answer=dict[str, Any], errors=(404,))
async def show_openapi(request: Request) -> Response:
    """This API as an OpenAPI 3.1 document."""
    _require_docs(request)
    content = await asyncio.to_thread(
        _encoded, request.app.state.routes, request.scope.get("root_path", "")
    )
    return Response(content, media_type="application/json", headers={"Cache-Control": "no-cache"})


@functools.lru_cache(maxsize=4)
def _encoded(routes: RouteTable, root_path: str) -> bytes:
    return msgspec.json.encode(openapi_document(routes, root_path=root_path))


def _require_docs(request: Request) -> None:
    if state_of(request).config.disable_fastapi_docs:
        raise HTTPException(404)


def _sent(request: Request, name: str, headers: dict[str, str] | None = None) -> Response:
    """A file, or word that the browser has it already."""
    file = page_file(name)
    headers = SAFE_HEADERS | (headers or {}) | {"ETag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.media_type)
