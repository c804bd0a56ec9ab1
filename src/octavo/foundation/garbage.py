"""Memory while much is made that stays: the garbage collector, and what the C library keeps."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """No garbage is looked for inside; what was made there counts as old afterwards.

    Importing modules and loading a model make some hundred thousand objects that stay. Without this
    they would be gone through again and again, for a tenth of the time, and once more by the first
    request. As old ones they are looked at when everything is.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # else somebody keeps objects out of its sight on purpose
            gc.freeze()
            gc.unfreeze()
        gc.enable()


def give_back_freed() -> None:
    """Have the C library return freed memory to the system, where it can (glibc).

    It keeps what several threads allocated and freed, for allocations that never come: after a
    model was loaded 5 MB. Takes a millisecond, without the GIL.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
