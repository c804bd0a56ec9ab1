"""POST /v1/embeddings, /pooling and /classify."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.outputs import PoolingRequestOutput
from octavo.pooling_params import PoolingParams, PoolingTask
from octavo.server.bodies import json_response, response_of_pieces
from octavo.server.described import BODY_ERRORS, ENGINE_ERRORS, MODEL_ERRORS, described
from octavo.server.routes.reading import read_request
from octavo.server.schemas.pooling import (
    Classified,
    ClassifyAnswer,
    ClassifyRequest,
    EmbeddingAnswer,
    EmbeddingRequest,
    InputFields,
    PoolingRequest,
    VectorAnswer,
    check_fields,
)
from octavo.server.state import ServerState, new_id
from octavo.server.vector_forms import VectorForm
from octavo.server.vectors import VectorRequest, token_prompts, usage_of


@described(
    body=EmbeddingRequest,
    required=("input",),
    examples={"texts": {"input": ["a text", "another"]}},
    answer=EmbeddingAnswer,
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def create_embedding(request: Request) -> Response:
    """A vector of each input."""
    state, body, model = await read_request(request, EmbeddingRequest)
    form = VectorForm.of(body)
    params = PoolingParams(
        dimensions=body.dimensions, use_activation=body.use_activation, task="embed"
    )
    answer_id = new_id("embd", body.request_id)
    outputs = await _outputs(request, state, body, answer_id, params)

    def answer() -> Response:
        if form.is_bytes:
            return _bytes_answer(form, answer_id, model, outputs)
        return _vectors_answer(form, ("embedding", "embedding"), answer_id, model, outputs)

    return await asyncio.to_thread(answer)  # a million numbers take half a second


@described(
    body=PoolingRequest,
    required=("input",),
    examples={"texts": {"input": ["a text", "another"]}},
    answer=VectorAnswer,
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def create_pooling(request: Request) -> Response:
    """Whatever the model makes of each input, or of each of its tokens."""
    state, body, model = await read_request(request, PoolingRequest)
    if body.task == "plugin":
        message = "No IOProcessor plugin installed. Octavo has none; leave task out"
        raise InvalidRequestError(message, param="task")
    form = VectorForm.of(body)
    params = PoolingParams(
        dimensions=body.dimensions,
        use_activation=body.use_activation,
        task=cast("PoolingTask | None", body.task),
    )
    answer_id = new_id("pool", body.request_id)
    outputs = await _outputs(request, state, body, answer_id, params)

    def answer() -> Response:
        if form.is_bytes:
            return _bytes_answer(form, answer_id, model, outputs)
        return _vectors_answer(form, ("data", "pooling"), answer_id, model, outputs)

    return await asyncio.to_thread(answer)


@described(
    body=ClassifyRequest,
    required=("input",),
    examples={"texts": {"input": ["a text", "another"]}},
    answer=ClassifyAnswer,
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def classify(request: Request) -> Response:
    """A number for each label of the model, for each input."""
    state, body, model = await read_request(request, ClassifyRequest)
    params = PoolingParams(use_activation=body.use_activation, task="classify")
    answer_id = new_id("classify", body.request_id)
    outputs = await _outputs(request, state, body, answer_id, params)
    pooling = state.loaded.facts.pooling
    assert pooling is not None, "the engine has classified"
    data = []
    for index, output in enumerate(outputs):
        probs = cast(list[float], output.outputs.data)
        label = pooling.labels[probs.index(max(probs))]
        data.append(Classified(index=index, label=label, probs=probs, num_classes=len(probs)))
    return json_response(ClassifyAnswer(**_head(answer_id, model, outputs), data=data))


async def _outputs(
    request: Request,
    state: ServerState,
    body: InputFields,
    answer_id: str,
    params: PoolingParams,
) -> list[PoolingRequestOutput]:
    check_fields(body)
    prompts = await token_prompts(state, body)
    wanted = VectorRequest(
        state, answer_id, prompts, params, priority=body.priority or 0, timeout=body.timeout
    )
    return await wanted.outputs(request)


def _vectors_answer(
    form: VectorForm,
    names: tuple[str, str],
    answer_id: str,
    model: str,
    outputs: list[PoolingRequestOutput],
) -> Response:
    """An `EmbeddingAnswer` or a `VectorAnswer`, in pieces: a prompt's tokens take megabytes.

    `names`: of the field that holds the vectors, and of the kind of an entry.
    """
    head = _head(answer_id, model, outputs) | {"object": "list"}
    pieces = [msgspec.json.encode(head)[:-1], b',"data":[']
    field, kind = (name.encode() for name in names)
    for index, output in enumerate(outputs):
        pieces += [
            b'%b{"index":%d,"%b":' % (b"," if index else b"", index, field),
            *form.written_all(output.outputs.data),
            b',"object":"%b"}' % kind,
        ]
    pieces.append(b"]}")
    return response_of_pieces(pieces)


def _head(answer_id: str, model: str, outputs: list[PoolingRequestOutput]) -> dict[str, Any]:
    return {
        "id": answer_id,
        "created": int(time.time()),
        "model": model,
        "usage": usage_of(outputs),
    }


def _bytes_answer(
    form: VectorForm, answer_id: str, model: str, outputs: list[PoolingRequestOutput]
) -> Response:
    head = _head(answer_id, model, outputs)
    return form.answer([output.outputs.data for output in outputs], head)
