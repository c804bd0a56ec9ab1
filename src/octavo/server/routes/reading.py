"""How a route that needs the model begins: the server, the body, the name to answer with.

Owns the order in which a request is refused: a body that cannot be read, a server that is not
ready, a model that is not served. Does not know what the fields mean.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from starlette.requests import Request

from octavo.server.bodies import read_json
from octavo.server.routes.health import state_of
from octavo.server.state import ServerState


class NamesModel(Protocol):
    """A body that says which model it is for."""

    @property
    def model(self) -> str | None: ...


B = TypeVar("B", bound=NamesModel)


async def read_request(request: Request, kind: type[B]) -> tuple[ServerState, B, str]:
    """The server, the body, and the model's name as the client knows it.

    Raises what `read_json`, `require_ready` and `require_model` raise, in this order.
    """
    state = state_of(request)
    body = await read_json(request, kind, state.config.max_body_bytes)
    state.require_ready()
    return state, body, state.require_model(body.model)
