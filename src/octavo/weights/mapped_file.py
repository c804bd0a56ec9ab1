"""A file as bytes in memory, read by the kernel when they are touched.

Owns opening, mapping and letting go. Does not know what the bytes mean.
"""

from __future__ import annotations

import mmap
import stat
from pathlib import Path

from octavo.errors import CorruptFileError, ModelFileError


def map_file(path: Path) -> memoryview:
    """The whole file, read-only. The mapping lives as long as a view of it does.

    Raises ModelFileError when it cannot be read, CorruptFileError when it is empty.
    """
    try:
        # Asked before opening: opening a pipe would wait for its writer.
        if not stat.S_ISREG(path.stat().st_mode):
            raise ModelFileError(f"{path} is not a regular file")
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # what mmap says of an empty file
        raise CorruptFileError(f"{path} is empty") from error
    return memoryview(mapping)


def let_go(view: memoryview) -> None:
    """Take the file behind `view` out of this process's memory; what is touched is read again.

    Bytes that lie in no file stay.
    """
    if isinstance(view.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        view.obj.madvise(mmap.MADV_DONTNEED)
