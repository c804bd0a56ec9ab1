"""GET /v1/capabilities: what this server honours, so that no client has to try."""

from __future__ import annotations

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response

from octavo.chat.reasoning.registry import STYLES
from octavo.chat.tools.registry import DIALECTS
from octavo.errors import CorruptFileError
from octavo.sampling_params import STRUCTURED_KINDS
from octavo.server.auth import OPEN_PATHS, scope_of
from octavo.server.bodies import json_response
from octavo.server.described import READY_ERRORS, described
from octavo.server.generation import MAX_CHOICES_PER_REQUEST
from octavo.server.openapi import RouteTable, shown_path
from octavo.server.routes.health import state_of
from octavo.server.schemas.capabilities import (
    Capabilities,
    EndpointShown,
    KeyUse,
    Limits,
    Modalities,
    ModelAbilities,
    ReasoningAbilities,
    StructuredAbilities,
    ToolAbilities,
)
from octavo.server.schemas.chat import EFFORTS
from octavo.server.schemas.completions import MAX_PROMPTS
from octavo.server.schemas.sampling import MAX_BIASES
from octavo.server.schemas.structured import FORMATS
from octavo.server.schemas.tools import MAX_TOOLS
from octavo.server.state import ServerState
from octavo.version import version

ASSETS = "/ui/"  # files of the chat page are no part of the API


@described(answer=Capabilities, errors=READY_ERRORS)
async def show_capabilities(request: Request) -> Response:
    """What this server honours: routes, tools, structured output, limits, the kind of model."""
    state = state_of(request)
    state.require_ready()
    loaded, config = state.loaded, state.config
    return json_response(
        Capabilities(
            version=version(),
            models=[*state.names],
            model=ModelAbilities(
                kind="generate" if loaded.facts.pooling is None else loaded.facts.pooling.task,
                architecture=loaded.facts.architecture,
                max_model_len=loaded.max_model_len,
                vocab_size=loaded.facts.vocab_size,
                has_chat_template=state.chat_template().source is not None,
            ),
            modalities=Modalities(input=["text"], output=["text"]),
            endpoints=_endpoints(request.app.state.routes),
            tools=_tools(state),
            reasoning=_reasoning(state),
            structured_outputs=StructuredAbilities(
                response_formats=[*FORMATS], structured_outputs=[*STRUCTURED_KINDS]
            ),
            limits=_limits(state),
            sampling_defaults=dict(state.defaults),
            auth=KeyUse(is_required=state.keys.asks, schemes=["Bearer", "X-Api-Key"]),
            docs=not config.disable_fastapi_docs,
        )
    )


def _endpoints(routes: RouteTable) -> list[EndpointShown]:
    return [
        EndpointShown(
            method=method,
            path=shown_path(path),
            scope="open" if path in OPEN_PATHS else scope_of(path),
        )
        for method, path, _ in routes
        if not path.startswith(ASSETS)
    ]


def _tools(state: ServerState) -> ToolAbilities:
    parser = state.format.dialect_name
    choices = ["none", "required", "named"]
    if parser is not None and state.config.enable_auto_tool_choice:
        choices.append("auto")
    return ToolAbilities(parser=parser, choices=choices, parsers=sorted(DIALECTS))


def _reasoning(state: ServerState) -> ReasoningAbilities:
    style, efforts = state.format.style, _efforts(state)
    has_budget = style is not None and state.tokenizer.id_of(style.end) is not None
    return ReasoningAbilities(
        parser=state.format.style_name,
        efforts=efforts,
        parsers=sorted(STYLES),
        has_budget=has_budget,
    )


def _efforts(state: ServerState) -> list[str]:
    template = state.chat_template()
    with suppress(CorruptFileError):  # whoever chats is told
        if template.uses("reasoning_effort"):
            return [*EFFORTS]
        if template.uses("enable_thinking"):
            return ["none"]
    return []


def _limits(state: ServerState) -> Limits:
    loaded, config = state.loaded, state.config
    return Limits(
        max_model_len=loaded.max_model_len,
        max_num_seqs=loaded.config.scheduler.max_num_seqs,
        max_queued_requests=config.max_queued_requests,
        max_body_bytes=config.max_body_bytes,
        max_messages=config.max_messages,
        max_prompts=MAX_PROMPTS,
        max_choices=MAX_CHOICES_PER_REQUEST,
        max_logprobs=loaded.intake.limits.max_logprobs,
        max_tools=MAX_TOOLS,
        max_logit_biases=MAX_BIASES,
    )
