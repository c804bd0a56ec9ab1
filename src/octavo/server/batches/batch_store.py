"""Batches in the database: what was asked for, which lines are done, and with what.

Owns statuses and counts. Does not know how a line is computed. A line's result and the count of it
are one transaction, and so are the output files and the end of a batch: after a crash a line is
done, or it is not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from octavo.errors import OverloadedError
from octavo.server.batches.file_store import OPEN_STATUSES, FileRecord, write_whole
from octavo.server.errors import ConflictError, ResourceNotFoundError
from octavo.server.sqlite_thread import SqliteThread

if TYPE_CHECKING:
    import sqlite3

MAX_OPEN_BATCHES = 100  # of one tenant
Ending = Literal["completed", "cancelled", "expired", "failed"]
OUTPUT = "batch_output"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Why a batch could not begin: OpenAI's shape."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchRecord(msgspec.Struct, kw_only=True):
    """One batch. Times are seconds since the epoch; the counts come from the lines."""

    id: str
    tenant: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: str = "validating"
    created_at: int
    expires_at: int
    metadata: dict[str, str] | None = None
    output_expires_after_s: int | None = None
    errors: list[Fault] = []
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    num_lines: int = 0
    num_completed: int = 0
    num_failed: int = 0


class StoredLine(msgspec.Struct, frozen=True):
    """Where a line of the input is; `number` counts from 0."""

    number: int
    custom_id: str
    first_byte: int
    num_bytes: int


class BatchStore:
    """All batches of one server."""

    def __init__(self, database: SqliteThread) -> None:
        self._database = database

    async def create(self, record: BatchRecord) -> None:
        """Keep a new batch. Raises OverloadedError when its tenant has too many open ones."""
        marks = ", ".join("?" * len(OPEN_STATUSES))

        def work(connection: sqlite3.Connection) -> None:
            (count,) = connection.execute(
                f"SELECT count(*) FROM batches WHERE tenant = ? AND status IN ({marks})",  # noqa: S608
                (record.tenant, *OPEN_STATUSES),
            ).fetchone()
            if count >= MAX_OPEN_BATCHES:
                raise OverloadedError(
                    f"{count} of your batches are open, at most {MAX_OPEN_BATCHES} may be",
                    retry_after_s=60,
                )
            connection.execute(
                "INSERT INTO batches (id, tenant, input_file_id, status, created_at, record) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (
                    record.id,
                    record.tenant,
                    record.input_file_id,
                    record.status,
                    record.created_at,
                    msgspec.json.encode(record),
                ),
            )

        await self._database.run(work)

    async def get(self, batch_id: str, tenant: str) -> BatchRecord:
        """Raises ResourceNotFoundError for what is not there or is another tenant's."""
        return await self._database.run(lambda connection: _owned(connection, batch_id, tenant))

    async def page(
        self, tenant: str, *, after: str | None, limit: int
    ) -> tuple[list[BatchRecord], bool]:
        """Batches, the newest first, and whether there are more."""

        def work(connection: sqlite3.Connection) -> list[BatchRecord]:
            place: tuple[object, object] = (None, None)
            if after is not None:
                place = (_owned(connection, after, tenant, "after").created_at, after)
            rows = connection.execute(
                f"{_SELECT} WHERE tenant = ? AND (? IS NULL OR (created_at, id) < (?, ?)) "
                "ORDER BY created_at DESC, id DESC LIMIT ?",
                (tenant, after, *place, limit + 1),
            )
            return [_record(row) for row in rows]

        found = await self._database.run(work)
        return found[:limit], len(found) > limit

    async def open_batches(self) -> list[BatchRecord]:
        """All that are not ended, the oldest first."""
        marks = ", ".join("?" * len(OPEN_STATUSES))

        def work(connection: sqlite3.Connection) -> list[BatchRecord]:
            rows = connection.execute(
                f"{_SELECT} WHERE status IN ({marks}) ORDER BY created_at, id", OPEN_STATUSES
            )
            return [_record(row) for row in rows]

        return await self._database.run(work)

    async def add_lines(self, batch_id: str, lines: Sequence[StoredLine]) -> None:
        """Keep lines of a batch that is being validated."""

        def work(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "INSERT INTO lines (batch_id, number, custom_id, first_byte, num_bytes) "
                "VALUES (?, ?, ?, ?, ?)",
                [(batch_id, *msgspec.structs.astuple(line)) for line in lines],
            )

        await self._database.run(work)

    async def forget_lines(self, batch_id: str) -> None:
        """Of a validation that was cut off."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM lines WHERE batch_id = ?", (batch_id,))

        await self._database.run(work)

    async def begin(self, batch_id: str, now_s: int) -> BatchRecord:
        """All lines are right: the batch is in progress, unless it was cancelled meanwhile."""

        def work(connection: sqlite3.Connection) -> BatchRecord:
            (count,) = connection.execute(
                "SELECT count(*) FROM lines WHERE batch_id = ?", (batch_id,)
            ).fetchone()
            connection.execute("UPDATE batches SET num_lines = ? WHERE id = ?", (count, batch_id))
            record = _by_id(connection, batch_id)
            if record.status == "validating":
                record.status, record.in_progress_at = "in_progress", now_s
                _write(connection, record)
            return record

        return await self._database.run(work)

    async def fail(self, batch_id: str, faults: Sequence[Fault], now_s: int) -> None:
        """The input is wrong; nothing is computed."""

        def work(connection: sqlite3.Connection) -> None:
            record = _by_id(connection, batch_id)
            record.status, record.failed_at, record.errors = "failed", now_s, list(faults)
            connection.execute("DELETE FROM lines WHERE batch_id = ?", (batch_id,))
            _write(connection, record)

        await self._database.run(work)

    async def cancel(self, batch_id: str, tenant: str, now_s: int) -> BatchRecord:
        """Mark a batch to be ended. Raises ConflictError when it has ended already."""

        def work(connection: sqlite3.Connection) -> BatchRecord:
            record = _owned(connection, batch_id, tenant)
            if record.status not in OPEN_STATUSES:
                message = f"the batch is {record.status} already"
                raise ConflictError(message, param="batch_id")
            if record.status in ("validating", "in_progress"):
                record.status, record.cancelling_at = "cancelling", now_s
                _write(connection, record)
            return record

        return await self._database.run(work)

    async def pending(self, batch_id: str, after: int, limit: int) -> list[StoredLine]:
        """The next lines beyond number `after` that have no result."""

        def work(connection: sqlite3.Connection) -> list[StoredLine]:
            rows = connection.execute(
                "SELECT number, custom_id, first_byte, num_bytes FROM lines "
                "WHERE batch_id = ? AND number > ? AND result IS NULL ORDER BY number LIMIT ?",
                (batch_id, after, limit),
            )
            return [StoredLine(*row) for row in rows]

        return await self._database.run(work)

    async def keep_result(
        self, batch_id: str, number: int, result: bytes, *, is_success: bool
    ) -> None:
        """A line is done: its JSON with the newline. A second result of it changes nothing."""
        column = "num_completed" if is_success else "num_failed"

        def work(connection: sqlite3.Connection) -> None:
            done = connection.execute(
                "UPDATE lines SET result = ?, is_success = ? "
                "WHERE batch_id = ? AND number = ? AND result IS NULL",
                (result, is_success, batch_id, number),
            )
            if done.rowcount:
                connection.execute(
                    f"UPDATE batches SET {column} = {column} + 1 WHERE id = ?",  # noqa: S608
                    (batch_id,),
                )

        await self._database.run(work)

    async def fail_pending(self, batch_id: str, result_of: Callable[[str], bytes]) -> None:
        """Give every line without a result one that is a failure, made from its custom_id."""

        def work(connection: sqlite3.Connection) -> None:
            rows = connection.execute(
                "SELECT number, custom_id FROM lines WHERE batch_id = ? AND result IS NULL",
                (batch_id,),
            ).fetchall()
            connection.executemany(
                "UPDATE lines SET result = ?, is_success = 0 WHERE batch_id = ? AND number = ?",
                [(result_of(custom_id), batch_id, number) for number, custom_id in rows],
            )
            connection.execute(
                "UPDATE batches SET num_failed = num_failed + ? WHERE id = ?",
                (len(rows), batch_id),
            )

        await self._database.run(work)

    async def end(self, batch_id: str, ending: Ending, now_s: int) -> None:
        """Write the output files and forget the lines."""

        def work(connection: sqlite3.Connection) -> None:
            record = _by_id(connection, batch_id)
            if record.status not in OPEN_STATUSES:
                return
            record.finalizing_at = record.finalizing_at or now_s
            for is_success, name in ((True, "output"), (False, "error")):
                made = _write_results(connection, record, now_s, name, is_success=is_success)
                setattr(record, f"{name}_file_id", None if made is None else made.id)
            record.status = ending
            setattr(record, f"{ending}_at", now_s)
            connection.execute("DELETE FROM lines WHERE batch_id = ?", (batch_id,))
            _write(connection, record)

        await self._database.run(work)


_SELECT = "SELECT record, num_lines, num_completed, num_failed FROM batches"


def _record(row: tuple[bytes, int, int, int]) -> BatchRecord:
    record = msgspec.json.decode(row[0], type=BatchRecord)
    record.num_lines, record.num_completed, record.num_failed = row[1:]
    return record


def _by_id(connection: sqlite3.Connection, batch_id: str) -> BatchRecord:
    return _record(connection.execute(f"{_SELECT} WHERE id = ?", (batch_id,)).fetchone())


def _owned(
    connection: sqlite3.Connection, batch_id: str, tenant: str, param: str = "batch_id"
) -> BatchRecord:
    row = connection.execute(
        f"{_SELECT} WHERE id = ? AND tenant = ?", (batch_id, tenant)
    ).fetchone()
    if row is None:
        raise ResourceNotFoundError(f"no such batch: {batch_id[:60]}", param=param)
    return _record(row)


def _write(connection: sqlite3.Connection, record: BatchRecord) -> None:
    connection.execute(
        "UPDATE batches SET status = ?, record = ? WHERE id = ?",
        (record.status, msgspec.json.encode(record), record.id),
    )


def _write_results(
    connection: sqlite3.Connection,
    record: BatchRecord,
    now_s: int,
    name: str,
    *,
    is_success: bool,
) -> FileRecord | None:
    """The file of all successes or failures in the order of the input; None without any."""
    expires_after_s = record.output_expires_after_s
    blank = FileRecord(
        id="file-" + os.urandom(12).hex(),
        tenant=record.tenant,
        filename=f"{record.id}_{name}.jsonl",
        purpose=OUTPUT,
        num_bytes=0,
        created_at=now_s,
        expires_at=None if expires_after_s is None else now_s + expires_after_s,
    )

    def results() -> Iterator[bytes]:
        rows = connection.execute(
            "SELECT result FROM lines WHERE batch_id = ? AND is_success = ? ORDER BY number",
            (record.id, is_success),
        )
        return (result for (result,) in rows)

    return write_whole(connection, blank, results())
