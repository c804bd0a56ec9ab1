"""What keys have used today, beside --api-keys-file: a restart must not give budgets back.

Owns the file and when it is written. Does not know limits. Servers that share a key file count each
for themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from octavo.foundation.files import replace_file
from octavo.server.quotas import DayUse, Quotas

logger = logging.getLogger(__name__)
SAVE_EVERY_S = 5.0


@asynccontextmanager
async def kept_usage(keys_path: str | None, quotas: Quotas) -> AsyncIterator[None]:
    """Read what was used before; write what is used while the block runs, and at its end."""
    if keys_path is None:
        yield
        return
    path = usage_path(Path(keys_path))
    _restore(path, quotas)
    task = asyncio.ensure_future(_save_often(path, quotas))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        _save(path, quotas.day_use())


def usage_path(keys_path: Path) -> Path:
    """Where the counts lie."""
    return keys_path.with_name(f".{keys_path.name}.usage")


def _restore(path: Path, quotas: Quotas) -> None:
    try:
        quotas.restore(msgspec.json.decode(path.read_bytes(), type=DayUse))
    except FileNotFoundError:
        return
    except (OSError, msgspec.DecodeError, UnicodeError) as error:
        logger.warning("%s: budgets of today begin anew: %s", path, error)


async def _save_often(path: Path, quotas: Quotas) -> None:
    saved, can_save = quotas.day_use(), True
    while can_save:
        await asyncio.sleep(SAVE_EVERY_S)
        now = quotas.day_use()
        if now != saved:
            saved, can_save = now, await asyncio.to_thread(_save, path, now)


def _save(path: Path, use: DayUse) -> bool:
    """Whether that was possible; a folder of secrets may be read-only."""
    if not use.num_tokens:
        return True
    try:
        replace_file(path, msgspec.json.encode(use))
    except OSError as error:
        logger.warning("%s: a restart will give budgets back: %s", path, error.strerror)
        return False
    return True
