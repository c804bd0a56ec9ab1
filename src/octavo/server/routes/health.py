"""Probes: is the process alive, is the model ready, which version, what do the metrics say."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import EngineDeadError
from octavo.server.bodies import json_response
from octavo.server.described import described
from octavo.server.schemas.probes import LoadAnswer, ReadyAnswer, VersionAnswer
from octavo.server.state import ServerState
from octavo.version import version


def state_of(request: Request) -> ServerState:
    """The server behind a request."""
    state = request.app.state.server
    assert isinstance(state, ServerState)
    return state


@described(also={503: None})
async def health(request: Request) -> Response:
    """200 when requests can be served; 503 while loading and when the engine has ended."""
    state = state_of(request)
    if not state.is_ready:
        return Response(status_code=503)
    try:
        await state.engine.check_health()
    except EngineDeadError:
        return Response(status_code=503)
    return Response()


@described(answer=ReadyAnswer, also={503: ReadyAnswer})
async def ready(request: Request) -> Response:
    """200 when new requests are taken, else 503 with the reason and the progress of loading."""
    state = state_of(request)
    if state.engine.errored:
        body: dict[str, object] = {"status": "dead"}
    elif state.is_draining:
        body = {"status": "draining", "open_answers": state.open_answers.count}
    elif not state.is_ready:
        now = state.engine.load_progress
        body = {"status": "loading", "phase": now.phase, "progress": round(now.share, 3)}
    else:
        return json_response({"status": "ready"})
    response = json_response(body, headers={"Retry-After": "1"})
    response.status_code = 503
    return response


@described(answer=LoadAnswer)
async def show_load(request: Request) -> Response:
    """How many answers are being made, for load balancers."""
    return json_response(LoadAnswer(server_load=state_of(request).open_answers.count))


@described(answer=VersionAnswer)
async def show_version(request: Request) -> Response:
    """The version of Octavo."""
    return json_response({"version": version()})


@described(text=("text/plain",))
async def metrics(request: Request) -> Response:
    """Prometheus text."""
    state = state_of(request)
    if state.is_ready and not state.engine.errored:
        loaded = state.loaded
        text = state.metrics.render(
            await state.engine.stats(), loaded.memory_plan, loaded.config.cache
        )
    else:
        text = state.metrics.render(None, None)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
