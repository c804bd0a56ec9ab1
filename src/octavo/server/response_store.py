"""Responses that can be asked for later, in SQLite: in memory, or in the file of --response-store.

Owns the tables, the limits and the one thread that touches the database. A response keeps only its
own items; what it goes on from is found by way of its predecessors. A deleted response that others
go on from loses everything but those items. Beyond a limit, the least recently used responses that
nobody goes on from are forgotten. Does not know HTTP, nor what items mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from octavo.config.server import ServerConfig
from octavo.server.sqlite_thread import DatabaseKind, SqliteThread

if TYPE_CHECKING:
    import sqlite3

R = TypeVar("R")
Item = dict[str, Any]
_IN_MEMORY = (10_000, 256 * 2**20)  # entries, bytes
_IN_FILE = (1_000_000, 16 * 2**30)
CUT_OFF = "the server ended before this response was complete"
_TABLE = """
CREATE TABLE responses (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    previous INTEGER,              -- number of the response that it goes on from
    num_children INTEGER NOT NULL, -- responses that go on from it
    used INTEGER NOT NULL,         -- grows with every use of any response
    is_running INTEGER NOT NULL,
    num_inputs INTEGER NOT NULL,
    size INTEGER NOT NULL,         -- bytes of the three blobs
    head BLOB,                     -- the response without its output; null: deleted
    items BLOB NOT NULL,           -- what came in, then what came out
    events BLOB                    -- of a background response
)"""
_INDEXES = (
    "CREATE INDEX by_use ON responses (used) WHERE num_children = 0 AND is_running = 0",
    "CREATE INDEX running ON responses (number) WHERE is_running = 1",
)
_KIND = DatabaseKind("--response-store", 0x4F637452, 1, (_TABLE, *_INDEXES))


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One response: itself, and the items that made it."""

    response: dict[str, Any]  # with its output
    items: list[Item]  # its own input, then its output
    num_inputs: int
    is_running: bool = False
    events: bytes | None = None


