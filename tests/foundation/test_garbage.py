"""Collections are held back while much is made that stays, and what was freed goes back."""

from __future__ import annotations

import ctypes
import gc
import os
from pathlib import Path

import pytest

from octavo.foundation.garbage import give_back_freed, without_collections


def test_nothing_is_collected_inside_and_the_new_count_as_old_afterwards() -> None:
    """The first collections of a request need not go through them."""
    gc.unfreeze()  # what an engine that was built here has frozen
    gc.collect()
    with without_collections():
        assert not gc.isenabled()
        kept = [[number] for number in range(5000)]
        assert len(gc.get_objects(generation=0)) > len(kept)
    assert gc.isenabled()
    assert len(gc.get_objects(generation=0)) < 1000
    assert gc.get_freeze_count() == 0


def test_an_error_inside_leaves_the_collector_on() -> None:
    with pytest.raises(KeyError), without_collections():
        raise KeyError
    assert gc.isenabled()


def test_who_keeps_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_objects_that_somebody_froze_stay_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with without_collections():
            pass
        assert gc.get_freeze_count() >= frozen > 0
    finally:
        gc.unfreeze()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(
    getattr(ctypes.CDLL(None), "malloc_trim", None) is None,
    reason="this C library cannot give memory back on request",
)
def test_memory_that_was_freed_goes_back_to_the_system() -> None:
    """Even where something that is still used lies behind it, which the C library waits for."""
    pieces = [bytearray(10_000) for _ in range(5000)]
    kept = pieces[::100]
    del pieces
    before = resident_bytes()

    give_back_freed()

    assert before - resident_bytes() > 30e6
    assert len(kept) == 50
