"""check_pool notices every kind of damage; without this the other tests prove little."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest

from octavo.contracts.block_hash import block_hash
from octavo.contracts.kv_plan import KVPlan
from octavo.kvcache.block_table import BlockTable
from octavo.kvcache.invariants import check_pool
from octavo.kvcache.manager import KVManager
from octavo.kvcache.prefix_index import Content
from tests.kvcache.contents import content


def make_used() -> tuple[KVManager, BlockTable]:
    """A pool of six blocks: three in use, two of them findable; and two host slots."""
    kv = KVManager(KVPlan(num_blocks=6, block_size=4, bytes_per_block=1, num_host_slots=2))
    table = kv.open_table(array("i", range(10)))
    assert kv.admit(table, 10) == 0
    kv.announce(table, 10)
    kv.commit()
    return kv, table


def leak(kv: KVManager, table: BlockTable) -> None:
    kv.pool.take(1)


def free_twice(kv: KVManager, table: BlockTable) -> None:
    kv.pool.release(table.block_ids[0][:1])


def share_in_secret(kv: KVManager, table: BlockTable) -> None:
    kv.pool.share(table.block_ids[0][:1])


def find_a_block_that_was_never_announced(kv: KVManager, table: BlockTable) -> None:
    tokens = array("i", (8, 9, 9, 9))
    parent = table.hash_of(1)
    kv.index.add(Content(0, parent, block_hash(parent, tokens), tokens), table.block_ids[0][2])


def find_a_blank_block(kv: KVManager, table: BlockTable) -> None:
    kv.index.add(content(None), 5)


def find_a_block_by_a_wrong_hash(kv: KVManager, table: BlockTable) -> None:
    kv.index.drop(table.block_ids[0][1])
    kv.index.add(content(b"wrong", tokens=(4, 5, 6, 7)), table.block_ids[0][1])


def swap_two_blocks(kv: KVManager, table: BlockTable) -> None:
    ids = table.block_ids[0]
    ids[0], ids[1] = ids[1], ids[0]


def rewrite_a_token(kv: KVManager, table: BlockTable) -> None:
    table.token_ids[2] = 999


def lose_a_block_without_a_window(kv: KVManager, table: BlockTable) -> None:
    kv.pool.release(table.block_ids[0][:1])
    table.block_ids[0][0] = -1


def leak_a_slot(kv: KVManager, table: BlockTable) -> None:
    kv.slots.take()


def leave_without_slots(kv: KVManager, table: BlockTable) -> None:
    kv.swapping.leaving.append(table)


def hold_a_pin_that_nobody_counted(kv: KVManager, table: BlockTable) -> None:
    kv.moves.num_pins[0] = 1


def promise_for_nobody(kv: KVManager, table: BlockTable) -> None:
    stranger = kv.open_table(array("i", range(50, 54)))
    stranger.block_ids = [kv.pool.take(1)]
    kv.promises.add(stranger, 0)
    kv.pool.release(stranger.block_ids[0])


@pytest.mark.parametrize(
    "damage",
    [
        leak,
        free_twice,
        share_in_secret,
        find_a_block_that_was_never_announced,
        find_a_blank_block,
        find_a_block_by_a_wrong_hash,
        swap_two_blocks,
        rewrite_a_token,
        lose_a_block_without_a_window,
        leak_a_slot,
        leave_without_slots,
        hold_a_pin_that_nobody_counted,
        promise_for_nobody,
    ],
)
def test_damage_is_noticed(damage: Callable[[KVManager, BlockTable], None]):
    kv, table = make_used()
    check_pool(kv, [table])
    damage(kv, table)
    with pytest.raises(AssertionError):
        check_pool(kv, [table])
