"""The version of the installed package."""

from __future__ import annotations

from importlib import metadata


def version() -> str:
    """As in the package's metadata; '0+source' when it runs from a bare source tree."""
    try:
        return metadata.version("octavo")
    except metadata.PackageNotFoundError:
        return "0+source"
