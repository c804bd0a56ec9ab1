"""What operators ask: the blocks as they are, and an empty prefix cache."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.server.bodies import json_response
from octavo.server.described import READY_ERRORS, Query, described
from octavo.server.errors import error_body
from octavo.server.routes.health import state_of

_RESET_FLAGS = ("reset_external", "reset_running_requests")
_ON, _OFF = ("1", "true", "on", "yes"), ("0", "false", "off", "no")


@described(answer=dict[str, Any], errors=READY_ERRORS)
async def show_kv(request: Request) -> Response:
    """Requests and blocks, read between two steps."""
    state = state_of(request)
    state.require_ready()
    return json_response(await state.engine.debug_view())


@described(
    query=(
        Query(name="reset_external", description="Forget the blocks on disk too.", kind="boolean"),
        Query(name="reset_running_requests", description="Refused where true.", kind="boolean"),
    ),
    errors=(400, 409, *READY_ERRORS),
)
async def reset_prefix_cache(request: Request) -> Response:
    """Forget all cached blocks; with `reset_external` those in --kv-offload-dir too.

    409, and nothing has changed, while any request holds blocks.
    """
    state = state_of(request)
    state.require_ready()
    for name in request.query_params:
        if name not in _RESET_FLAGS:
            message = (
                f"{name[:40]!r} is no parameter of this path; it has {', '.join(_RESET_FLAGS)}"
            )
            raise InvalidRequestError(message, param=name[:40])
    if _flag(request, "reset_running_requests"):
        raise InvalidRequestError(
            "reset_running_requests is not supported; wait until no request runs",
            param="reset_running_requests",
        )
    reset_external = _flag(request, "reset_external")
    if await state.engine.reset_prefix_cache(reset_external=reset_external):
        return Response()
    response = json_response(
        error_body(409, "the prefix cache is in use by running requests; try again later")
    )
    response.status_code = 409
    return response


def _flag(request: Request, name: str) -> bool:
    """A query parameter. Raises InvalidRequestError for what is neither yes nor no."""
    text = request.query_params.get(name, "false").lower()
    if text not in (*_ON, *_OFF):
        raise InvalidRequestError(f"{name} must be true or false, got {text[:40]!r}", param=name)
    return text in _ON
