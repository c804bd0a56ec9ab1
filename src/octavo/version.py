"""The version of the installed package."""

from __future__ import annotations


def version() -> str:
    """As in the package's metadata; '0+source' when it runs from a bare source tree."""
    from importlib import metadata  # noqa: PLC0415 - takes longer to import than most of octavo

    try:
        return metadata.version("octavo")
    except metadata.PackageNotFoundError:
        return "0+source"
