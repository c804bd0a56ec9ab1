"""Host slots are taken, shared and given back."""

from __future__ import annotations

import pytest

from octavo.kvcache.host_slots import HostSlots


def test_a_slot_is_free_when_its_last_holder_releases_it():
    slots = HostSlots(2)
    slot = slots.take()
    slots.share(slot)
    slots.release(slot)
    assert (slots.num_free, slots.num_used) == (1, 1)
    slots.release(slot)
    assert (slots.num_free, slots.num_used) == (2, 0)


def test_taking_sharing_or_releasing_what_is_not_there_is_caught():
    slots = HostSlots(1)
    with pytest.raises(AssertionError, match="nobody holds it"):
        slots.release(0)
    with pytest.raises(AssertionError, match="nobody holds it"):
        slots.share(0)
    slots.take()
    with pytest.raises(AssertionError, match="all 1 host slots are held"):
        slots.take()
