"""The SQLite file of --batch-store: its tables.

Does not know what files and batches mean, nor how a database is used from an event loop
(`sqlite_thread.py`).
"""

from __future__ import annotations

from pathlib import Path

from octavo.server.sqlite_thread import DatabaseKind, SqliteThread

_SCHEMA = """
CREATE TABLE files (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL,
    num_bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER,
    is_whole INTEGER NOT NULL
);
CREATE INDEX files_of_tenant ON files (tenant, created_at);
CREATE TABLE chunks (
    file_id TEXT NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (file_id, number)
) WITHOUT ROWID;
CREATE TABLE batches (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, input_file_id TEXT NOT NULL, status TEXT NOT NULL,
    created_at INTEGER NOT NULL, record BLOB NOT NULL,
    num_lines INTEGER NOT NULL DEFAULT 0, num_completed INTEGER NOT NULL DEFAULT 0,
    num_failed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX batches_of_tenant ON batches (tenant, created_at);
CREATE INDEX batches_by_status ON batches (status);
CREATE TABLE lines (
    batch_id TEXT NOT NULL, number INTEGER NOT NULL, custom_id TEXT NOT NULL,
    first_byte INTEGER NOT NULL, num_bytes INTEGER NOT NULL, is_success INTEGER, result BLOB,
    PRIMARY KEY (batch_id, number)
);
"""
KIND = DatabaseKind(
    flag="--batch-store",
    application_id=0x0C7A50,
    version=1,
    schema=tuple(statement for statement in _SCHEMA.split(";") if statement.strip()),
    checked=("files", "batches"),
)


async def open_database(path: Path) -> SqliteThread:
    """Raises ConfigError for a file that is no store, is damaged, or that another server holds."""
    database = SqliteThread(KIND, str(path))
    try:
        await database.run(lambda connection: None)
    except BaseException:
        await database.close()
        raise
    return database
