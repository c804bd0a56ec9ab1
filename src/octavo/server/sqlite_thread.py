"""One SQLite database and the one thread that touches it, so that nothing of it blocks the loop.

Owns opening (a file of ours, nobody else's; no second server at the same time), transactions and
the end. Does not know any table.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from octavo.errors import ConfigError, RequestFailedError
from octavo.server.errors import NotReadyError

if TYPE_CHECKING:
    import sqlite3

R = TypeVar("R")
_MALFORMED = "database disk image is malformed"  # SQLite's word for pages that are none


@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """What a file holds. `application_id` and `version` mark it; `flag` is in errors.

    The tables of `checked` are read whole when the file is opened: small ones, that a start needs.
    """

    flag: str
    application_id: int
    version: int
    schema: tuple[str, ...]
    checked: tuple[str, ...] = ()


class SqliteThread:
    """`path` None: a database in memory, which ends with `close`."""

    def __init__(self, kind: DatabaseKind, path: str | None) -> None:
        self._kind, self._path = kind, path
        self._thread: ThreadPoolExecutor | None = None
        self._connection: sqlite3.Connection | None = None

    async def run(self, work: Callable[[sqlite3.Connection], R]) -> R:
        """What `work` returns, within one transaction; it ends even if nobody waits any more.

        The first use opens the database. Raises ConfigError for a file that cannot be opened, is
        none of ours or is damaged, NotReadyError when the disk fails, RequestFailedError for
        damage that later uses find.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "octavo-sqlite")
        call = partial(self._in_transaction, work)
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._thread, call))

    async def close(self) -> None:
        """Close the file; what was asked for before is done first."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if self._connection is not None:
            await asyncio.get_running_loop().run_in_executor(thread, self._connection.close)
            self._connection = None
        thread.shutdown(wait=False)

    def _in_transaction(self, work: Callable[[sqlite3.Connection], R]) -> R:
        import sqlite3  # noqa: PLC0415 - most servers never need it

        is_first = self._connection is None
        if self._connection is None:
            self._connection = self._opened()
        try:
            return transaction(self._connection, work)
        except sqlite3.OperationalError as error:  # full, read-only, or it fails; no content in it
            message = f"{self._kind.flag} cannot be written now: {error}"
            raise NotReadyError(message, retry_after_s=30) from None
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            if not is_first:
                raise RequestFailedError(f"{self._name}: {_damage(error)}") from None
            self._connection.close()
            self._connection = None
            raise ConfigError(f"{self._name}: {_damage(error)}") from None

    @property
    def _name(self) -> str:
        return f"{self._kind.flag} {self._path}"

    def _opened(self) -> sqlite3.Connection:
        import sqlite3  # noqa: PLC0415

        name = self._name
        try:
            if self._path is not None:  # for its owner only: it holds prompts and answers
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                os.close(os.open(self._path, flags, 0o600))
            connection = sqlite3.connect(
                self._path or ":memory:", timeout=0, isolation_level=None, check_same_thread=False
            )
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"{name}: {reason}") from None
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            transaction(connection, partial(self._prepare, name=name))
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA secure_delete = ON")
        except sqlite3.Error as error:
            connection.close()
            reason = "another server uses it" if "locked" in str(error) else str(error)
            reason = _damage(error) if _is_damage(error) else reason
            raise ConfigError(f"{name}: {reason}") from None
        except ConfigError:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection, name: str) -> None:
        """Make the tables of a new file; check those of an old one."""
        kind = self._kind
        [found] = connection.execute("PRAGMA application_id").fetchone()
        [version] = connection.execute("PRAGMA user_version").fetchone()
        [num_tables] = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if num_tables == 0:
            for statement in kind.schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {kind.application_id}")
            connection.execute(f"PRAGMA user_version = {kind.version}")
        elif (found, version) != (kind.application_id, kind.version):
            raise ConfigError(f"{name}: a database of something else, or of another version")
        else:
            self._check(connection)

    def _check(self, connection: sqlite3.Connection) -> None:
        """Find damage while nothing depends on the file yet: every table's begin, or the whole."""
        import sqlite3  # noqa: PLC0415

        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            connection.execute(f'SELECT * FROM "{table}" LIMIT 1').fetchone()  # noqa: S608 - ours
        for table in self._kind.checked:
            [found] = connection.execute(f"PRAGMA quick_check({table})").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(_MALFORMED)


def _is_damage(error: sqlite3.Error) -> bool:
    """What is wrong with the file itself, not with what is asked of it."""
    return str(error) == _MALFORMED


def _damage(error: sqlite3.Error) -> str:
    return f"it is damaged ({error}); put a copy in its place, or move it away to begin anew"


def transaction(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], R]) -> R:
    """What `work` returns; all of its changes, or none."""
    import sqlite3  # noqa: PLC0415

    connection.execute("BEGIN EXCLUSIVE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk may have ended it already
            connection.execute("ROLLBACK")
        raise
    return result
