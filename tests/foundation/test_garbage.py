"""Collections are held back while much is made that stays."""

from __future__ import annotations

import gc

import pytest

from octavo.foundation.garbage import without_collections


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
