"""The folder of a disk tier: which file lies where, and what is there at the start.

Owns names and the walk over them. Does not know what is in a file.

    <folder>/<fingerprint hash, 32 hex digits>/<first 2 of the key>/<key, hex>.kv
    <folder>/.../.<key, hex>.<token>.tmp      while it is written

Whatever has another name is somebody else's and is left alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from octavo.contracts.kv_tier import TierKey
from octavo.errors import ConfigError
from octavo.kvtier.block_file import HEADER_BYTES, KEY_BYTES, is_abandoned

FLAG = "--kv-offload-dir"
LIMIT_FLAG = "--kv-offload-gb"
SUFFIX = ".kv"
_TEMPORARY = ".tmp"
_MODEL = re.compile(r"[0-9a-f]{32}").fullmatch
_SHELF = re.compile(r"[0-9a-f]{2}").fullmatch
_BLOCK = re.compile(rf"[0-9a-f]{{{2 * KEY_BYTES}}}\{SUFFIX}").fullmatch
_UNFINISHED = re.compile(rf"\.[0-9a-f]{{{2 * KEY_BYTES}}}\.[0-9a-f]+\{_TEMPORARY}").fullmatch


class KeptFile(NamedTuple):
    """A block on disk. Ordered by its last use."""

    used_ns: int
    name: str  # relative to the folder
    num_bytes: int


def open_folder(folder: Path, model: str = "") -> None:
    """Make sure that files can be made, there or for one model. Raises ConfigError naming the flag.

    Costs nothing: whoever loads a model first may ask before that.
    """
    probe = folder / model / f".probe.{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        probe.parent.mkdir(mode=0o700, exist_ok=True)
        probe.touch(mode=0o600)
        probe.unlink()
    except OSError as error:
        raise ConfigError(
            f"{FLAG} {folder}: cannot keep files there: {error.strerror or error}. Name a folder "
            "that this user may write to, or leave the flag out"
        ) from error


def model_name(fingerprint_hash: bytes) -> str:
    """The folder of one model and layout. 128 bits: the header of a file has the rest."""
    return fingerprint_hash[:16].hex()


def block_name(model: str, key: TierKey) -> str:
    """Where a block lies, relative to the folder."""
    digits = key.hex()
    return f"{model}/{digits[:2]}/{digits}{SUFFIX}"


def temporary_for(final: Path, token: str) -> Path:
    """Where it is written first. `token` tells writers apart."""
    return final.with_name(f".{final.name.removesuffix(SUFFIX)}.{token}{_TEMPORARY}")


def scan(folder: Path) -> list[KeptFile]:
    """All blocks of all models, the one that was used last at the end.

    Removes what dead writers left unfinished. What vanishes meanwhile is not there; a subfolder
    that cannot be read counts as empty.
    """
    found: list[KeptFile] = []
    for model in _folders(folder, _MODEL):
        for shelf in _folders(model.path, _SHELF):
            prefix = f"{model.name}/{shelf.name}/"
            for entry in _entries(shelf.path):
                if _BLOCK(entry.name):
                    with suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        kept = KeptFile(status.st_mtime_ns, prefix + entry.name, status.st_size)
                        found.append(kept)
                elif _UNFINISHED(entry.name):
                    _remove_if_abandoned(Path(entry.path))
    found.sort()
    return found


def remove_model(folder: Path, model: str) -> None:
    """Delete all blocks of one model, those of other processes too."""
    for shelf in _folders(str(folder / model), _SHELF):
        for entry in _entries(shelf.path):
            if _BLOCK(entry.name):
                with suppress(OSError):
                    os.unlink(entry.path)


def file_bytes(num_payload_bytes: int) -> int:
    """What a block takes on disk."""
    return HEADER_BYTES + num_payload_bytes


def _folders(path: str | Path, is_ours: Callable[[str], object]) -> list[os.DirEntry[str]]:
    return [
        entry
        for entry in _entries(path)
        if is_ours(entry.name) and entry.is_dir(follow_symlinks=False)
    ]


def _entries(path: str | Path) -> Iterator[os.DirEntry[str]]:
    """What `path` holds, as far as it can be read."""
    with suppress(OSError), os.scandir(path) as entries:
        yield from entries


def _remove_if_abandoned(temporary: Path) -> None:
    if is_abandoned(temporary):
        with suppress(OSError):
            temporary.unlink()
