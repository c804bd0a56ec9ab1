"""POST /api/chat and /api/generate: Ollama's API."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from octavo.errors import InvalidRequestError
from octavo.prompts import TokensPrompt
from octavo.server.bodies import json_response, read_json
from octavo.server.chat_choices import ChatChoices
from octavo.server.chat_format import ChatFormat, answer_format
from octavo.server.chat_run import ChatRun, chat_params, chat_token_ids, prepare_chat
from octavo.server.dialects.ollama import (
    GENERATE_NAMES,
    NAMES,
    chat_of,
    is_load,
    prompt_chat_of,
    served_name,
)
from octavo.server.dialects.ollama_answer import LINES, OllamaAnswer, loaded_answer
from octavo.server.field_names import errors_name
from octavo.server.generation import Generation
from octavo.server.routes.health import state_of
from octavo.server.schemas.chat import ChatCompletionRequest, check_chat
from octavo.server.schemas.ollama import OllamaChatRequest, OllamaFields, OllamaGenerateRequest
from octavo.server.serving import respond, tenant_of
from octavo.server.state import ServerState, new_id

# What Ollama does to its store of models, and this server does not.
REFUSED = {
    "/api/pull": "no model can be fetched through the API; use 'octavo pull NAME' and restart",
    "/api/push": "no model can be pushed from here",
    "/api/create": "no model can be made here; start the server with the model",
    "/api/copy": "no model can be copied here; give it several --served-model-name",
    "/api/delete": "no model can be deleted through the API",
    "/api/embed": "the model that is served makes no embeddings",
    "/api/embeddings": "the model that is served makes no embeddings",
}