class ResponseStore:
    """The database. `path` None: in memory. Every method may be called from the event loop."""

    def __init__(self, path: str | None, *, max_entries: int, max_bytes: int) -> None:
        self._database = SqliteThread(_KIND, path)
        self._max_entries, self._max_bytes = max_entries, max_bytes
        self._has_recovered = self._is_counted = False
        self._num_entries = self._num_bytes = self._clock = 0

    @classmethod
    def of(cls, config: ServerConfig) -> Self:
        """The store that the options ask for; nothing is opened yet."""
        most = _IN_MEMORY if config.response_store is None else _IN_FILE
        return cls(
            config.response_store,
            max_entries=config.max_stored_responses or most[0],
            max_bytes=config.max_response_store_bytes or most[1],
        )

    async def open(self) -> None:
        """Open now what is opened at first use otherwise. Raises ConfigError for a bad file."""
        await self._call(lambda database: None)

    async def close(self) -> None:
        """Close the file; what was asked for before is done first."""
        await self._database.close()
        self._has_recovered = self._is_counted = False

    async def put(
        self, tenant: str, stored: StoredResponse, previous_id: str | None, context: list[Item]
    ) -> None:
        """Keep a new response. `context` are the items before its own: they are kept with it
        where the response that had them is gone by now."""
        await self._call(lambda database: self._put(database, tenant, stored, previous_id, context))

    async def finish(self, tenant: str, stored: StoredResponse) -> None:
        """Replace a running response by the ended one; nothing happens where it was deleted."""
        await self._call(lambda database: self._finish(database, tenant, stored))

    async def find(self, tenant: str, response_id: str) -> StoredResponse | None:
        """The response; None where there is none, or it is another tenant's."""
        return await self._call(lambda database: self._find(database, tenant, response_id))

    async def context(self, tenant: str, response_id: str) -> list[Item] | None:
        """All items that a response has seen and written, the oldest first; None as in `find`."""
        return await self._call(lambda database: self._context(database, tenant, response_id))

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Forget a response; whether there was one."""
        return await self._call(lambda database: self._delete(database, tenant, response_id))

    async def _call(self, work: Callable[[sqlite3.Connection], R]) -> R:
        def counted(database: sqlite3.Connection) -> R:
            if not self._has_recovered:
                _fail_running(database)
            if not self._is_counted:
                self._count(database)
            self._is_counted = False  # unless all goes well
            result = work(database)
            self._has_recovered = self._is_counted = True
            return result

        return await self._database.run(counted)

    def _count(self, database: sqlite3.Connection) -> None:
        totals = "SELECT count(*), coalesce(sum(size), 0), coalesce(max(used), 0) FROM responses"
        self._num_entries, self._num_bytes, self._clock = database.execute(totals).fetchone()

    # ---- what is done there

    def _put(
        self,
        database: sqlite3.Connection,
        tenant: str,
        stored: StoredResponse,
        previous_id: str | None,
        context: list[Item],
    ) -> None:
        previous = None
        if previous_id is not None:
            previous = _number_of(database, tenant, previous_id)
        items, num_inputs = stored.items, stored.num_inputs
        if previous is None:
            items, num_inputs = context + items, len(context) + num_inputs
        else:
            database.execute(
                "UPDATE responses SET num_children = num_children + 1 WHERE number = ?", (previous,)
            )
        blobs = _blobs(stored, items)
        size = _size(blobs)
        database.execute(
            "INSERT INTO responses (id, tenant, previous, num_children, used, is_running, "
            "num_inputs, size, head, items, events) VALUES (?, ?, ?, 0, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(stored.response["id"], tenant, previous, self._tick()),
                *(stored.is_running, num_inputs, size, *blobs),
            ),
        )
        self._num_entries += 1
        self._num_bytes += size
        self._make_room(database, stored.response["id"])

    def _finish(self, database: sqlite3.Connection, tenant: str, stored: StoredResponse) -> None:
        response_id = stored.response["id"]
        row = database.execute(
            "SELECT number, size, num_inputs, items FROM responses WHERE id = ? AND tenant = ?",
            (response_id, tenant),
        ).fetchone()
        if row is None:
            return
        number, old_size, num_inputs, old_items = row
        kept = msgspec.json.decode(old_items)[:num_inputs]  # with a context that was kept here
        blobs = _blobs(stored, kept + stored.items[stored.num_inputs :])
        size = _size(blobs)
        database.execute(
            "UPDATE responses SET is_running = 0, used = ?, size = ?, head = ?, items = ?, "
            "events = ? WHERE number = ?",
            (self._tick(), size, *blobs, number),
        )
        self._num_bytes += size - old_size
        self._make_room(database, response_id)

    def _find(
        self, database: sqlite3.Connection, tenant: str, response_id: str
    ) -> StoredResponse | None:
        row = database.execute(
            "SELECT number, head, items, num_inputs, is_running, events FROM responses "
            "WHERE id = ? AND tenant = ? AND head IS NOT NULL",
            (response_id, tenant),
        ).fetchone()
        if row is None:
            return None
        number, head, encoded, num_inputs, is_running, events = row
        database.execute("UPDATE responses SET used = ? WHERE number = ?", (self._tick(), number))
        items = msgspec.json.decode(encoded)
        response = msgspec.json.decode(head) | {"output": items[num_inputs:]}
        return StoredResponse(response, items, num_inputs, bool(is_running), events)

    def _context(
        self, database: sqlite3.Connection, tenant: str, response_id: str
    ) -> list[Item] | None:
        stored = self._find(database, tenant, response_id)
        if stored is None:
            return None
        parts = [stored.items]
        number = _previous_of(database, _number_of(database, tenant, response_id))
        while number is not None:
            [encoded] = database.execute(
                "SELECT items FROM responses WHERE number = ?", (number,)
            ).fetchone()
            parts.append(msgspec.json.decode(encoded))
            number = _previous_of(database, number)
        return [item for part in reversed(parts) for item in part]

    def _delete(self, database: sqlite3.Connection, tenant: str, response_id: str) -> bool:
        number = _number_of(database, tenant, response_id)
        if number is None:
            return False
        self._forget(database, number)
        return True

    def _forget(self, database: sqlite3.Connection, number: int | None) -> None:
        """Remove a response, and deleted ones before it that nobody goes on from any more."""
        while number is not None:
            previous, num_children, size, items = database.execute(
                "SELECT previous, num_children, size, length(items) FROM responses "
                "WHERE number = ?",
                (number,),
            ).fetchone()
            if num_children:
                database.execute(
                    "UPDATE responses SET head = NULL, events = NULL, size = ? WHERE number = ?",
                    (items, number),
                )
                self._num_bytes += items - size
                return
            database.execute("DELETE FROM responses WHERE number = ?", (number,))
            self._num_entries -= 1
            self._num_bytes -= size
            if previous is None:
                return
            database.execute(
                "UPDATE responses SET num_children = num_children - 1 WHERE number = ?", (previous,)
            )
            left = database.execute(
                "SELECT number FROM responses "
                "WHERE number = ? AND head IS NULL AND num_children = 0",
                (previous,),
            ).fetchone()
            number = None if left is None else left[0]

    def _make_room(self, database: sqlite3.Connection, keep_id: str) -> None:
        while self._num_entries > self._max_entries or self._num_bytes > self._max_bytes:
            oldest = database.execute(
                "SELECT number FROM responses WHERE num_children = 0 AND is_running = 0 "
                "AND id != ? ORDER BY used LIMIT 1",
                (keep_id,),
            ).fetchone()
            if oldest is None:
                return
            self._forget(database, oldest[0])

    def _tick(self) -> int:
        self._clock += 1
        return self._clock


def _fail_running(database: sqlite3.Connection) -> None:
    """What an earlier server was at when it ended."""
    rows = database.execute("SELECT number, head FROM responses WHERE is_running = 1")
    for number, head in rows.fetchall():
        response = msgspec.json.decode(head)
        response |= {"status": "failed", "error": {"code": "server_error", "message": CUT_OFF}}
        database.execute(
            "UPDATE responses SET is_running = 0, head = ? WHERE number = ?",
            (msgspec.json.encode(response), number),
        )


def _number_of(database: sqlite3.Connection, tenant: str, response_id: str) -> int | None:
    row = database.execute(
        "SELECT number FROM responses WHERE id = ? AND tenant = ? AND head IS NOT NULL",
        (response_id, tenant),
    ).fetchone()
    return None if row is None else int(row[0])


def _previous_of(database: sqlite3.Connection, number: int | None) -> int | None:
    row = database.execute("SELECT previous FROM responses WHERE number = ?", (number,)).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _blobs(stored: StoredResponse, items: list[Item]) -> tuple[bytes, bytes, bytes | None]:
    head = {name: value for name, value in stored.response.items() if name != "output"}
    return msgspec.json.encode(head), msgspec.json.encode(items), stored.events


def _size(blobs: tuple[bytes, bytes, bytes | None]) -> int:
    return sum(map(len, filter(None, blobs)))
