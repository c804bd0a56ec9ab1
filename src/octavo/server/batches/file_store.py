"""Files in the database: written in pieces, read in pieces, each owned by one tenant.

Owns the pieces and the bound on a tenant's bytes. Does not know what a file says.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

import msgspec

from octavo.errors import InvalidRequestError
from octavo.server.errors import ConflictError, PayloadTooLargeError, ResourceNotFoundError
from octavo.server.sqlite_thread import SqliteThread

if TYPE_CHECKING:
    import sqlite3

CHUNK_BYTES = 256 * 2**10
OPEN_STATUSES = ("validating", "in_progress", "finalizing", "cancelling")
_COLUMNS = "id, tenant, filename, purpose, num_bytes, created_at, expires_at"


class FileRecord(msgspec.Struct, frozen=True):
    """A whole file. Times are seconds since the epoch."""

    id: str
    tenant: str
    filename: str
    purpose: str
    num_bytes: int
    created_at: int
    expires_at: int | None


class FileStore:
    """All files of one server."""

    def __init__(self, database: SqliteThread, max_stored_bytes: int) -> None:
        self._database, self._max_stored_bytes = database, max_stored_bytes

    async def begin(self, tenant: str, now_s: int) -> str:
        """The id of a new file that nobody sees yet."""
        file_id = "file-" + os.urandom(12).hex()

        def work(connection: sqlite3.Connection) -> str:
            connection.execute(
                "INSERT INTO files VALUES (?, ?, '', '', 0, ?, NULL, 0)", (file_id, tenant, now_s)
            )
            return file_id

        return await self._database.run(work)

    async def append(self, file_id: str, number: int, data: bytes) -> None:
        """Piece `number`; all but the last have CHUNK_BYTES. Raises PayloadTooLargeError."""
        limit = self._max_stored_bytes

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO chunks VALUES (?, ?, ?)", (file_id, number, data))
            connection.execute(
                "UPDATE files SET num_bytes = num_bytes + ? WHERE id = ?", (len(data), file_id)
            )
            (total,) = connection.execute(
                "SELECT sum(num_bytes) FROM files "
                "WHERE tenant = (SELECT tenant FROM files WHERE id = ?)",
                (file_id,),
            ).fetchone()
            if total > limit:
                raise PayloadTooLargeError(
                    f"your files have more than {limit} bytes together (--max-stored-bytes); "
                    "delete some",
                    param="file",
                )

        await self._database.run(work)

    async def finish(
        self, file_id: str, *, filename: str, purpose: str, expires_at: int | None
    ) -> FileRecord:
        """The file is whole."""

        def work(connection: sqlite3.Connection) -> FileRecord:
            connection.execute(
                "UPDATE files SET filename = ?, purpose = ?, expires_at = ?, is_whole = 1 "
                "WHERE id = ?",
                (filename, purpose, expires_at, file_id),
            )
            return _record(connection, file_id)

        return await self._database.run(work)

    async def drop(self, file_id: str) -> None:
        """Forget a file that was not finished."""
        await self._database.run(lambda connection: _delete(connection, file_id))

    async def get(self, file_id: str, tenant: str, param: str = "file_id") -> FileRecord:
        """Raises ResourceNotFoundError for what is not there or is another tenant's.

        `param` is the field that the request has it from.
        """

        def work(connection: sqlite3.Connection) -> FileRecord:
            return _owned(connection, file_id, tenant, param)

        return await self._database.run(work)

    async def page(
        self, tenant: str, *, purpose: str | None, after: str | None, limit: int, newest_first: bool
    ) -> tuple[list[FileRecord], bool]:
        """Files in order of their making, and whether there are more."""

        def work(connection: sqlite3.Connection) -> list[FileRecord]:
            place = None
            if after is not None:
                place = (_owned(connection, after, tenant, "after").created_at, after)
            sign, order = ("<", "DESC") if newest_first else (">", "ASC")
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM files WHERE tenant = ? AND is_whole "  # noqa: S608 - ours
                f"AND (? IS NULL OR purpose = ?) "
                f"AND (? IS NULL OR (created_at, id) {sign} (?, ?)) "
                f"ORDER BY created_at {order}, id {order} LIMIT ?",
                (tenant, purpose, purpose, after, *(place or (None, None)), limit + 1),
            )
            return [FileRecord(*row) for row in rows]

        found = await self._database.run(work)
        return found[:limit], len(found) > limit

    async def delete(self, file_id: str, tenant: str) -> None:
        """Raises ResourceNotFoundError, and ConflictError while a batch reads the file."""

        def work(connection: sqlite3.Connection) -> None:
            _owned(connection, file_id, tenant)
            if _is_read(connection, file_id):
                raise ConflictError(
                    "a batch reads this file; cancel it or wait for its end", param="file_id"
                )
            _delete(connection, file_id)

        await self._database.run(work)

    async def pieces(self, file_id: str) -> AsyncIterator[bytes]:
        """The content, piece by piece; ends early when the file is deleted meanwhile."""
        number = 0
        while True:
            piece = await self._piece(file_id, number)
            if piece is None:
                return
            yield piece
            number += 1

    async def read(self, file_id: str, first_byte: int, num_bytes: int) -> bytes:
        """A part of the content."""
        first, last = first_byte // CHUNK_BYTES, (first_byte + num_bytes - 1) // CHUNK_BYTES

        def work(connection: sqlite3.Connection) -> bytes:
            rows = connection.execute(
                "SELECT data FROM chunks WHERE file_id = ? AND number BETWEEN ? AND ? "
                "ORDER BY number",
                (file_id, first, last),
            )
            return b"".join(data for (data,) in rows)

        data = await self._database.run(work)
        begin = first_byte - first * CHUNK_BYTES
        return data[begin : begin + num_bytes]

    async def remove_leftovers(self, now_s: int, *, with_unfinished: bool = False) -> None:
        """Delete what has expired, and after a start what was never finished."""

        def work(connection: sqlite3.Connection) -> None:
            rows = connection.execute(
                "SELECT id FROM files WHERE expires_at <= ? OR (? AND NOT is_whole)",
                (now_s, with_unfinished),
            )
            for (file_id,) in rows.fetchall():
                if not _is_read(connection, file_id):
                    _delete(connection, file_id)

        await self._database.run(work)

    async def _piece(self, file_id: str, number: int) -> bytes | None:
        def work(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute(
                "SELECT data FROM chunks WHERE file_id = ? AND number = ?", (file_id, number)
            ).fetchone()
            return None if row is None else bytes(row[0])

        return await self._database.run(work)


def write_whole(
    connection: sqlite3.Connection, record: FileRecord, parts: Iterable[bytes]
) -> FileRecord | None:
    """Make a file within a transaction, with the bytes of `parts`; none where those are empty."""
    buffer, number, num_bytes = bytearray(), 0, 0
    for part in parts:
        buffer += part
        while len(buffer) >= CHUNK_BYTES:
            _write_chunk(connection, record.id, number, bytes(buffer[:CHUNK_BYTES]))
            del buffer[:CHUNK_BYTES]
            number, num_bytes = number + 1, num_bytes + CHUNK_BYTES
    if buffer:
        _write_chunk(connection, record.id, number, bytes(buffer))
        num_bytes += len(buffer)
    if num_bytes == 0:
        return None
    whole = msgspec.structs.replace(record, num_bytes=num_bytes)
    connection.execute(
        "INSERT INTO files VALUES (?, ?, ?, ?, ?, ?, ?, 1)", msgspec.structs.astuple(whole)
    )
    return whole


def _write_chunk(connection: sqlite3.Connection, file_id: str, number: int, data: bytes) -> None:
    connection.execute("INSERT INTO chunks VALUES (?, ?, ?)", (file_id, number, data))


def _record(connection: sqlite3.Connection, file_id: str) -> FileRecord:
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM files WHERE id = ?",  # noqa: S608 - our own words
        (file_id,),
    ).fetchone()
    return FileRecord(*row)


def _owned(
    connection: sqlite3.Connection, file_id: str, tenant: str, param: str = "file_id"
) -> FileRecord:
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM files "  # noqa: S608 - our own words
        "WHERE id = ? AND tenant = ? AND is_whole",
        (file_id, tenant),
    ).fetchone()
    if row is None:
        raise ResourceNotFoundError(f"no such file: {_shown(file_id, param)}", param=param)
    return FileRecord(*row)


def _is_read(connection: sqlite3.Connection, file_id: str) -> bool:
    marks = ", ".join("?" * len(OPEN_STATUSES))
    row = connection.execute(
        f"SELECT 1 FROM batches WHERE input_file_id = ? AND status IN ({marks})",  # noqa: S608
        (file_id, *OPEN_STATUSES),
    ).fetchone()
    return row is not None


def _delete(connection: sqlite3.Connection, file_id: str) -> None:
    connection.execute("DELETE FROM chunks WHERE file_id = ?", (file_id,))
    connection.execute("DELETE FROM files WHERE id = ?", (file_id,))


def _shown(file_id: str, param: str) -> str:
    if len(file_id) > 60:
        raise InvalidRequestError("a file's id has at most 60 characters", param=param)
    return file_id
