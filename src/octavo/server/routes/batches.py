"""/v1/batches: many requests of one file, computed when there is room."""

from __future__ import annotations

import os
import time

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.server.batches.batch_store import BatchRecord
from octavo.server.bodies import json_response, read_json
from octavo.server.described import BODY_ERRORS, Query, described
from octavo.server.routes.files import PURPOSE, page_limit, service_of
from octavo.server.routes.health import state_of
from octavo.server.schemas.batches import (
    BatchList,
    BatchObject,
    BatchRequest,
    batch_object,
    check_metadata,
    life_s,
    window_s,
)
from octavo.server.serving import tenant_of

MOST_BATCHES = 100


@described(body=BatchRequest, answer=BatchObject, errors=(*BODY_ERRORS, 404, 429))
async def create_batch(request: Request) -> Response:
    """Compute the lines of a file; it is validated first."""
    service, tenant = service_of(request), tenant_of(request)
    body = await read_json(request, BatchRequest, state_of(request).config.max_body_bytes)
    if body.endpoint not in service.endpoints:
        message = f"endpoint must be one of {', '.join(service.endpoints)}"
        raise InvalidRequestError(message, param="endpoint")
    check_metadata(body.metadata)
    now_s, lasts_s = int(time.time()), window_s(body.completion_window)
    lives_s = life_s(body.output_expires_after, "output_expires_after")
    file = await service.files.get(body.input_file_id, tenant, "input_file_id")
    if file.purpose != PURPOSE:
        message = f"input_file_id must be a file of the purpose {PURPOSE!r}"
        raise InvalidRequestError(message, param="input_file_id")
    record = BatchRecord(
        id="batch_" + os.urandom(12).hex(),
        tenant=tenant,
        endpoint=body.endpoint,
        input_file_id=file.id,
        completion_window=body.completion_window,
        created_at=now_s,
        expires_at=now_s + lasts_s,
        metadata=body.metadata,
        output_expires_after_s=lives_s,
    )
    await service.batches.create(record)
    service.runner.wake()
    return json_response(batch_object(record))


@described(
    answer=BatchList,
    errors=(400, 404),
    query=(
        Query(name="limit", description="Most batches of a page, 1 to 100.", kind="integer"),
        Query(name="after", description="The batch after which the page begins."),
    ),
)
async def list_batches(request: Request) -> Response:
    """The batches of the caller, the newest first."""
    found, has_more = await service_of(request).batches.page(
        tenant_of(request),
        after=request.query_params.get("after"),
        limit=page_limit(request, default=20, most=MOST_BATCHES),
    )
    return json_response(
        BatchList(
            data=[batch_object(record) for record in found],
            has_more=has_more,
            first_id=found[0].id if found else None,
            last_id=found[-1].id if found else None,
        )
    )


@described(answer=BatchObject, errors=(400, 404))
async def show_batch(request: Request) -> Response:
    """One batch: its status, its counts, the files that it made."""
    batches = service_of(request).batches
    record = await batches.get(request.path_params["batch_id"], tenant_of(request))
    return json_response(batch_object(record))


@described(answer=BatchObject, errors=(400, 404, 409))
async def cancel_batch(request: Request) -> Response:
    """End a batch; what has been computed is in its files afterwards."""
    service = service_of(request)
    batch_id = request.path_params["batch_id"]
    record = await service.batches.cancel(batch_id, tenant_of(request), int(time.time()))
    if record.status == "cancelling":
        service.runner.drop(record.id)
    return json_response(batch_object(record))
