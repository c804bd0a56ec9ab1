"""check_pool notices every kind of damage; without this the other tests prove little."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest

from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.invariants import check_pool
from octavo.kvcache.manager import KVManager
from tests.support.builders import make_kv


def make_used() -> tuple[KVManager, BlockTable]:
    """A pool of six blocks: three in use, two of them findable."""
    kv = make_kv(6, 4)
    table = kv.open_table(array("i", range(10)))
    kv.reserve(table, 10)
    kv.announce(table, 10)
    kv.commit()
    return kv, table


def leak(kv: KVManager, table: BlockTable) -> None:
    kv.pool.take(1)


def free_twice(kv: KVManager, table: BlockTable) -> None:
    kv.pool.release(table.block_ids[:1])


def share_in_secret(kv: KVManager, table: BlockTable) -> None:
    kv.pool.share(table.block_ids[:1])


def find_a_block_that_was_never_announced(kv: KVManager, table: BlockTable) -> None:
    kv.index.add(b"early", table.block_ids[2])


def find_a_blank_block(kv: KVManager, table: BlockTable) -> None:
    kv.index.add(b"blank", 5)


def swap_two_blocks(kv: KVManager, table: BlockTable) -> None:
    table.block_ids[0], table.block_ids[1] = table.block_ids[1], table.block_ids[0]


def rewrite_a_token(kv: KVManager, table: BlockTable) -> None:
    table.token_ids[2] = 999


@pytest.mark.parametrize(
    "damage",
    [
        leak,
        free_twice,
        share_in_secret,
        find_a_block_that_was_never_announced,
        find_a_blank_block,
        swap_two_blocks,
        rewrite_a_token,
    ],
)
def test_damage_is_noticed(damage: Callable[[KVManager, BlockTable], None]):
    kv, table = make_used()
    check_pool(kv, [table])
    damage(kv, table)
    with pytest.raises(AssertionError):
        check_pool(kv, [table])
