"""POST /v1/embeddings, /pooling and /classify."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.outputs import PoolingRequestOutput
from octavo.pooling_params import PoolingParams, PoolingTask
from octavo.server.bodies import json_response
from octavo.server.described import BODY_ERRORS, ENGINE_ERRORS, MODEL_ERRORS, described
from octavo.server.routes.reading import read_request
from octavo.server.schemas.pooling import (
    Classified,
    ClassifyAnswer,
    ClassifyRequest,
    Embedding,
    EmbeddingAnswer,
    EmbeddingRequest,
    InputFields,
    Pooled,
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
        data = [
            Embedding(index=index, embedding=form.shown(cast(list[float], output.outputs.data)))
            for index, output in enumerate(outputs)
        ]
        return _answer(EmbeddingAnswer, answer_id, model, data, outputs)

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
        data = [_pooled(form, index, output) for index, output in enumerate(outputs)]
        return _answer(VectorAnswer, answer_id, model, data, outputs)

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
    return _answer(ClassifyAnswer, answer_id, model, data, outputs)


def _pooled(form: VectorForm, index: int, output: PoolingRequestOutput) -> Pooled:
    made = output.outputs.data
    one: Any
    if made and isinstance(made[0], list):
        one = [form.shown(vector) for vector in made]
    else:
        one = form.shown(cast(list[float], made))
    return Pooled(index=index, data=one)


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


def _answer(
    kind: Callable[..., EmbeddingAnswer | VectorAnswer | ClassifyAnswer],
    answer_id: str,
    model: str,
    data: list[Embedding] | list[Pooled] | list[Classified],
    outputs: list[PoolingRequestOutput],
) -> Response:
    usage = usage_of(outputs)
    return json_response(
        kind(id=answer_id, created=int(time.time()), model=model, data=data, usage=usage)
    )


def _bytes_answer(
    form: VectorForm, answer_id: str, model: str, outputs: list[PoolingRequestOutput]
) -> Response:
    head = {
        "id": answer_id,
        "created": int(time.time()),
        "model": model,
        "usage": usage_of(outputs),
    }
    return form.answer([output.outputs.data for output in outputs], head)
