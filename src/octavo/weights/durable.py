"""Files that are either whole or not there, whatever ends the process in between.

Owns locks, flushing and the check for space. Does not know what is written.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from octavo.errors import DownloadError
from octavo.foundation.quantities import format_bytes

SPACE_ADVICE = (
    "Free some space, or set OCTAVO_CACHE (for hub models HF_HOME) to a folder on another disk."
)


@contextmanager
def exclusive_lock(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold a lock between processes. The kernel gives it back when a holder dies.

    The file stays: removing it would let two processes hold locks on different files of one name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not inherited by child processes, which could outlive us.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if on_wait is not None:
                on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def publish(written: Path, final: Path) -> None:
    """Give a finished file its name: after this returns it is there, whole, even without power."""
    flush(written)
    final.parent.mkdir(parents=True, exist_ok=True)
    written.replace(final)
    flush(final.parent)


def flush(path: Path) -> None:
    """Bring a file or the entries of a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_space(folder: Path, num_bytes: int, what: str) -> None:
    """Raises DownloadError before a download that cannot fit."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise DownloadError(
            f"{what} needs {format_bytes(num_bytes)} while it is fetched, but {folder} has "
            f"{format_bytes(free)} left. {SPACE_ADVICE}"
        )


def is_disk_full(error: OSError) -> bool:
    """Whether a write failed for want of space or quota."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
