"""OpenAI's paths that a text engine cannot serve: a clear no for each, never a bare 404."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.described import described
from octavo.server.errors import ResourceNotFoundError
from octavo.server.paths import path_of

_IMAGES = "images are neither made nor changed here; this server generates text"
_AUDIO = "sound is neither made nor understood here; this server generates text"
NOT_SERVED_PATHS = {
    "/v1/moderations": "there is no moderation model here; ask the served model in a chat, "
    "or run a classifier beside this server",
    "/v1/images/generations": _IMAGES,
    "/v1/images/edits": _IMAGES,
    "/v1/images/variations": _IMAGES,
    "/v1/audio/speech": _AUDIO,
    "/v1/audio/transcriptions": _AUDIO,
    "/v1/audio/translations": _AUDIO,
}


@described(succeeds=False, errors=(404,))
async def refuse_openai(request: Request) -> Response:
    """Say why this path of OpenAI's is not served."""
    path = path_of(request.scope)
    raise ResourceNotFoundError(f"{path} is not served: {NOT_SERVED_PATHS[path]}")
