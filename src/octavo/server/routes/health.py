"""Probes: is the process alive, is the model ready, which version, what do the metrics say."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.bodies import json_response
from octavo.server.state import ServerState
from octavo.version import version


def state_of(request: Request) -> ServerState:
    """The server behind a request."""
    state = request.app.state.server
    assert isinstance(state, ServerState)
    return state


async def health(request: Request) -> Response:
    """200 when requests can be served; 503 while loading and when the engine has ended."""
    engine = state_of(request).engine
    return Response(status_code=200 if engine.is_ready and not engine.errored else 503)


async def ready(request: Request) -> Response:
    """200 when new requests are taken, else 503 with the reason and the progress of loading."""
    state = state_of(request)
    phase, share = state.engine.load_progress
    if state.engine.errored:
        body: dict[str, object] = {"status": "dead"}
    elif state.is_draining:
        body = {"status": "draining", "open_answers": state.open_answers.count}
    elif not state.engine.is_ready:
        body = {"status": "loading", "phase": phase, "progress": round(share, 3)}
    else:
        return json_response({"status": "ready"})
    response = json_response(body, headers={"Retry-After": "1"})
    response.status_code = 503
    return response


async def show_version(request: Request) -> Response:
    """The version of Octavo."""
    return json_response({"version": version()})


async def metrics(request: Request) -> Response:
    """Prometheus text."""
    text = state_of(request).metrics.render()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
