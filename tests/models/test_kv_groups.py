"""Which layers share KV blocks, and what kept blocks depend on."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.contracts.kv_plan import KVGroup
from octavo.models.kv_fingerprint import kv_fingerprint
from octavo.models.kv_groups import kv_groups
from tests.support.random_checkpoint import tiny_facts

LONG = 1 << 20


def sizes(windows: list[int], longest: int = LONG) -> list[tuple[int, int]]:
    """(window, layers) of each group; all layers have one shape."""
    groups = kv_groups(windows, [(4, 64)] * len(windows), longest)
    layers = sorted(layer for group in groups for layer in group.layers)
    assert layers == list(range(len(windows)))
    assert all(windows[layer] in (group.window, *([] if group.window else [windows[layer]]))
               for group in groups for layer in group.layers)  # fmt: skip
    return [(group.window, len(group.layers)) for group in groups]


def gemma3(num_layers: int, window: int) -> list[int]:
    return [window if (layer + 1) % 6 else 0 for layer in range(num_layers)]


@pytest.mark.parametrize("window", [0, 4096])
def test_layers_of_one_kind_are_one_group(window: int) -> None:
    """However many."""
    assert sizes([window] * 30) == [(window, 30)]


@pytest.mark.parametrize(
    ("num_layers", "expected"),
    [
        (18, [(0, 3), *[(512, 3)] * 5]),  # 270M
        (26, [(0, 4), *[(512, 4)] * 5, (512, 2)]),  # 1B
        (34, [(0, 5), *[(512, 5)] * 5, (512, 4)]),  # 4B
        (48, [(0, 8), *[(512, 8)] * 5]),  # 12B
        (62, [(0, 10), *[(512, 11)] * 4, (512, 8)]),  # 27B
    ],
)
def test_gemma_3_has_few_groups_that_waste_little(
    num_layers: int, expected: list[tuple[int, int]]
) -> None:
    """Five of six layers have a window; at most a tenth of the lanes of either kind is padding."""
    assert sizes(gemma3(num_layers, 512)) == expected


def test_where_nothing_is_frugal_what_wastes_least_is_taken() -> None:
    """One layer of one kind and 25 of another: 5 lanes leave 4 empty, 4 would leave 6."""
    assert sizes([0] + [64] * 25) == [(0, 1), *[(64, 5)] * 5]


def test_many_kinds_are_as_many_groups() -> None:
    """More than is wished for."""
    assert sizes(list(range(1, 11))) == [(window, 1) for window in range(1, 11)]


def test_a_window_that_is_never_full_is_none() -> None:
    """A context of 512 tokens fits a window of 512."""
    assert sizes(gemma3(18, 512), longest=512) == [(0, 18)]
    assert len(sizes(gemma3(18, 512), longest=513)) == 6


def test_layers_of_different_shapes_are_one_group_that_keeps_everything() -> None:
    """Their blocks could not serve each other."""
    assert kv_groups([0, 64], [(4, 64), (1, 256)], LONG) == (KVGroup(layers=(0, 1)),)


FINGERPRINT: dict[str, Any] = {
    "facts": tiny_facts(),
    "max_model_len": 100,
    "block_size": 16,
    "kv_type": "BF16",
    "groups": (KVGroup(layers=(0, 1)),),
    "arithmetic": "native avx2",
}


@pytest.mark.parametrize(
    "change",
    [
        {"facts": tiny_facts(norm_eps=1e-6)},
        {"facts": tiny_facts(sliding_windows=(0, 9))},
        {"block_size": 32},
        {"kv_type": "F32"},
        {"groups": (KVGroup(layers=(0,)), KVGroup(layers=(1,)))},
        {"arithmetic": "torch"},
    ],
)
def test_whatever_changes_the_bytes_of_a_block_changes_the_fingerprint(
    change: dict[str, Any],
) -> None:
    """Blocks of one are not found by the other."""
    assert kv_fingerprint(**FINGERPRINT) != kv_fingerprint(**{**FINGERPRINT, **change})


def test_the_context_counts_only_where_the_rotary_frequencies_follow_it() -> None:
    """A longer context finds the blocks of a shorter one, unless `dynamic` scaling is settled."""
    longer = {**FINGERPRINT, "max_model_len": 200}
    assert kv_fingerprint(**FINGERPRINT) == kv_fingerprint(**longer)

    rope = tiny_facts().rope
    dynamic = type(rope)(rotary_dim=12, scaling="dynamic", factor=2.0, original_max_position=50)
    facts = tiny_facts(rope=dynamic)
    assert kv_fingerprint(**{**FINGERPRINT, "facts": facts}) != kv_fingerprint(
        **{**longer, "facts": facts}
    )


def test_what_is_only_said_about_answers_does_not_count() -> None:
    """End ids and defaults of sampling."""
    facts = tiny_facts(eos_token_ids=(5,), generation_defaults={"temperature": 0.5})
    assert kv_fingerprint(**FINGERPRINT) == kv_fingerprint(**{**FINGERPRINT, "facts": facts})
