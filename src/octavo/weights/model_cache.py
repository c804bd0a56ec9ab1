"""What lies in the cache of package models, and its removal.

Owns the rule that nothing is taken from under a process: each entry is removed under the lock that
its download holds (`package_model.py`), and what is being fetched stays. A model goes to the
staging folder by one rename and is deleted there, so it is whole or not there if the process ends
in between; the next removal or download clears the rest. Servers that have mapped a file keep it.
The Hugging Face cache is shared with other programs and not touched.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import ModelFileError
from octavo.weights.catalogue import find_entry
from octavo.weights.durable import exclusive_lock
from octavo.weights.package_folder import STAGING
from octavo.weights.package_model import LOCK_ENDING


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A model, or what an unfinished download or removal left."""

    name: str  # of the folder
    path: Path
    num_bytes: int
    is_model: bool


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed, and what another process holds."""

    removed: tuple[CacheEntry, ...]
    busy: tuple[CacheEntry, ...]


class _BusyError(Exception):
    """Another process holds the lock."""


def cache_entries(cache: Path) -> list[CacheEntry]:
    """Models first, then leftovers, each in order of name."""
    models, staging = cache / "models", cache / "models" / STAGING
    found = [(path, True) for path in _folders(models) if path != staging]
    found += [(path, False) for path in _folders(staging)]
    return [CacheEntry(path.name, path, _size(path), is_model) for path, is_model in found]


def prune(cache: Path, names: Collection[str] = (), *, everything: bool = False) -> Pruned:
    """Remove leftovers, and the models of these names, short or of their folders.

    Several processes may do this at once. Raises ModelFileError for a name that is not in the
    cache, before anything is removed; OSError where the cache cannot be written.
    """
    entries = cache_entries(cache)
    wanted = {_folder_name(name): name for name in names}
    unknown = wanted.keys() - {entry.name for entry in entries}
    if unknown:
        named = ", ".join(sorted(wanted[name] for name in unknown))
        there = ", ".join(entry.name for entry in entries) or "nothing"
        raise ModelFileError(f"the cache {cache} has no {named}; it has: {there}")
    removed: list[CacheEntry] = []
    busy: list[CacheEntry] = []
    for entry in entries:
        if entry.is_model and not everything and entry.name not in wanted:
            continue
        (removed if _remove(entry, cache / "models" / STAGING) else busy).append(entry)
    return Pruned(tuple(removed), tuple(busy))


def _remove(entry: CacheEntry, staging: Path) -> bool:
    """Whether it is gone; not while another process fetches or removes it."""
    place = staging / entry.name
    try:
        with exclusive_lock(staging / f"{entry.name}{LOCK_ENDING}", on_wait=_refuse):
            shutil.rmtree(place, ignore_errors=True)
            if entry.is_model and entry.path.exists():
                entry.path.rename(place)
                shutil.rmtree(place)
    except _BusyError:
        return False
    return True


def _refuse() -> None:
    raise _BusyError


def _folder_name(name: str) -> str:
    known = find_entry(name)
    return name if known is None else known.folder_name


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _size(folder: Path) -> int:
    """Bytes of all files; one that goes away meanwhile counts nothing."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return total
