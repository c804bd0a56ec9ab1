"""Where the model file of a catalogue entry lies in the cache, and whether it is there.

What lies beside it while it is fetched: `package_model.py`.
"""

from __future__ import annotations

from pathlib import Path

from octavo.weights.catalogue import CatalogueEntry

STAGING = ".staging"


def installed_path(entry: CatalogueEntry, cache: Path) -> Path | None:
    """The model file if it is in the cache."""
    path = final_path(entry, cache)
    if path.is_file() and path.stat().st_size == entry.num_bytes:
        return path
    return None


def settled_path(entry: CatalogueEntry, cache: Path) -> Path | None:
    """The same, unless something is left of an attempt to fetch it."""
    path = installed_path(entry, cache)
    return None if path is None or staging_folder(entry, cache).exists() else path


def staging_folder(entry: CatalogueEntry, cache: Path) -> Path:
    """Where it is fetched to, piece by piece."""
    return cache / "models" / STAGING / entry.folder_name


def final_path(entry: CatalogueEntry, cache: Path) -> Path:
    """Where the file is in the end."""
    return cache / "models" / entry.folder_name / entry.file_name
