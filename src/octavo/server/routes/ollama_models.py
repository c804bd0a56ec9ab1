"""What Ollama's API tells of models: /api/tags, /api/ps, /api/show, /api/version, and HEAD /."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.server.bodies import json_response, read_json
from octavo.server.described import BODY_ERRORS, MODEL_ERRORS, READY_ERRORS, described
from octavo.server.dialects.ollama import TAG, served_name
from octavo.server.dialects.ollama_answer import time_text
from octavo.server.routes.health import state_of
from octavo.server.schemas.ollama import (
    OllamaDetails,
    OllamaModel,
    OllamaRunningModel,
    OllamaShowRequest,
)
from octavo.server.schemas.ollama_answer import (
    OllamaModels,
    OllamaModelShown,
    OllamaRunningModels,
)
from octavo.server.schemas.probes import VersionAnswer
from octavo.server.state import ServerState
from octavo.version import version

NEVER = "9999-12-31T23:59:59Z"


@described()
async def is_alive(request: Request) -> Response:
    """HEAD /: clients of Ollama ask it before anything else."""
    return Response()


@described(answer=VersionAnswer)
async def ollama_version(request: Request) -> Response:
    """The version of Octavo."""
    return json_response({"version": version()})


@described(answer=OllamaModels, errors=READY_ERRORS)
async def list_tags(request: Request) -> Response:
    """Every served name."""
    state = state_of(request)
    state.require_ready()
    return json_response({"models": [OllamaModel(**_facts(state, name)) for name in state.names]})


@described(answer=OllamaRunningModels, errors=READY_ERRORS)
async def list_running(request: Request) -> Response:
    """The same: what is served is loaded."""
    state = state_of(request)
    state.require_ready()
    length = state.loaded.max_model_len
    running = [
        OllamaRunningModel(**_facts(state, name), expires_at=NEVER, context_length=length)
        for name in state.names
    ]
    return json_response({"models": running})


@described(body=OllamaShowRequest, answer=OllamaModelShown, errors=(*BODY_ERRORS, *MODEL_ERRORS))
async def show_ollama_model(request: Request) -> Response:
    """Template, sampling defaults, shape and abilities of the model."""
    state = state_of(request)
    body = await read_json(
        request, OllamaShowRequest, state.config.max_body_bytes, takes_form_type=True
    )
    state.require_ready()
    name = body.model or body.name
    if name is None:
        raise InvalidRequestError("model is missing", param="model")
    served_name(state, name)
    facts, family = state.loaded.facts, _family(state)
    return json_response(
        {
            "modelfile": "",
            "parameters": "\n".join(f"{key} {value}" for key, value in state.defaults.items()),
            "template": state.chat_template().source or "",
            "details": _details(state),
            "model_info": {
                "general.architecture": family,
                f"{family}.context_length": state.loaded.max_model_len,
                f"{family}.embedding_length": facts.hidden_size,
                f"{family}.block_count": facts.num_layers,
                f"{family}.attention.head_count": facts.num_heads,
                f"{family}.attention.head_count_kv": facts.num_kv_heads,
            },
            "capabilities": _capabilities(state),
            "modified_at": _loaded_at(state),
        }
    )


def _facts(state: ServerState, name: str) -> dict[str, Any]:
    tagged = name if ":" in name else name + TAG
    return {
        "name": tagged,
        "model": tagged,
        "modified_at": _loaded_at(state),
        "size": state.loaded.memory_plan.weights_bytes,
        "digest": hashlib.sha256(state.model_name.encode()).hexdigest(),
        "details": _details(state),
    }


def _details(state: ServerState) -> OllamaDetails:
    family = _family(state)
    return OllamaDetails(family=family, families=[family])


def _family(state: ServerState) -> str:
    """`LlamaForCausalLM` is of the family llama."""
    return state.loaded.facts.architecture.removesuffix("ForCausalLM").lower()


def _loaded_at(state: ServerState) -> str:
    return time_text(datetime.fromtimestamp(state.created, UTC))


def _capabilities(state: ServerState) -> list[str]:
    if state.loaded.facts.pooling is not None:
        return ["embedding"]
    found = ["completion"]
    if state.format.dialect is not None:
        found.append("tools")
    if state.format.style is not None:
        found.append("thinking")
    return found
