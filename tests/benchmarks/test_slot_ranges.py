"""Contiguous ranges: disjoint, complete, and fragmented where they must be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.serving_policies.slot_ranges import Buddy, FirstFit, SlotRanges

KINDS = [FirstFit, Buddy]
MOVES = st.lists(st.tuples(st.integers(1, 12), st.integers(0, 30)), max_size=60)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(num_blocks=st.integers(1, 50), moves=MOVES)
def test_ranges_never_overlap_and_all_come_back(
    kind: type[FirstFit] | type[Buddy], num_blocks: int, moves: list[tuple[int, int]]
) -> None:
    """Any history of taking and giving back, against a set of block ids."""
    ranges: SlotRanges = kind(num_blocks)
    held: list[range] = []
    for count, place in moves:
        if held and place % 3 == 0:
            ranges.give_back(held.pop(place % len(held)))
        else:
            gained = ranges.take(count)
            if gained is not None:
                assert count <= len(gained)
                assert set(gained).isdisjoint({block for one in held for block in one})
                assert set(gained) <= set(range(num_blocks))
                held.append(gained)
        assert num_blocks - sum(map(len, held)) == ranges.num_free
    for one in held:
        ranges.give_back(one)
    largest = 1 << (num_blocks.bit_length() - 1) if kind is Buddy else num_blocks
    assert ranges.take(largest) is not None, "the holes were not joined again"


def test_first_fit_cuts_to_size_and_buddy_rounds_up() -> None:
    """Five blocks are five, or eight."""
    assert range(5) == FirstFit(16).take(5)
    assert range(8) == Buddy(16).take(5)


@pytest.mark.parametrize("kind", KINDS)
def test_free_blocks_without_a_hole_are_of_no_use(kind: type[FirstFit] | type[Buddy]) -> None:
    """External fragmentation: half of the pool is free, a quarter is refused."""
    ranges = kind(16)
    pieces = [ranges.take(2) for _ in range(8)]
    for piece in pieces[::2]:
        assert piece is not None
        ranges.give_back(piece)

    assert 8 == ranges.num_free
    assert ranges.take(4) is None
