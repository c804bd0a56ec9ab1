"""/v1/models: the model under each of its names."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.bodies import json_response
from octavo.server.described import described
from octavo.server.routes.health import state_of
from octavo.server.schemas.envelope import ModelCard, ModelList
from octavo.server.state import ServerState


@described(answer=ModelList)
async def list_models(request: Request) -> Response:
    """Every served name."""
    state = state_of(request)
    return json_response(ModelList(data=[_card(state, name) for name in state.names]))


@described(answer=ModelCard, errors=(404,))
async def show_model(request: Request) -> Response:
    """One name; 404 for any other."""
    state = state_of(request)
    name = state.require_model(request.path_params["name"])
    return json_response(_card(state, name))


def _card(state: ServerState, name: str) -> ModelCard:
    length = state.loaded.max_model_len if state.is_ready else None
    return ModelCard(id=name, created=state.created, root=state.model_name, max_model_len=length)
