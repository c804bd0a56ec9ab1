"""POST /api/embed and /api/embeddings: Ollama's two ways to ask for vectors."""

from __future__ import annotations

import time
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.outputs import PoolingRequestOutput
from octavo.pooling_params import PoolingParams
from octavo.server.bodies import json_response, read_json
from octavo.server.described import BODY_ERRORS, ENGINE_ERRORS, MODEL_ERRORS, described
from octavo.server.dialects.ollama import served_name
from octavo.server.routes.health import state_of
from octavo.server.schemas.ollama import (
    OllamaEmbedAnswer,
    OllamaEmbeddingsAnswer,
    OllamaEmbeddingsRequest,
    OllamaEmbedRequest,
)
from octavo.server.schemas.pooling import EmbeddingRequest
from octavo.server.state import new_id
from octavo.server.vectors import VectorRequest, token_prompts, usage_of


@described(
    body=OllamaEmbedRequest,
    answer=OllamaEmbedAnswer,
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def ollama_embed(request: Request) -> Response:
    """A vector of unit length for each input."""
    state = state_of(request)
    start = time.monotonic_ns()
    body = await read_json(
        request, OllamaEmbedRequest, state.config.max_body_bytes, takes_form_type=True
    )
    state.require_ready()
    model = served_name(state, body.model)
    texts = [body.input] if isinstance(body.input, str) else body.input
    params = PoolingParams(dimensions=body.dimensions, use_activation=True, task="embed")
    outputs = []
    if texts:  # without any it is a question whether the model is there
        cuts = body.truncate is not False
        outputs = await _outputs(request, texts, params, cuts=cuts, timeout=body.timeout)
    return json_response(
        OllamaEmbedAnswer(
            model=model,
            embeddings=[_vector(output) for output in outputs],
            total_duration=time.monotonic_ns() - start,
            prompt_eval_count=usage_of(outputs).prompt_tokens,
        )
    )


@described(
    body=OllamaEmbeddingsRequest,
    answer=OllamaEmbeddingsAnswer,
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def ollama_embeddings(request: Request) -> Response:
    """The older way: one vector, as the model gives it."""
    state = state_of(request)
    body = await read_json(
        request, OllamaEmbeddingsRequest, state.config.max_body_bytes, takes_form_type=True
    )
    state.require_ready()
    served_name(state, body.model)
    if not body.prompt:
        return json_response(OllamaEmbeddingsAnswer(embedding=[]))
    params = PoolingParams(task="embed")
    outputs = await _outputs(request, [body.prompt], params, cuts=True, timeout=body.timeout)
    return json_response(OllamaEmbeddingsAnswer(embedding=_vector(outputs[0])))


async def _outputs(
    request: Request,
    texts: list[str],
    params: PoolingParams,
    *,
    cuts: bool,
    timeout: float | None,
) -> list[PoolingRequestOutput]:
    state = state_of(request)
    if not all(texts):
        raise InvalidRequestError("input must not hold an empty text", param="input")
    wanted = EmbeddingRequest(input=list(texts), truncate_prompt_tokens=-1 if cuts else None)
    prompts = await token_prompts(state, wanted)
    answer_id = new_id("ollama", None)
    vectors = VectorRequest(state, answer_id, prompts, params, timeout=timeout)
    return await vectors.outputs(request)


def _vector(output: PoolingRequestOutput) -> list[float]:
    return cast(list[float], output.outputs.data)
