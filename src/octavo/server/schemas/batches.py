"""Bodies and objects of /v1/files and /v1/batches: OpenAI's shapes."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from octavo.errors import InvalidRequestError
from octavo.server.batches.batch_store import BatchRecord, Fault
from octavo.server.batches.file_store import FileRecord

SHORTEST_LIFE_S, LONGEST_LIFE_S = 3600, 30 * 86_400
MAX_METADATA = 16
_WINDOW = re.compile(r"([1-9]\d{0,3})([hd])")
_SECONDS = {"h": 3600, "d": 86_400}


class ExpiresAfter(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """When a file is deleted by itself."""

    anchor: Literal["created_at"]
    seconds: int


class FileObject(msgspec.Struct, kw_only=True):
    """A file, without its content."""

    id: str
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    object: str = "file"
    status: str = "processed"
    status_details: str | None = None


class FileList(msgspec.Struct, kw_only=True):
    """A page of files."""

    data: list[FileObject]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: str = "list"


class DeletedFile(msgspec.Struct, kw_only=True):
    """That a file is gone."""

    id: str
    object: str = "file"
    deleted: bool = True


class BatchRequest(msgspec.Struct, kw_only=True):
    """The body of POST /v1/batches."""

    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: dict[str, str] | None = None
    output_expires_after: ExpiresAfter | None = None


class RequestCounts(msgspec.Struct, kw_only=True):
    """Lines of a batch."""

    total: int
    completed: int
    failed: int


class BatchErrors(msgspec.Struct, kw_only=True):
    """Why a batch could not begin."""

    data: list[Fault]
    object: str = "list"


class BatchObject(msgspec.Struct, kw_only=True):
    """A batch. Times are seconds since the epoch, null for what has not been."""

    id: str
    endpoint: str
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    metadata: dict[str, str] | None
    object: str = "batch"


class BatchList(msgspec.Struct, kw_only=True):
    """A page of batches."""

    data: list[BatchObject]
    has_more: bool
    first_id: str | None
    last_id: str | None
    object: str = "list"


def file_object(record: FileRecord) -> FileObject:
    """A file as the API shows it."""
    return FileObject(
        id=record.id,
        bytes=record.num_bytes,
        created_at=record.created_at,
        expires_at=record.expires_at,
        filename=record.filename,
        purpose=record.purpose,
    )


def batch_object(record: BatchRecord) -> BatchObject:
    """A batch as the API shows it."""
    same = {name: getattr(record, name) for name in _SAME}
    counts = RequestCounts(
        total=record.num_lines, completed=record.num_completed, failed=record.num_failed
    )
    errors = BatchErrors(data=record.errors) if record.errors else None
    return BatchObject(**same, errors=errors, request_counts=counts)


_SAME = sorted(set(BatchObject.__struct_fields__) & set(BatchRecord.__struct_fields__) - {"errors"})


def window_s(text: str) -> int:
    """Seconds of a completion window. Raises InvalidRequestError."""
    found = _WINDOW.fullmatch(text)
    seconds = int(found[1]) * _SECONDS[found[2]] if found else 0
    if not 3600 <= seconds <= LONGEST_LIFE_S:
        message = "completion_window must be hours or days such as 24h, from 1h to 30d"
        raise InvalidRequestError(message, param="completion_window")
    return seconds


def life_s(given: ExpiresAfter | None, param: str) -> int | None:
    """Seconds that a file lives. Raises InvalidRequestError."""
    if given is None:
        return None
    if not SHORTEST_LIFE_S <= given.seconds <= LONGEST_LIFE_S:
        message = f"{param}.seconds must be between {SHORTEST_LIFE_S} and {LONGEST_LIFE_S}"
        raise InvalidRequestError(message, param=f"{param}.seconds")
    return given.seconds


def check_metadata(given: dict[str, str] | None) -> None:
    """OpenAI's bounds: 16 pairs, names of 64 characters, texts of 512."""
    if given is None:
        return
    if len(given) > MAX_METADATA:
        message = f"metadata may hold at most {MAX_METADATA} pairs, got {len(given)}"
        raise InvalidRequestError(message, param="metadata")
    if any(len(name) > 64 or len(text) > 512 for name, text in given.items()):
        message = "metadata: names may have at most 64 characters, texts at most 512"
        raise InvalidRequestError(message, param="metadata")
