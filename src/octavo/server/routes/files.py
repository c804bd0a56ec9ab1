"""/v1/files: what batches read and write. Each caller sees its own."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from octavo.errors import InvalidRequestError
from octavo.server.batches.file_store import CHUNK_BYTES, FileRecord, FileStore
from octavo.server.batches.service import BatchService
from octavo.server.bodies import check_uncompressed, json_response, located
from octavo.server.described import Query, described
from octavo.server.errors import PayloadTooLargeError, ResourceNotFoundError
from octavo.server.multipart import Part, boundary_of, parts_of
from octavo.server.routes.health import state_of
from octavo.server.schemas.batches import (
    DeletedFile,
    ExpiresAfter,
    FileList,
    FileObject,
    file_object,
    life_s,
)
from octavo.server.serving import tenant_of

PURPOSE = "batch"
MAX_FIELD_BYTES = 4096
LONGEST_FILENAME = 255
MOST_FILES = 10_000
_ROOM_FOR_FIELDS = 64 * 2**10
_EXPIRY = "expires_after"
_ERRORS = (400, 404)


def service_of(request: Request) -> BatchService:
    """Files and batches of the server. Raises ResourceNotFoundError where there are none."""
    service = state_of(request).batches
    if service is None:
        raise ResourceNotFoundError(
            "this server keeps no files and batches; start it with --batch-store PATH"
        )
    return service


@described(answer=FileObject, errors=(*_ERRORS, 413, 415))
async def upload_file(request: Request) -> Response:
    """Keep a file: multipart/form-data with `purpose` (batch) and `file`."""
    service = service_of(request)
    limit = state_of(request).config.max_file_bytes
    check_uncompressed(request)
    boundary = boundary_of(request.headers.get("content-type", ""))
    stream = _bounded(request, limit + _ROOM_FOR_FIELDS)
    upload = _Upload(service.files, tenant_of(request), limit)
    try:
        async with aclosing(parts_of(stream, boundary)) as parts:  # type: ignore[type-var]
            async for part in parts:
                await upload.take(part)
        record = await upload.finish()
    except BaseException:
        await upload.drop()
        raise
    return json_response(file_object(record))


@described(
    answer=FileList,
    errors=_ERRORS,
    query=(
        Query(name="purpose", description="Only files of this purpose."),
        Query(name="limit", description="Most files of a page, 1 to 10000.", kind="integer"),
        Query(name="after", description="The file after which the page begins."),
        Query(name="order", description="asc or desc (the newest first)."),
    ),
)
async def list_files(request: Request) -> Response:
    """The files of the caller, a page at a time."""
    files = service_of(request).files
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequestError("order must be asc or desc", param="order")
    found, has_more = await files.page(
        tenant_of(request),
        purpose=request.query_params.get("purpose"),
        after=request.query_params.get("after"),
        limit=page_limit(request, default=MOST_FILES, most=MOST_FILES),
        newest_first=order == "desc",
    )
    return json_response(
        FileList(
            data=[file_object(record) for record in found],
            has_more=has_more,
            first_id=found[0].id if found else None,
            last_id=found[-1].id if found else None,
        )
    )


@described(answer=FileObject, errors=_ERRORS)
async def show_file(request: Request) -> Response:
    """One file, without its content."""
    files, file_id = service_of(request).files, request.path_params["file_id"]
    return json_response(file_object(await files.get(file_id, tenant_of(request))))


@described(text=("application/octet-stream",), errors=_ERRORS)
async def show_file_content(request: Request) -> Response:
    """The bytes of a file."""
    files, file_id = service_of(request).files, request.path_params["file_id"]
    record = await files.get(file_id, tenant_of(request))
    return StreamingResponse(
        files.pieces(record.id),
        headers={"content-length": str(record.num_bytes), "x-content-type-options": "nosniff"},
        media_type="application/octet-stream",
    )


@described(answer=DeletedFile, errors=(*_ERRORS, 409))
async def delete_file(request: Request) -> Response:
    """Forget a file, unless a batch reads it."""
    files, file_id = service_of(request).files, request.path_params["file_id"]
    await files.delete(file_id, tenant_of(request))
    return json_response(DeletedFile(id=file_id))


def page_limit(request: Request, *, default: int, most: int) -> int:
    """The query's `limit`. Raises InvalidRequestError."""
    text = request.query_params.get("limit", str(default))
    if not (text.isascii() and text.isdigit() and len(text) < 8 and 1 <= int(text) <= most):
        raise InvalidRequestError(f"limit must be between 1 and {most}", param="limit")
    return int(text)


