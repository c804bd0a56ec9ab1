"""Which attention layers share KV blocks, and how many blocks a state takes.

Owns the cut of a model's layers into groups of one window and equal size, see
`contracts/kv_plan.KVGroup`. Does not know memory or requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octavo.contracts.kv_plan import KVGroup

# A request has a block table for each group, handled in Python: few groups are cheaper. Lanes that
# no layer uses are wasted memory: at most a tenth, for each kind of layer.
_MOST_GROUPS = 8
_MOST_WASTE = 0.1


def kv_groups(
    windows: Sequence[int], shapes: Sequence[tuple[int, int]], longest: int
) -> tuple[KVGroup, ...]:
    """The groups of layers with these windows (0: none) and shapes (KV heads, head size).

    A window that no sequence of up to `longest` tokens fills is none. Layers of different shapes
    cannot share lanes; they form one group that keeps everything: right, though wasteful.
    """
    if not windows:
        return ()
    kinds: dict[int, list[int]] = {}  # window -> layers
    for layer, window in enumerate(windows):
        kinds.setdefault(window if window < longest else 0, []).append(layer)
    if len(set(shapes)) > 1:
        return (KVGroup(layers=tuple(range(len(windows)))),)
    num_lanes = _lanes({window: len(layers) for window, layers in kinds.items()})
    return tuple(
        KVGroup(layers=tuple(kinds[window][first : first + num_lanes]), window=window)
        for window in sorted(kinds)
        for first in range(0, len(kinds[window]), num_lanes)
    )


def with_state(
    groups: tuple[KVGroup, ...], bytes_per_block: int, state_bytes: int
) -> tuple[tuple[KVGroup, ...], int]:
    """The groups with one more for the states of a request, and the bytes of a block.

    A state takes as many whole blocks as it needs; where there are no keys and values a block is
    as large as a state.
    """
    if not state_bytes:
        return groups, bytes_per_block
    bytes_per_block = bytes_per_block or state_bytes
    num_blocks = -(-state_bytes // bytes_per_block)
    return (*groups, KVGroup(num_state_blocks=num_blocks)), bytes_per_block


def _lanes(counts: Mapping[int, int]) -> int:
    """Lanes of a block: the most that waste little, else those that waste least."""
    most_groups = max(_MOST_GROUPS, len(counts))
    possible = [
        lanes
        for lanes in range(1, max(counts.values()) + 1)
        if sum(-(-count // lanes) for count in counts.values()) <= most_groups
    ]
    frugal = [
        lanes
        for lanes in possible
        if all(-count % lanes <= _MOST_WASTE * count for count in counts.values())
    ]
    if frugal:
        return max(frugal)
    return min(possible, key=lambda lanes: sum(-count % lanes for count in counts.values()))
