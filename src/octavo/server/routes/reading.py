"""How a route that needs the model begins: the server, the body, the name to answer with.

Owns the order in which a request is refused: a body that cannot be read, a server that is not
ready, a model that is not served. Also which headers stand for fields. Does not know what the
fields mean.
"""

from __future__ import annotations

import re
from typing import Protocol, TypeVar

from starlette.requests import Request

from octavo.errors import InvalidRequestError
from octavo.foundation.field_faults import LONGEST_NAME
from octavo.server.bodies import read_json
from octavo.server.routes.health import state_of
from octavo.server.schemas.pooling import PoolingFields
from octavo.server.schemas.responses import ResponseRequest
from octavo.server.schemas.sampling import SamplingFields
from octavo.server.state import ServerState

REQUEST_ID, PRIORITY = "X-Request-Id", "X-Vllm-Priority"


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
    take_headers(request, body)
    state.require_ready()
    return state, body, state.require_model(body.model)


def take_headers(request: Request, body: object) -> None:
    """vLLM's headers that stand for fields go before them, for proxies that set them.

    `X-Request-Id` names the request, `X-Vllm-Priority` is its priority, where a body has these
    fields. Raises InvalidRequestError.
    """
    if isinstance(body, SamplingFields | PoolingFields):
        body.request_id = request.headers.get(REQUEST_ID) or body.request_id
    given = request.headers.get(PRIORITY)
    if given is None or not isinstance(body, SamplingFields | PoolingFields | ResponseRequest):
        return
    if not re.fullmatch(r"-?[0-9]{1,19}", given):
        shown = repr(given[:LONGEST_NAME])
        rule = f"the header {PRIORITY} must be a whole number, got {shown}"
        message = f"{rule}; correct it, or leave it out"
        raise InvalidRequestError(message, param="priority")
    body.priority = int(given)
