"""Entry points of installed packages, without a look into each package where there are none.

The standard library's reader of metadata takes tens of milliseconds to import and to walk over a
usual environment. Few machines have a plugin, so whether one is there is found out first, from the
names of files alone.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_FOLDERS = (".dist-info", "egg-info")  # in an egg the folder has no other name
_FILE = "entry_points.txt"


def installed_plugins(group: str) -> list[EntryPoint]:
    """The entry points of a group, by name."""
    if not _may_have(group):
        return []
    from importlib.metadata import entry_points  # noqa: PLC0415 - most processes need it never

    return sorted(entry_points(group=group), key=lambda point: point.name)


def _may_have(group: str) -> bool:
    """Whether a package may bring one; True wherever a look at the files cannot tell."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    if any(finder is not PathFinder for finder in finders):
        return True
    return any(_place_may_have(place or ".", f"[{group}]".encode()) for place in sys.path)


def _place_may_have(place: str, header: bytes) -> bool:
    """The same for one entry of sys.path: a folder, an archive, or nothing at all."""
    try:
        names = os.listdir(place)
    except NotADirectoryError:
        return True
    except OSError:
        return False
    for name in names:
        if name.lower().endswith(_FOLDERS):
            try:
                with open(os.path.join(place, name, _FILE), "rb") as file:
                    if header in file.read():
                        return True
            except OSError:
                continue
    return False