class _Upload:
    """One form as it comes in."""

    def __init__(self, files: FileStore, tenant: str, limit: int) -> None:
        self._files, self._tenant, self._limit = files, tenant, limit
        self._fields: dict[str, str] = {}
        self._file_id: str | None = None
        self._filename = ""
        self._now_s = int(time.time())

    async def take(self, part: Part) -> None:
        """A field is kept here, the file in the store."""
        if part.filename is None:
            self._fields[part.name] = await _field(part)
            return
        if part.name != "file" or self._file_id is not None:
            raise InvalidRequestError("the form must hold one file, called file", param="file")
        self._filename = part.filename[:LONGEST_FILENAME]
        self._file_id = await self._files.begin(self._tenant, self._now_s)
        buffer, number = bytearray(), 0
        async for data in part.data:
            buffer += data
            if number * CHUNK_BYTES + len(buffer) > self._limit:
                message = f"a file may have at most {self._limit} bytes (--max-file-bytes)"
                raise PayloadTooLargeError(message, param="file")
            while len(buffer) >= CHUNK_BYTES:
                await self._files.append(self._file_id, number, bytes(buffer[:CHUNK_BYTES]))
                del buffer[:CHUNK_BYTES]
                number += 1
        if buffer:
            await self._files.append(self._file_id, number, bytes(buffer))

    async def finish(self) -> FileRecord:
        """The whole file, if the form is right."""
        purpose = self._fields.get("purpose")
        if purpose != PURPOSE:
            message = f"purpose must be {PURPOSE!r}: files are for batches here"
            raise InvalidRequestError(message, param="purpose")
        if self._file_id is None:
            raise InvalidRequestError("file is missing", param="file")
        lives_s = life_s(_expiry(self._fields), _EXPIRY)
        return await self._files.finish(
            self._file_id,
            filename=self._filename,
            purpose=purpose,
            expires_at=None if lives_s is None else self._now_s + lives_s,
        )

    async def drop(self) -> None:
        """Nothing of it stays."""
        if self._file_id is not None:
            await self._files.drop(self._file_id)


async def _field(part: Part) -> str:
    data = bytearray()
    async for piece in part.data:
        data += piece
        if len(data) > MAX_FIELD_BYTES:
            name = part.name[:60]
            raise InvalidRequestError(f"{name} has more than {MAX_FIELD_BYTES} bytes", param=name)
    return data.decode("utf-8", "replace")


def _expiry(fields: Mapping[str, str]) -> ExpiresAfter | None:
    """`expires_after[anchor]` and `expires_after[seconds]`."""
    given = {
        name[len(_EXPIRY) + 1 : -1]: text
        for name, text in fields.items()
        if name.startswith(_EXPIRY + "[") and name.endswith("]")
    }
    if not given:
        return None
    try:
        return msgspec.convert(given, ExpiresAfter, strict=False)
    except msgspec.ValidationError as error:
        told = located(error, ExpiresAfter, "value").message
        raise InvalidRequestError(f"{_EXPIRY}: {told}", param=_EXPIRY) from None


async def _bounded(request: Request, limit: int) -> AsyncIterator[bytes]:
    """The body's pieces. Raises PayloadTooLargeError beyond `limit` bytes."""
    message = f"the body is larger than {limit} bytes (--max-file-bytes)"
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit:
        raise PayloadTooLargeError(message, param="file")
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise PayloadTooLargeError(message, param="file")
        yield piece
